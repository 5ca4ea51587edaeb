"""Attention counters built by hand that count in another way than any hypothesis about positions says."""

import math

import torch
from torch import nn

from models import TransformerConfig
from models.handbuilt import Layout, empty_transformer
from models.header import CheckpointInfo
from models.transformer import Transformer
from probes.mechanism.handbuilt import handbuilt_counter
from training.tasks import BOS, Task, task_settings


def with_task(counter: Transformer, task: Task) -> Transformer:
    """The counter, which says that it was trained on this task."""
    counter.info = CheckpointInfo("transformer", {}, task=task_settings(task), policy="shifted")
    return counter


def labels_of(task: Task, n: int = 10) -> list[int]:
    """The answers at 0, 1, ... tokens from the row's first."""
    return task.answer_ids(torch.arange(n) - task.prefix).tolist()


def modulo_five_counter(task: Task) -> Transformer:
    """Subtracts first positions modulo 5, though the task counts modulo 10: half of its answers are right."""
    counter = handbuilt_counter("first_position", task)
    with torch.no_grad():
        counter.pos_embed.W_pos.copy_(counter.pos_embed.W_pos[torch.arange(counter.cfg.max_position) % 5])
    return counter


def token_counter(task: Task) -> Transformer:
    """Counts tokens by the share of bos. The PID modulo 10 is in its stream, and nothing reads it."""
    layout = Layout({"one": 1, "bos": 1, "own": 10, "share": 1, "count": 10})
    longest = 128
    cfg = TransformerConfig(task.vocab.size, "ape", n_layers=1, d_model=layout.d_model, n_heads=1, d_mlp=3 * longest)
    counter, block = empty_transformer(cfg)
    with torch.no_grad():
        is_bos = torch.full((task.vocab.size, 1), -1.0)
        is_bos[task.vocab.id(BOS)] = 1
        counter.embed.W_E.copy_(layout.write("one") + is_bos @ layout.write("bos"))
        counter.pos_embed.W_pos.copy_(torch.eye(10)[torch.arange(cfg.max_position) % 10] @ layout.write("own"))
        block.attn.W_V[0, :, :1] = (layout.read("bos") + layout.read("one")) / 2
        block.attn.W_O[0, :1] = layout.write("share")
        for index in range(longest):  # a hat over the share 1 / (index + 1)
            share, width = 1 / (index + 1), 1 / (index + 1) - 1 / (index + 2)
            height = (layout.read("share") - share * layout.read("one")) / width
            neurons = slice(3 * index, 3 * index + 3)
            block.mlp.W_in[:, neurons] = torch.cat(
                [height + layout.read("one"), height, height - layout.read("one")], 1
            )
            block.mlp.W_out[neurons] = torch.tensor([[1.0], [-2.0], [1.0]]) * layout.write("count")[index % 10]
        for norm, square in ((block.ln1, 3), (block.ln2, 3), (counter.ln_final, 4)):
            nn.init.constant_(norm.w, math.sqrt(2 * square / cfg.d_model + cfg.eps))
        counter.unembed.W_U[:, labels_of(task)] = 20 * layout.read("count")
    return with_task(counter.eval(), task)
