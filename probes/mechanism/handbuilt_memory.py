"""Recurrent counters whose weights are set by formula, so that what they remember is known exactly.

    ring    a saturated unit per count mod m, of which one is on; every token hands it to the next
    curve   a leaky sum, which rises on a smooth curve, read by a threshold per count
    table   a saturated unit per count, all different: neither ring nor curve

Each is an Elman RNN that also remembers what nothing reads: a drift and a small chaotic network. Every token counts.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from models.config import RNNConfig
from models.errors import CountLensError, unknown
from models.families import build_counter
from models.recurrent import Recurrent, RecurrentBlock
from models.rnn import CellMixer
from probes.mechanism.handbuilt import handbuilt_info
from training.tasks import Task

GAIN = 10.0  # tanh of it is 1 to eight digits
IDLE = 16  # chaotic units that nothing reads
CHAOS = 1.6  # gain of the chaotic network
LEAK, DRIVE = 0.985, 0.02  # of the leaky sum that is read
SLOW_LEAK, SLOW_DRIVE = 0.97, 0.03  # of the drift that is not
IDLE_SEED = 0


@dataclass(frozen=True)
class Layer:
    """Weights of an Elman layer: units = tanh(from_below below + from_before before + bias)."""

    from_below: Float[Tensor, "unit unit"]
    from_before: Float[Tensor, "unit unit"]
    bias: Float[Tensor, "unit"]

    @classmethod
    def empty(cls, size: int) -> "Layer":
        """A layer in which nothing happens."""
        return cls(torch.zeros(size, size), torch.zeros(size, size), torch.zeros(size))


def handbuilt_memory(mechanism: str, task: Task) -> Recurrent:
    """A modular counter with this mechanism; its `info` says so."""
    if mechanism not in MECHANISMS:
        raise unknown("mechanism", mechanism, MECHANISMS)
    if task.period is None or task.prefix:
        raise CountLensError(
            f"{task.name}{' with bos' if task.bos else ''}: hand-built memories are of modular counting without bos"
        )
    layers, head = MECHANISMS[mechanism](task)
    counter = build_counter(RNNConfig(task.vocab.size, d_model=len(head), n_layers=len(layers)))
    assert isinstance(counter, Recurrent)
    torch.nn.init.zeros_(counter.embed.W_E)
    counter.unembed.load_state_dict({"W_U": head})
    for block, layer in zip(counter.blocks, layers, strict=True):
        assert isinstance(block, RecurrentBlock)
        assert isinstance(block.mixer, CellMixer)
        block.mixer.cell.load_state_dict(
            {
                "weight_ih_l0": layer.from_below,
                "weight_hh_l0": layer.from_before,
                "bias_ih_l0": layer.bias,
                "bias_hh_l0": torch.zeros_like(layer.bias),
            }
        )
    counter.info = handbuilt_info(counter, task, "contiguous", mechanism, mechanism)
    return counter.eval()


def _idle(layer: Layer, start: int) -> None:
    """Adds what nothing reads, in the units from `start` on: a drift, then a chaotic network."""
    layer.from_before[start, start], layer.bias[start] = SLOW_LEAK, SLOW_DRIVE
    generator = torch.Generator().manual_seed(IDLE_SEED)
    chaotic = slice(start + 1, start + 1 + IDLE)
    layer.from_before[chaotic, chaotic] = CHAOS * torch.linalg.qr(torch.randn(IDLE, IDLE, generator=generator))[0]
    layer.bias[chaotic] = torch.randn(IDLE, generator=generator)


def _register(layer: Layer, size: int, goes_round: bool) -> None:
    """Units of which one is on (1, the others -1): the first after one token, and then the next at every token.

    The unit after them says that there was a token before; without one all units begin from `bias`.
    """
    first = torch.full((size,), -1.0)
    first[0] = 1.0
    for unit in range(size):
        if unit or goes_round:
            layer.from_before[unit, (unit - 1) % size] = GAIN
        layer.from_before[unit, size] = -GAIN * first[unit]
        layer.bias[unit] = GAIN * first[unit]
    if not goes_round:
        layer.from_before[0, size] = -2 * GAIN
    layer.bias[size] = GAIN


def _read(task: Task, n_units: int, size: int) -> Float[Tensor, "unit d_vocab"]:
    """The head: every unit of a register adds to its answer; the unit after them, always on, lowers what is none."""
    head, answers = torch.zeros(n_units, task.vocab.size), task.answer_ids(torch.arange(size))
    head[torch.arange(size), answers] = GAIN
    head[size] = -GAIN * size
    head[size, answers] = 0
    return head


def _ring(task: Task) -> tuple[list[Layer], Float[Tensor, "unit d_vocab"]]:
    assert task.period is not None
    layer = Layer.empty(task.period + 2 + IDLE)
    _register(layer, task.period, goes_round=True)
    _idle(layer, task.period + 1)
    return [layer], _read(task, len(layer.bias), task.period)


def _table(task: Task) -> tuple[list[Layer], Float[Tensor, "unit d_vocab"]]:
    size = task.train_length
    layer = Layer.empty(size + 2 + IDLE)
    _register(layer, size, goes_round=False)
    _idle(layer, size + 1)
    return [layer], _read(task, len(layer.bias), size)


def _curve(task: Task) -> tuple[list[Layer], Float[Tensor, "unit d_vocab"]]:
    """Layer 0 holds the leaky sum; layer 1 a unit per threshold between two counts, and a unit that is always on."""
    n_counts = task.train_length
    size = max(n_counts, 2 + IDLE)
    below, above = Layer.empty(size), Layer.empty(size)
    below.from_before[0, 0], below.bias[0] = LEAK, DRIVE
    _idle(below, 1)
    sums = [torch.zeros((), dtype=torch.float64)]
    for _ in range(n_counts):
        sums.append(torch.tanh(LEAK * sums[-1] + DRIVE))
    low, high = torch.stack(sums[1:-1]), torch.stack(sums[2:])
    steepness = 2 * GAIN / (high - low)
    between = torch.arange(n_counts - 1)
    above.from_below[between, 0] = steepness.float()
    above.bias[between] = (-steepness * (low + high) / 2).float()
    above.bias[n_counts - 1] = GAIN
    answers = torch.nn.functional.one_hot(task.answer_ids(torch.arange(n_counts)), task.vocab.size).float()
    head = torch.zeros(size, task.vocab.size)
    head[between] = GAIN * (answers[1:] - answers[:-1]) / 2
    head[n_counts - 1] = GAIN * (answers[0] + answers[-1]) / 2
    return [below, above], head


MECHANISMS: dict[str, Callable[[Task], tuple[list[Layer], Float[Tensor, "unit d_vocab"]]]] = {
    "ring": _ring,
    "curve": _curve,
    "table": _table,
}
