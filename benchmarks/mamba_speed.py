"""Our Mamba mixer beside transformers' (its CPU path) and mambapy's, with the same weights and inputs.

    python benchmarks/mamba_speed.py
    pip install --no-deps mambapy    # optional: without it, that column stays empty

One thread; the contenders take turns, so that whatever else the machine does hits all of them. Prints the median
milliseconds of each, and the median over turns of how many times longer the others take.
"""

from functools import partial

import torch
from side_by_side import race
from torch import Tensor, nn
from transformers import MambaConfig as TransformersConfig
from transformers.models.mamba.modeling_mamba import MambaMixer as TransformersMixer
from transformers.utils import logging

from models.config import MambaConfig
from models.mamba import MambaMixer

try:
    from mambapy.mamba import MambaBlock as MambapyMixer
    from mambapy.mamba import MambaConfig as MambapyConfig
except ImportError:
    MambapyMixer = None

BATCH, TURNS = 32, 5
SHAPES = [(d_model, length) for d_model in (64, 128) for length in (50, 128)]


def contenders(d_model: int) -> dict[str, nn.Module]:
    """Mixers with the same weights: all three name their parameters alike."""
    ours = MambaMixer(MambaConfig(1, d_model=d_model))
    ours.init_weights(torch.Generator().manual_seed(0))
    mixers: dict[str, nn.Module] = {"ours": ours}
    mixers["transformers"] = TransformersMixer(TransformersConfig(hidden_size=d_model, num_hidden_layers=1), 0)
    if MambapyMixer is not None:
        mixers["mambapy"] = MambapyMixer(MambapyConfig(d_model, 1))
    for mixer in mixers.values():
        mixer.load_state_dict(ours.state_dict(), strict=True)
    return mixers


def forward(mixer: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        mixer(x)


def forward_and_backward(mixer: nn.Module, x: Tensor) -> None:
    mixer.zero_grad(set_to_none=True)
    mixer(x).square().mean().backward()


def main() -> None:
    torch.set_num_threads(1)
    logging.set_verbosity_error()  # it would warn that its kernels are missing; without them it takes its CPU path
    if MambapyMixer is None:
        print("mambapy is not installed: pip install --no-deps mambapy")
    print(f"batch {BATCH}, one thread, {TURNS} turns; milliseconds, and how many times longer than ours")
    print(f"{'d_model':>8} {'length':>7} {'what':>9} {'ours':>8} {'transformers':>13} {'':>7} {'mambapy':>9} {'':>7}")
    for d_model, length in SHAPES:
        mixers = contenders(d_model)
        x = torch.randn(BATCH, length, d_model, generator=torch.Generator().manual_seed(1)).requires_grad_()
        outputs = {name: mixer(x) for name, mixer in mixers.items()}
        for output in outputs.values():
            torch.testing.assert_close(output, outputs["ours"], atol=1e-6, rtol=1e-4)
        del outputs
        for what, work in (("forward", forward), ("and back", forward_and_backward)):
            times = race({name: partial(work, mixer, x) for name, mixer in mixers.items()}, TURNS)
            line = f"{d_model:8} {length:7} {what:>9} {times['ours'][0]:8.1f}"
            for name, width in (("transformers", 13), ("mambapy", 9)):
                if name in times:
                    line += f" {times[name][0]:{width}.1f} {times[name][1]:6.1f}x"
            print(line, flush=True)


if __name__ == "__main__":
    main()
