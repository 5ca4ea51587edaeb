"""S4 counters whose weights are set by formula, so that it is known which modes of the recurrence carry the count.

    clock    undamped modes that turn once in a round, one per answer; beside them lasting modes that nothing reads
    slow     real modes that decay slowly, whose sum rises on a curve that is read by a threshold per count
    decoy    the same as `slow`, beside undamped clocks that nothing reads
    shared   clocks tell the count of even answers, slow modes that of odd ones: neither is enough alone

All have one layer and ignore which token they read: the norm gives 1 for every token. A mode whose eigenvalue is l is
then x(k) = 1 + l + ... + l^(k-1) after k tokens. Channel c reads y(k) = 2 Re(C x(k)) + D, GELU of it is 0 or y because
y is large, and the block's linear layer adds up the answers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from models.config import S4Config
from models.errors import CountLensError, unknown
from models.families import build_counter
from models.s4 import S4, S4Block, S4Mixer
from models.s4_kernel import StateSpace, discretise, truncate
from probes.mechanism.handbuilt import handbuilt_info
from training.tasks import Task

UNDAMPED = 1e-6  # 1 - |eigenvalue| of a clock
SLOW = (0.99, 0.97, 0.95)  # eigenvalues whose modes last 99, 33 and 19 tokens
FAST = (0.5, 0.8)  # absolute values of eigenvalues whose modes last 1 and 4 tokens
OTHER_PERIODS = (7.3, 23.0)  # of lasting modes that turn, but not a whole number of times in a round
STEEP = 8.0  # inputs of GELU at whole counts are 0, or beyond this
OPEN = 20.0  # input of a gate that lets everything through

Pairs = Complex[Tensor, "channel pair"]
IdlePairs = Complex[Tensor, "channel idle"]


@dataclass(frozen=True)
class Recurrence:
    """Modes of every channel, how each channel reads them, and what the channels add to each answer."""

    eigenvalues: Pairs
    readout: Pairs  # C; 0 for a mode that nothing reads
    skip: Float[Tensor, "channel"]  # D
    answers: Float[Tensor, "channel answer"]


def handbuilt_modes(mechanism: str, task: Task) -> S4:
    """An S4 counter of a modular task with this mechanism; its `info` says so."""
    if mechanism not in MECHANISMS:
        raise unknown("mechanism", mechanism, MECHANISMS)
    if task.period is None or task.prefix:
        raise CountLensError(
            f"{task.name}{' with bos' if task.bos else ''}: hand-built modes are of modular counting without bos"
        )
    recurrence = MECHANISMS[mechanism](task)
    channels, pairs = recurrence.eigenvalues.shape
    counter = build_counter(S4Config(task.vocab.size, d_model=channels, n_layers=1, d_state=2 * pairs))
    assert isinstance(counter, S4)
    with torch.no_grad():
        _set_weights(counter, recurrence, task)
    counter.info = handbuilt_info(counter, task, "contiguous", mechanism, mechanism)
    return counter.eval()


def _set_weights(counter: S4, recurrence: Recurrence, task: Task) -> None:
    block = counter.blocks[0]
    assert isinstance(block, S4Block)
    for parameter in counter.parameters():
        parameter.zero_()
    block.ln.bias.fill_(1.0)
    mixer, eigenvalues = block.mixer, recurrence.eigenvalues
    assert isinstance(mixer, S4Mixer)
    diagonal = 2 * (eigenvalues - 1) / (eigenvalues + 1)  # the bilinear rule makes `eigenvalues` of it
    into = 1 - diagonal / 2  # ... and 1 of this
    mixer.log_decay.copy_(torch.log(-diagonal.real))
    mixer.frequency.copy_(diagonal.imag)
    mixer.B.copy_(torch.view_as_real(into))
    step = discretise(StateSpace(diagonal, torch.zeros_like(diagonal), into))
    mixer.C.copy_(torch.view_as_real(truncate(step, recurrence.readout, counter.cfg.kernel_length)))
    mixer.D.copy_(recurrence.skip)
    n_answers = recurrence.answers.shape[1]
    block.output.weight[:n_answers] = recurrence.answers.T.float()
    block.output.bias[counter.cfg.d_model :] = OPEN
    counter.unembed.W_U[torch.arange(n_answers), task.answer_ids(torch.arange(n_answers))] = 1.0


def _turning(period: float) -> complex:
    angle = 2 * math.pi / period
    return (1 - UNDAMPED) * complex(math.cos(angle), math.sin(angle))


def _idle(n_channels: int, extra: Sequence[complex] = ()) -> IdlePairs:
    """Modes that nothing reads: fast ones, real and turning, and these."""
    modes = [complex(FAST[0]), FAST[1] * _turning(OTHER_PERIODS[0]), *extra]
    return torch.tensor(modes, dtype=torch.complex128).expand(n_channels, -1)


def _join(read: Pairs, readout: Pairs, idle: IdlePairs, skip: Tensor, answers: Tensor) -> Recurrence:
    return Recurrence(
        torch.cat([read, idle], 1), torch.cat([readout, torch.zeros_like(idle)], 1), skip, answers.to(skip)
    )


def _clock(task: Task) -> Recurrence:
    """Channel c is on where the hand of a clock is within half a step of c."""
    assert task.period is not None
    period, mode = task.period, _turning(float(task.period))
    offset = torch.arange(1, period + 1, dtype=torch.float64) * 2 * math.pi / period
    threshold = (1 + math.cos(2 * math.pi / period)) / 2
    steep = STEEP / (1 - threshold)
    # cos(angle of l^k - offset) = Re(l^k turned back), and l^k = 1 - (1 - l) x(k).
    back = torch.polar(torch.ones_like(offset), -offset)
    readout = (-steep / 2 * back * (1 - mode))[:, None]
    read = torch.full_like(readout, mode)
    idle = _idle(period, [complex(SLOW[0]), complex(SLOW[1]), *map(_turning, OTHER_PERIODS)])
    return _join(read, readout, idle, steep * (offset.cos() - threshold), torch.eye(period))


def _slow(task: Task, clocks: Sequence[complex] = ()) -> Recurrence:
    """Channel t is on beyond t counts; the answers are linear between two counts, with a bend at each."""
    assert task.period is not None
    n_counts, period = task.train_length, task.period
    modes = torch.tensor(SLOW, dtype=torch.float64)
    counts = torch.arange(1, n_counts + 1, dtype=torch.float64)[:, None]
    sums = ((1 - modes**counts) / (1 - modes)).sum(1)
    gaps = sums.diff()
    steep = STEEP / float(gaps.min())
    one_hot = torch.nn.functional.one_hot(torch.arange(n_counts) % period, period).double()
    nothing, first = torch.zeros(1, period).double(), one_hot[:1] / STEEP
    slopes = (one_hot[1:] - one_hot[:-1]) / (steep * gaps[:, None])
    answers = torch.cat([torch.cat([nothing, slopes]).diff(dim=0), first])
    # The last channel is always on and gives the answer of the first count, from which the slopes start.
    readout = torch.full((n_counts, len(SLOW)), steep / 2, dtype=torch.complex128)
    readout[-1] = 0
    skip = torch.cat([-steep * sums[:-1], torch.tensor([STEEP]).double()])
    read = modes.to(torch.complex128).expand(n_counts, -1)
    return _join(read, readout, _idle(n_counts, clocks), skip, answers)


def _decoy(task: Task) -> Recurrence:
    """`slow`, and in every channel a clock that nothing reads."""
    assert task.period is not None
    return _slow(task, [_turning(float(task.period))])


def _shared(task: Task) -> Recurrence:
    """Both in one state: of `slow` the channels of odd answers, of `clock` those of even ones."""
    slow, clock = _slow(task), _clock(task)
    n_pairs = max(slow.eigenvalues.shape[1], clock.eigenvalues.shape[1])
    parts = [_widen(recurrence, n_pairs) for recurrence in (slow, clock)]
    even = torch.arange(parts[0].answers.shape[1]) % 2 == 0
    answers = torch.cat([parts[0].answers * ~even, parts[1].answers / STEEP * even])
    eigenvalues, readout = torch.cat([part.eigenvalues for part in parts]), torch.cat([part.readout for part in parts])
    return Recurrence(eigenvalues, readout, torch.cat([part.skip for part in parts]), answers)


def _widen(recurrence: Recurrence, n_pairs: int) -> Recurrence:
    """The same recurrence with more modes that nothing reads."""
    shape = len(recurrence.skip), n_pairs - recurrence.eigenvalues.shape[1]
    idle = torch.full(shape, complex(FAST[0]), dtype=torch.complex128)
    return _join(recurrence.eigenvalues, recurrence.readout, idle, recurrence.skip, recurrence.answers)


MECHANISMS: dict[str, Callable[[Task], Recurrence]] = {
    "clock": _clock,
    "slow": _slow,
    "decoy": _decoy,
    "shared": _shared,
}
