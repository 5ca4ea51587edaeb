"""What S4's convolution gains: forward and backward of a counter beside the same counter as a plain recurrence.

    python benchmarks/s4_speed.py

The other one goes one position at a time with the same diagonal-plus-low-rank step (no dense matrix), discretised once
a forward, and its C is the true one, so that it never pays for recovering it. One thread, float32, the same weights
and batches; the two take turns, so that whatever else the machine does hits both. Prints the median milliseconds of
each and the median of the ratios of neighbouring turns.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from side_by_side import race
from torch import Tensor, nn

from models import build_counter
from models.config import S4Config
from models.s4 import S4Mixer
from models.s4_kernel import advance, discretise, untruncate

BATCH, TURNS = 32, 15
SHAPES = [(length, d_model) for length in (50, 128) for d_model in (64, 128)]


class StepLoop(S4Mixer):
    """The recurrence, one position at a time; the parameter C holds the true C."""

    def run_parallel(self, x: Tensor) -> Tensor:
        step = type(discretised := discretise(self._build_space()))(*(part.to(torch.complex64) for part in discretised))
        readout = torch.view_as_complex(self.C)
        state, outputs = torch.zeros_like(step.decay), []
        for at_pos in x.unbind(1):
            state = advance(step, state) + step.input * at_pos[..., None]
            outputs.append(2 * (state * readout).sum(-1).real)
        return torch.stack(outputs, 1) + self.D * x


def pair(length: int, d_model: int) -> tuple[nn.Module, nn.Module]:
    """Two counters with the same logits."""
    cfg = S4Config(103, d_model=d_model, n_layers=1, kernel_length=length, embed_std=1.0)
    counter, loop = (build_counter(cfg, torch.Generator().manual_seed(0)).train() for _ in range(2))
    mixer = loop.blocks[0].mixer
    with torch.no_grad():
        true_c = untruncate(discretise(mixer._build_space()), torch.view_as_complex(mixer.C.double()), length)
        mixer.C.copy_(torch.view_as_real(true_c))
    mixer.__class__ = StepLoop
    return counter, loop


def stepper(model: nn.Module, token_ids: Tensor) -> Callable[[], None]:
    """Forward, loss and backward."""

    def step() -> None:
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(token_ids, token_ids).flatten(0, 1), token_ids.flatten()).backward()

    return step


def main() -> None:
    torch.set_num_threads(1)
    print(f"batch {BATCH}, 1 layer, d_state 64, one thread, {TURNS} turns, forward and backward")
    print(f"{'length':>7} {'d_model':>8} {'counter ms':>11} {'loop ms':>9} {'faster':>7}")
    for length, d_model in SHAPES:
        counter, loop = pair(length, d_model)
        token_ids = torch.randint(0, 103, (BATCH, length), generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(counter(token_ids, token_ids), loop(token_ids, token_ids), atol=1e-4, rtol=0)
        times = race({"counter": stepper(counter, token_ids), "loop": stepper(loop, token_ids)}, TURNS)
        (ours, _), (theirs, ratio) = times["counter"], times["loop"]
        print(f"{length:7} {d_model:8} {ours:11.2f} {theirs:9.2f} {ratio:6.1f}x")


if __name__ == "__main__":
    main()
