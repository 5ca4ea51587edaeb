"""With which periods attention scores vary with the key's position id."""

import numpy as np
import torch

from models.hooks import hook_name
from models.transformer import Transformer
from models.transformer_block import Block
from probes.inputs.counterfactual_rows import shifted_rows
from probes.inputs.equal_tokens import equal_token_row
from probes.result import task_of_counter
from training.evaluate import evaluating


def share_at_periods(counter: Transformer, layer: int, period: int) -> float:
    """Share of the variance of a layer's attention scores over the key's PID at periods that divide `period`.

    The layer's input at a PID is the mean residual stream there, over training rows of all shifts (in layer 0 of ape,
    all of these streams are equal). The PIDs are a whole number of periods, in the middle of all PIDs.
    """
    task, _ = task_of_counter(counter)
    pids = counter.cfg.max_position // period * period
    if pids == counter.cfg.max_position:  # the last PID may never occur in training
        pids -= period
    first = (counter.cfg.max_position - pids) // 2
    row = equal_token_row(task, task.train_length)
    shifts = torch.arange(counter.cfg.max_position - len(row))
    rows = shifted_rows(task, row.expand(len(shifts), -1), shifts).to(counter.device)
    name = hook_name("resid_pre", layer)
    with evaluating(counter):
        _, cache = counter.run_with_cache(rows.token_ids, rows.position_ids, names_filter=[name])
        flat, places = cache[name].flatten(0, 1), rows.position_ids.flatten()
        sums = torch.zeros(counter.cfg.max_position, flat.shape[1], device=flat.device).index_add(0, places, flat)
        means = sums / places.bincount(minlength=counter.cfg.max_position).clamp(min=1)[:, None]
        block = counter.blocks[layer]
        assert isinstance(block, Block)
        q, k = block.attn.project(block.ln1(means[None, first : first + pids]), "QK")
        scores = torch.einsum("bqhd,bkhd->hqk", q, k).double().cpu().numpy()
    return power_share(scores, period)


def power_share(scores: np.ndarray, period: int) -> float:
    """Share of the variance along the last axis, cut to whole periods, at periods that divide `period`.

    >>> wave = np.cos(2 * np.pi * np.arange(120) / 10)
    >>> round(power_share(wave, 10), 6), round(power_share(wave, 8), 6)
    (1.0, 0.0)
    """
    length = scores.shape[-1] // period * period
    power = np.abs(np.fft.rfft(scores[..., :length])) ** 2
    power[..., 0] = 0
    power[..., 1 : (length + 1) // 2] *= 2  # each stands for two frequencies, but for the last one of an even length
    total = power.sum()
    return float(power[..., length // period :: length // period].sum() / total) if total > 0 else np.nan
