"""Things that remember in a known way: planted truths, planted falsehoods and noise for claims about memories."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from probes.mechanism.memory import Part
from training.tasks import Task
from training.tasks.base import running_count


class CountingMemory:
    """Remembers how many tokens there were, as a vector of its own choice; of which count a vector is, is `read`."""

    def __init__(self, task: Task, d: int) -> None:
        self.task = task
        self.parts = (Part(0, "state", 0, d),)

    def vector(self, count: int) -> Tensor:
        raise NotImplementedError

    def after(self, token_ids: Tensor) -> Tensor:
        row = torch.stack([self.vector(count) for count in range(1, token_ids.shape[1] + 1)])
        return row.expand(len(token_ids), -1, -1).clone()

    def advance(self, vectors: Tensor) -> Tensor:
        raise NotImplementedError

    def read(self, vectors: Tensor) -> Tensor:
        """The answer, as a number of earlier tokens."""
        raise NotImplementedError

    def go_on(self, vectors: Tensor, token_ids: Tensor) -> Tensor:
        answers = []
        for _ in range(token_ids.shape[1]):
            vectors = self.advance(vectors)
            answers.append(self.task.answer_ids(self.read(vectors)))
        return torch.stack(answers, 1)


class Waves(CountingMemory):
    """Points that go round with several periods, idle ones, and a drift; read from the phases of some of them.

    `read_phases` takes what the hands of the clocks with these periods say, and the number of tokens by the drift.
    """

    IDLE = (2.3, 3.7, 5.7, 23.0)

    def __init__(self, task: Task, periods: tuple[int, ...], read_phases: Callable[[list[Tensor], Tensor], Tensor]):
        super().__init__(task, 2 * (len(periods) + len(self.IDLE)) + 1)
        self.periods, self.read_phases = periods, read_phases
        turns = [2 * math.pi / period for period in (*periods, *self.IDLE)]
        blocks = [torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]) for a in turns]
        self.turn = torch.block_diag(*blocks, torch.ones(1, 1)).float()
        self.start = torch.tensor([1.0, 0.0] * len(periods) + [0.3, 0.0] * len(self.IDLE) + [0.0])
        self.drift = torch.tensor([0.0] * (len(self.start) - 1) + [0.25])

    def advance(self, vectors: Tensor) -> Tensor:
        return vectors @ self.turn + self.drift

    def vector(self, count: int) -> Tensor:
        vector = self.start
        for _ in range(count):
            vector = self.advance(vector)
        return vector

    def read(self, vectors: Tensor) -> Tensor:
        planes = vectors[:, : 2 * len(self.periods)].unflatten(1, (-1, 2)).unbind(1)
        phases = [
            (torch.atan2(plane[:, 1], plane[:, 0]) / (2 * math.pi) * period).round().long() % period
            for plane, period in zip(planes, self.periods, strict=True)
        ]
        return self.read_phases(phases, (vectors[:, -1] / 0.25).round().long()) - 1


class Turning(Waves):
    """A point that goes round, a large drift, and small idle waves of other periods; read by its angle.

    As a decoy nothing reads the angle: the count is in the drift, and the ring is only there.
    """

    def __init__(self, task: Task, decoy: bool = False) -> None:
        super().__init__(task, (task.period,), lambda phases, tokens: tokens if decoy else phases[0] + task.period)


class Copies(CountingMemory):
    """The phase three times over, in a part of its own each; what two of the three say is read."""

    N, SIZE = 3, 8

    def __init__(self, task: Task) -> None:
        super().__init__(task, self.N * self.SIZE)
        self.parts = tuple(Part(layer, "state", layer * self.SIZE, (layer + 1) * self.SIZE) for layer in range(self.N))
        self.codes = torch.randn(self.N, task.period, self.SIZE, generator=torch.Generator().manual_seed(0))

    def vector(self, count: int) -> Tensor:
        return self.codes[:, count % self.task.period].flatten()

    def _phases(self, vectors: Tensor) -> Tensor:
        return torch.cdist(vectors.unflatten(1, (self.N, -1)).transpose(0, 1), self.codes).argmin(2)

    def advance(self, vectors: Tensor) -> Tensor:
        phases = (self._phases(vectors) + 1) % self.task.period
        return torch.cat([codes[phase] for codes, phase in zip(self.codes, phases, strict=True)], 1)

    def read(self, vectors: Tensor) -> Tensor:
        return self._phases(vectors).mode(0).values - 1 + self.task.period


class RandomTable(CountingMemory):
    """A random vector per count, and the nearest of them is what is remembered: no ring, no drift, no curve."""

    def __init__(self, task: Task, seed: int, d: int = 24) -> None:
        super().__init__(task, d)
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn(task.train_length + 12, d, generator=generator)

    def vector(self, count: int) -> Tensor:
        return self.table[count]

    def _counts(self, vectors: Tensor) -> Tensor:
        return torch.cdist(vectors, self.table).argmin(1)

    def advance(self, vectors: Tensor) -> Tensor:
        return self.table[(self._counts(vectors) + 1).clamp(max=len(self.table) - 1)]

    def read(self, vectors: Tensor) -> Tensor:
        return self._counts(vectors) - 1


class TurnedCodes(RandomTable):
    """A random code per count modulo m, in other directions after every token: no count has a place of its own."""

    def __init__(self, task: Task, seed: int = 0, d: int = 24) -> None:
        super().__init__(task, seed, d)
        generator = torch.Generator().manual_seed(seed)
        codes, turn = self.table[: task.period], torch.linalg.qr(torch.randn(d, d, generator=generator))[0]
        turned = [codes[count % task.period] @ turn.matrix_power(count) for count in range(len(self.table))]
        self.table = torch.stack(turned)


class KindCounts:
    """A direction per kind along which its count lies, and idle noise that depends on the last token."""

    def __init__(self, task: Task, seed: int = 0, d: int = 40) -> None:
        self.task = task
        self.parts = (Part(0, "state", 0, d),)
        generator = torch.Generator().manual_seed(seed)
        self.directions = torch.linalg.qr(torch.randn(d, d, generator=generator))[0][: len(task.kinds)]
        self.idle = 0.3 * torch.randn(task.vocab.size, d, generator=generator)
        self.idle -= self.idle @ self.directions.T @ self.directions

    def counts(self, token_ids: Tensor) -> Tensor:
        return torch.stack([running_count(token_ids, kind) for kind in self.task.vocab.encode(self.task.kinds)], 2)

    def after(self, token_ids: Tensor) -> Tensor:
        return self.counts(token_ids).float() @ self.directions + self.idle[token_ids]

    def go_on(self, vectors: Tensor, token_ids: Tensor) -> Tensor:
        kinds = self.task.vocab.encode(self.task.kinds)
        counts, answers = (vectors @ self.directions.T).round().long(), []
        for token in token_ids.unbind(1):
            place = torch.tensor([kinds.index(kind) for kind in token.tolist()])[:, None]
            answers.append(self.task.answer_ids(counts.gather(1, place)[:, 0]))
            counts = counts.scatter_add(1, place, torch.ones_like(place))
        return torch.stack(answers, 1)


class HashedCounts(KindCounts):
    """A random vector per set of counts: all counts are there, none has a direction of its own."""

    def __init__(self, task: Task, seed: int = 0, d: int = 40) -> None:
        super().__init__(task, seed, d)
        self.known: dict[tuple[int, ...], Tensor] = {}
        self.seed, self.d = seed, d

    def _vector(self, counts: tuple[int, ...]) -> Tensor:
        if counts not in self.known:
            generator = torch.Generator().manual_seed(hash((self.seed, counts)) % 2**31)
            self.known[counts] = torch.randn(self.d, generator=generator)
        return self.known[counts]

    def after(self, token_ids: Tensor) -> Tensor:
        rows = self.counts(token_ids)
        return torch.stack([torch.stack([self._vector(tuple(at)) for at in row]) for row in rows.tolist()])

    def go_on(self, vectors: Tensor, token_ids: Tensor) -> Tensor:
        nearest = torch.cdist(vectors, torch.stack(list(self.known.values()))).argmin(1)
        counts = torch.tensor(list(self.known))[nearest].float()
        return super().go_on(counts @ self.directions, token_ids)
