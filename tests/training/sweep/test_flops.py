"""FLOPs: the formulas against torch's own counter, run on real counters, and against a case by hand."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from models import build_counter, hook_name
from models.config import CounterConfig, TransformerConfig
from models.families import FAMILIES, TRANSFORMER, family_of
from models.schemes import SCHEMES
from training.config import ModelOptions, OptimiserOptions, TaskOptions, TrainConfig
from training.presets import resolve
from training.sweep.flops import evaluation_flops, forward_flops, row_length, step_flops

# Where torch's counter sees nearly everything: it knows no FFT (little of a wide S4) and no elementwise state.
SIZES = {
    "s4": {"n_layers": 1, "d_model": 192},
    "mamba": {"n_layers": 2, "d_model": 128},
    "rwkv6": {"n_layers": 2, "d_model": 64, "d_head": 32},
}
CASES = [
    *(TransformerConfig(23, name, 2, 96, n_layers=2, d_model=24) for name in SCHEMES),
    TransformerConfig(11, "nope", 1, 32, n_layers=1, d_model=8),  # attention is as much as the weights
    *(
        family.config(23, **SIZES.get(name, {"n_layers": 2, "d_model": 24}))
        for name, family in FAMILIES.items()
        if name != TRANSFORMER
    ),
]


def convolution_backward(grad: Any, x: Any, weight: Any, *_: Any, **__: Any) -> int:
    """Twice the forward: torch's own formula forgets that Mamba's channels are convolved apart."""
    return 2 * 2 * grad[0] * grad[2] * weight[0] * weight[1] * weight[2]


def counted(cfg: CounterConfig, rows: int, n_pos: int) -> int:
    """What torch counts of a forward and backward pass with nothing fused."""
    counter = build_counter(cfg, torch.Generator().manual_seed(0))
    token_ids = torch.zeros(rows, n_pos, dtype=torch.long)
    position_ids = torch.arange(n_pos).expand(rows, -1)
    listeners = []
    if isinstance(cfg, TransformerConfig):
        listeners = [(hook_name("pattern", layer=layer), lambda x, hook: x) for layer in range(cfg.n_layers)]
    mapping = {torch.ops.aten.convolution_backward: convolution_backward}
    with (
        torch.backends.mkldnn.flags(enabled=False),
        FlopCounterMode(display=False, custom_mapping=mapping) as mode,
    ):
        counter.run_with_hooks(token_ids, position_ids, fwd_hooks=listeners).sum().backward()
    return mode.get_total_flops()


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # torch says so whenever oneDNN is switched off and on
@pytest.mark.parametrize("cfg", CASES, ids=lambda cfg: getattr(cfg, "position", family_of(cfg)))
def test_formulas_agree_with_torchs_counter(cfg: CounterConfig) -> None:
    assert 3 * forward_flops(cfg, 4, 40) == pytest.approx(counted(cfg, 4, 40), rel=0.1)


def test_a_step_by_hand() -> None:
    """mod10 in rows of 4: 13 words (0 to 10, a, padding). Two rows of 4 tokens, one layer 2 wide, an MLP of 8."""
    config = resolve(
        TrainConfig(
            data=TaskOptions(task="mod10", train_length=4, ood_length=9),
            model=ModelOptions(position="ape", n_layers=1, d_model=2, n_heads=1),
            optimiser=OptimiserOptions(batch_size=2),
        )
    )
    assert row_length(config, "train") == 4
    vocabulary = 13
    a_token = 4 * (2 * 2) + 2 * (2 * 8) + 2 * (4 * 2) + 2 * vocabulary  # Q K V O; MLP; scores and values; head
    assert step_flops(config) == 2 * 3 * (2 * 4) * a_token


def test_flops_are_of_the_nominal_batch_and_padded_rows() -> None:
    config = resolve(TrainConfig(data=TaskOptions(task="helper"), model=ModelOptions(family="rnn")))
    twice = replace(config, optimiser=replace(config.optimiser, batch_size=64))
    assert step_flops(twice) == 2 * step_flops(config)
    assert row_length(config, "train") == row_length(config, "aux") == 100  # the auxiliary rows are the longer ones
    assert row_length(config, "ind") == 51
    assert evaluation_flops(config, 10) == 2 * evaluation_flops(config, 5)
