"""What the hooks cost: a training step of a counter beside the same step of a lean plain-PyTorch module.

    python benchmarks/training_step.py

One thread, the same shapes, batches and optimiser; the two take turns, so that whatever else the machine does
hits both. Prints the median milliseconds of each and the median of the ratios of neighbouring turns.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from lean_transformer import LeanTransformer, copy_weights
from side_by_side import race
from torch import nn

from models import TransformerConfig, build_counter

SHAPES = [(32, 1, 1), (64, 2, 4), (128, 2, 4), (256, 2, 4)]  # d_model, n_layers, n_heads
BATCH, LENGTH, TURNS = 32, 50, 60


def stepper(model: nn.Module, token_ids: torch.Tensor, position_ids: torch.Tensor) -> Callable[[], None]:
    """One whole training step: forward, loss, backward, clipping, AdamW."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    labels = token_ids.flatten()

    def step() -> None:
        loss = F.cross_entropy(model(token_ids, position_ids).flatten(0, 1), labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return step


def main() -> None:
    torch.set_num_threads(1)
    print(f"batch {BATCH}, length {LENGTH}, one thread, {TURNS} turns")
    print(f"{'d_model':>8} {'layers':>7} {'heads':>6} {'counter ms':>11} {'lean ms':>9} {'ratio':>6}")
    for d_model, n_layers, n_heads in SHAPES:
        generator = torch.Generator().manual_seed(0)
        cfg = TransformerConfig(103, "ape", n_heads, 4 * d_model, n_layers=n_layers, d_model=d_model)
        counter = build_counter(cfg, generator)
        lean = LeanTransformer(103, 128, n_layers, d_model, n_heads, 4 * d_model)
        copy_weights(lean, counter.state_dict())
        token_ids = torch.randint(0, 103, (BATCH, LENGTH), generator=generator)
        position_ids = torch.arange(LENGTH).expand(BATCH, -1)
        torch.testing.assert_close(counter(token_ids, position_ids), lean(token_ids, position_ids), atol=1e-5, rtol=0)
        models = {"lean": lean, "counter": counter.train()}
        times = race({name: stepper(model, token_ids, position_ids) for name, model in models.items()}, TURNS)
        (theirs, _), (ours, ratio) = times["lean"], times["counter"]
        print(f"{d_model:8} {n_layers:7} {n_heads:6} {ours:11.2f} {theirs:9.2f} {ratio:6.2f}")


if __name__ == "__main__":
    main()
