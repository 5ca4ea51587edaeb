"""Activation patching, many patches at a time and in TransformerLens' loop of one forward pass per patch.

    python benchmarks/patching_speed.py

Both patch the same counter (2 layers, 4 heads, rows of 64 tokens) from the same two batches, unpatched runs included,
with the same metric: the logit difference, over all positions or at the last one (as most people use it). Both give
the same numbers, which is checked first. TransformerLens' loop runs on CountLens' own module, without gradients and
without its progress bar, and once through TransformerLens' own bridge.

What can be gained depends on what the metric reads. Read at every position, a sweep of 2 layers has to compute
(9 + 12 + 9) / 2 of the loop's 4 * 12 units (a layer's matrices are 3 for q, k, v, 1 for the output and 8 for the MLP;
half of the positions on average), and where matrix products are all that counts no more than 3.2 times can be won.
A sweep over 4 heads of 2 layers at all positions has but 8 patches: the loop's 9 passes, with the donor's, are 216
units, two unpatched runs and what lies behind each patch 2 * 24 + 4 * (9 + 12) + 4 * 9 = 168. That is 1.3 times in
matrix products, and less than 4.5 times where a pass costs the same whatever is in it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformer_lens.patching
from side_by_side import race
from torch import Tensor

from models import TransformerConfig, build_counter, hook_name, to_transformer_lens
from models.transformer import Transformer
from probes.patching.engine import activation_patch
from training.batches import Batch

N_POS, N_TOKENS = 64, 13
SWEEPS: dict[str, tuple[str, tuple[str, ...] | None]] = {  # TransformerLens' names: site and axes
    "resid_pre": ("resid_pre", None),
    "attn_head_out_by_pos": ("z", None),
    "attn_head_out_all_pos": ("z", ("layer", "head")),
}
SIZES = ((1, 32), (8, 128))  # rows, width
TURNS = 5


def pair(n_rows: int) -> tuple[Batch, Batch]:
    """Two batches of random rows and labels, at positions 0, 1, 2, ..., which are the bridge's own."""
    generator = torch.Generator().manual_seed(0)
    both = []
    for _ in range(2):
        tokens, labels = torch.randint(0, N_TOKENS, (2, n_rows, N_POS), generator=generator)
        mask = torch.ones(n_rows, N_POS, dtype=torch.bool)
        both.append(Batch(tokens, torch.arange(N_POS).expand(n_rows, -1), labels, mask, torch.ones(n_rows)))
    both[1].label_ids[:, -1] = (both[0].label_ids[:, -1] + 1) % N_TOKENS  # so that the last answers differ
    return both[0], both[1]


def main() -> None:
    torch.set_num_threads(1)
    transformer_lens.patching.tqdm = lambda rows: rows
    header = f"{'sweep':>22} {'rows':>4} {'width':>5} {'reads':>5} {'ours ms':>9}"
    print(header + f" {'loop ms':>9} {'loop / ours':>12} {'bridge ms':>10} {'bridge / ours':>14}")
    for n_rows, width in SIZES:
        config = TransformerConfig(N_TOKENS, "ape", n_layers=2, d_model=width, d_mlp=4 * width, init_std=0.2)
        counter = build_counter(config, torch.Generator().manual_seed(0)).eval()
        bridge = to_transformer_lens(counter)
        clean, corrupted = pair(n_rows)
        for sweep in SWEEPS:
            for reads in ("all", "last"):
                contenders = sweeps(counter, bridge, clean, corrupted, sweep, reads)
                ours, *theirs = (call() for call in contenders.values())
                for loop in theirs:
                    np.testing.assert_allclose(ours, loop, atol=1e-5, rtol=1e-5)
                times = race(contenders, TURNS)
                line = f"{sweep:>22} {n_rows:4} {width:5} {reads:>5} {times['ours'][0]:9.1f}"
                line += f" {times['loop'][0]:9.1f} {times['loop'][1]:12.1f}"
                print(line + f" {times['bridge'][0]:10.1f} {times['bridge'][1]:14.1f}", flush=True)


def sweeps(
    counter: Transformer, bridge: Any, clean: Batch, corrupted: Batch, sweep: str, reads: str
) -> dict[str, Callable[[], np.ndarray]]:
    """Three functions that compute the same grid of patches from two batches."""
    at = range(N_POS) if reads == "all" else [N_POS - 1]
    site, axes = SWEEPS[sweep]
    patch = getattr(transformer_lens.patching, f"get_act_patch_{sweep}")
    right, wrong = clean.label_ids[:, at, None], corrupted.label_ids[:, at, None]
    differ = (right != wrong)[..., 0]

    def logit_diff(logits: Tensor) -> Tensor:
        difference = (logits[:, at].gather(-1, right) - logits[:, at].gather(-1, wrong))[..., 0]
        return ((difference * differ).sum(1) / differ.sum(1)).mean()

    def ours() -> np.ndarray:
        return activation_patch(counter, clean, corrupted, site, "logit_diff", axes=axes, at=at).values

    def loop() -> np.ndarray:
        with torch.inference_mode(), counter.at_positions(corrupted.position_ids):
            _, cache = counter.run_with_cache(clean.token_ids, clean.position_ids, names_filter=wanted)
            return patch(counter, corrupted.token_ids, cache, logit_diff).numpy()

    def through_bridge() -> np.ndarray:
        with torch.inference_mode():
            _, cache = bridge.run_with_cache(clean.token_ids, names_filter=wanted)
            return patch(bridge, corrupted.token_ids, cache, logit_diff).numpy()

    wanted = [hook_name(site, layer) for layer in range(2)]
    return {"ours": ours, "loop": loop, "bridge": through_bridge}


if __name__ == "__main__":
    main()
