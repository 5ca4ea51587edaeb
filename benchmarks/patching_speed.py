"""Activation patching, many patches at a time and in TransformerLens' loop of one forward pass a patch.

    python benchmarks/patching_speed.py

Both patch the same counter (2 layers, 4 heads, rows of 64 tokens), with the same metric, a function of the logits at
every position, or at the last one only (as most people use it). Both give the same numbers, which is checked first.
TransformerLens runs on CountLens' own module, without gradients and without its progress bar, which is the kindest
case for it: through its own bridge a forward pass takes several times as long.
"""

from collections.abc import Callable

import numpy as np
import torch
import transformer_lens.patching
from side_by_side import race
from torch import Tensor

from models import TransformerConfig, build_counter
from models.transformer import Transformer
from probes import tl_patching
from probes.patching import activation_patch
from training.batches import Batch

N_POS, N_TOKENS = 64, 13
SWEEPS = ("resid_pre", "attn_head_out_by_pos", "attn_head_out_all_pos")
SIZES = ((1, 32), (8, 128))  # rows, width
TURNS = 5


def pair(n_rows: int) -> tuple[Batch, Batch]:
    """Random rows and as many others, at shifted positions, with random labels."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(0, 64, (n_rows, 1), generator=generator)
    both = []
    for _ in range(2):
        tokens, labels = torch.randint(0, N_TOKENS, (2, n_rows, N_POS), generator=generator)
        mask = torch.ones(n_rows, N_POS, dtype=torch.bool)
        both.append(Batch(tokens, first + torch.arange(N_POS), labels, mask, torch.ones(n_rows)))
    return both[0], both[1]


def main() -> None:
    torch.set_num_threads(1)
    transformer_lens.patching.tqdm = lambda rows: rows
    TransformerConfig.device = None  # which TransformerLens' loop asks for
    print(f"{'sweep':>22} {'rows':>4} {'width':>5} {'reads':>5} {'loop ms':>9} {'ours ms':>9} {'loop / ours':>12}")
    for n_rows, width in SIZES:
        config = TransformerConfig(N_TOKENS, "ape", n_layers=2, d_model=width, d_mlp=4 * width, init_std=0.2)
        counter = build_counter(config, torch.Generator().manual_seed(0)).eval()
        clean, corrupted = pair(n_rows)
        for sweep in SWEEPS:
            for reads in ("all", "last"):
                contenders = sweeps(counter, clean, corrupted, sweep, reads)
                ours, loop = (call() for call in contenders.values())
                np.testing.assert_allclose(ours, loop, atol=1e-5)
                result = race(contenders, TURNS)
                ours_ms, loop_ms, ratio = result["ours"][0], *result["loop"]
                size = f"{n_rows:4} {width:5} {reads:>5}"
                print(f"{sweep:>22} {size} {loop_ms:9.1f} {ours_ms:9.1f} {ratio:12.1f}", flush=True)


def sweeps(
    counter: Transformer, clean: Batch, corrupted: Batch, sweep: str, reads: str
) -> dict[str, Callable[[], np.ndarray]]:
    """Both ways to the same grid, each from the two batches on."""
    at = range(N_POS) if reads == "all" else [N_POS - 1]
    labels = clean.label_ids[:, at, None]

    def metric(logits: Tensor) -> Tensor:
        """The mean log-probability of the labels."""
        return logits.log_softmax(-1).gather(-1, labels).mean()

    def ours() -> np.ndarray:
        if reads == "last":
            site, axes = {"resid_pre": ("resid_pre", None), "attn_head_out_by_pos": ("z", None)}.get(
                sweep, ("z", ("layer", "head"))
            )
            return activation_patch(counter, clean, corrupted, site, metric, axes=axes, at=at).values
        with torch.no_grad():
            _, cache = counter.run_with_cache(clean.token_ids, clean.position_ids)
            patch = getattr(tl_patching, f"get_act_patch_{sweep}")
            return patch(counter, corrupted.token_ids, cache, metric, position_ids=corrupted.position_ids).numpy()

    def loop() -> np.ndarray:
        with torch.no_grad(), counter.at_positions(corrupted.position_ids):
            _, cache = counter.run_with_cache(clean.token_ids, clean.position_ids)
            patch = getattr(transformer_lens.patching, f"get_act_patch_{sweep}")
            return patch(counter, corrupted.token_ids, cache, lambda logits: metric(logits[:, at])).numpy()

    return {"ours": ours, "loop": loop}


if __name__ == "__main__":
    main()
