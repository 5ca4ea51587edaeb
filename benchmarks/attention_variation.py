"""Attention-score variation at layer 0, all at once and in a loop over sequences: 11 tokens x 128 PIDs x 8 heads.

    python benchmarks/attention_variation.py

The loop is what one would write with `run_with_cache`: for each pair of tokens a row with the target at every PID and
then the source at every PID, the scores between them under the causal mask, and their mean and std. It is the kindest
loop: one run a pair of tokens, not one a pair of PIDs (8,256 times as many). Both give the same numbers.
"""

import numpy as np
import torch
from side_by_side import race

from models import SCHEMES, TransformerConfig, build_counter, hook_name
from models.transformer import Transformer
from probes.reading.attention_scores import Moments, exact_moments

N_TOKENS, N_PIDS, N_HEADS = 11, 128, 8


def in_a_loop(counter: Transformer, token_ids: torch.Tensor) -> Moments:
    """The same moments from one run for each pair of tokens."""
    mean, std = torch.zeros(2, N_HEADS, N_TOKENS, N_TOKENS, dtype=torch.float64)
    name = hook_name("attn_scores", layer=0)
    pids = torch.arange(N_PIDS).repeat(2)[None]
    causal = torch.ones(N_PIDS, N_PIDS, dtype=torch.bool).tril()
    with torch.inference_mode():
        for source in range(N_TOKENS):
            found = []
            for target in range(N_TOKENS):
                row = token_ids[[target, source]].repeat_interleave(N_PIDS)[None]
                _, cache = counter.run_with_cache(row, pids, names_filter=name)
                found.append(cache[name][0, :, N_PIDS:, :N_PIDS].double())
            scores = torch.stack(found, 1)
            if not counter.scheme.rotary:  # softmax cancels what is the same for all keys
                scores -= scores.mean((1, 3), keepdim=True)
            mean[:, source] = scores[:, :, causal].mean(-1)
            std[:, source] = scores[:, :, causal].std(-1, correction=0)
    return Moments(mean.numpy(), std.numpy())


def main() -> None:
    torch.set_num_threads(1)
    token_ids = torch.arange(N_TOKENS)
    print(f"{'scheme':>7} {'width':>6} {'loop ms':>9} {'ours ms':>9} {'loop / ours':>12}")
    for width in (64, 1024):
        for scheme in SCHEMES:
            shape = {"n_layers": 1, "d_model": width, "n_heads": N_HEADS, "d_mlp": 4 * width, "init_std": 0.3}
            config = TransformerConfig(N_TOKENS, scheme, max_position=N_PIDS, **shape)
            counter = build_counter(config, torch.Generator().manual_seed(0)).eval()
            ours, loop = exact_moments(counter, token_ids), in_a_loop(counter, token_ids)
            size = np.abs(loop.mean).max()  # scores are single-precision sums of this size
            np.testing.assert_allclose(ours.mean, loop.mean, rtol=1e-5, atol=1e-5 * size)
            np.testing.assert_allclose(ours.std, loop.std, rtol=1e-5, atol=1e-5 * size)
            contenders = {
                "ours": lambda counter=counter: exact_moments(counter, token_ids),
                "loop": lambda counter=counter: in_a_loop(counter, token_ids),
            }
            result = race(contenders, turns=5 if width < 1024 else 1)
            ours_ms, loop_ms, ratio = result["ours"][0], *result["loop"]
            print(f"{scheme:>7} {width:6} {loop_ms:9.1f} {ours_ms:9.1f} {ratio:12.1f}", flush=True)


if __name__ == "__main__":
    main()
