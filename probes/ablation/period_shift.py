"""Are clusters by PID modulo m a cause of the answers? The periodic part of the states is shifted, and removed.

The paper shows that states cluster by PID modulo 10 and concludes that a counter subtracts them. Here the periodic part
of the states at a site is estimated and shifted by k residues (k tenths of a turn of every wave in it):

    own       at the token that answers: its answer should move by k
    others    at every other token: the answer should move back by k, since the beginning seems to come later
    all       at every token: the answer should stay, since only differences matter
    removed   at the token that answers: its answer should be lost

States are modelled as a sum of four parts, fitted together on rows at every shift: drift over the PID, a part that
repeats with the PID (`pid`), and the same two for the distance from the beginning, whose residue is the answer
(`answer`). Without drift in the model, a straight line would look periodic (its mean over PIDs 3, 13, 23, ... grows
with the residue), and shifting it would move the answers of a counter without any residues. The control is the part
that repeats with another period, scaled to the same length: an equally large move of something positional. Places are
chosen on half of the rows and reported on the other half.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.counter import Counter
from models.transformer import Transformer
from probes.ablation.outcomes import CausalTest, Outcome, grade_outcome
from probes.reading.mod_pca import paper_claims_clusters
from probes.result import SHARE, Headline, NotApplicable, Verdict, task_of_counter
from probes.sites import Site
from probes.stats import share_interval
from training.evaluate import evaluating
from training.tasks import Task

ROWS = 48  # for each of the columns
COLUMNS = (0.4, 0.7, 1.0)  # the tokens that answer, as shares of the row
LEAST_RIGHT = 0.3  # share of right answers that a counter needs for this probe
MOSTLY_RIGHT = 0.9  # share of right answers below which the verdict says how many it is about
OTHER_PERIODS = (7, 9, 11, 13)  # for the control: the first of these that is coprime to the task's period
CODES = ("pid", "answer")
LABELS = {
    "yes": "Clusters by PID are a cause",
    "in part": "Clusters by PID are a cause in part",
    "no": "Clusters by PID are no cause",
}


@dataclass(frozen=True)
class _Kind:
    """A kind of intervention, and what the paper's explanation predicts."""

    done: str
    predicted: str
    steps: int  # by which the answer should move, in units of the shift


KINDS = {
    "own": _Kind("own part shifted", "move with it", 1),
    "removed": _Kind("own part removed", "stay right", 0),
    "others": _Kind("others' part shifted", "move back", -1),
    "all": _Kind("all parts shifted", "stay", 0),
}

ResidueTable = Float[Tensor, "_ *site"]  # the periodic part at each residue
StateChange = Float[Tensor, "row pos *site"]


@dataclass(frozen=True)
class Shifted(Outcome):
    """The outcome of one intervention on one periodic part of the states at one site."""

    kind: str = "own"  # own, others, all or removed
    code: str = "pid"  # or answer
    variance: float = 0.0  # share of the site's variance that this part explains
    chosen_by: float = 0.0  # share minus the control's, on the rows on which places are chosen


@dataclass(frozen=True)
class PeriodShift(CausalTest):
    """How answers change when the periodic part of the states is shifted or removed."""

    task: str
    period: int
    right: float  # share of answers that are right without an intervention; only those are judged
    outcomes: tuple[Shifted, ...]
    claim: bool | None  # whether the paper sees clusters in such a counter; None if it says nothing

    def best(self, kind: str, code: str = "pid") -> Shifted:
        """The outcome of this kind at the place that was best on the rows for choosing."""
        outcomes = (outcome for outcome in self.outcomes if (outcome.kind, outcome.code) == (kind, code))
        return max(outcomes, key=lambda outcome: outcome.chosen_by)

    @property
    def headline(self) -> Headline:
        own = self.best("own")
        measure = "answers that move with the shifted PID part (share)"
        return Headline.of(LABELS[grade_outcome(own)], measure, own.share, SHARE)

    @property
    def verdict(self) -> Verdict:
        own, others, answer = self.best("own"), self.best("others"), self.best("own", "answer")
        everywhere, removed = self._at(others.place, "all"), self._at(own.place, "removed")
        sentence = (
            f"{LABELS[grade_outcome(own)]}: with the period-{self.period} part of its own PID shifted at "
            f"{own.place}, {own.text} of answers move with it; with that of all other tokens at {others.place}, "
            f"{others.text} move back; with all alike {everywhere.share.value:.0%} stay. Without it at "
            f"{own.place} {removed.text} stay right. The part that follows the answer moves {answer.text} at "
            f"{answer.place}."
        )
        if self.right < MOSTLY_RIGHT:
            sentence += f" This is about the {self.right:.0%} of answers that are right with nothing moved."
        agrees = None if self.claim is None else (grade_outcome(own) != "no") == self.claim
        return Verdict(sentence, "as many answers that follow an equal shift of another period", agrees)

    def _at(self, place: str, kind: str) -> Shifted:
        """The outcome of this kind for the PID's part at one place."""
        key = (place, kind, "pid")
        return next(outcome for outcome in self.outcomes if (outcome.place, outcome.kind, outcome.code) == key)


def period_shift(counter: Counter, rows: int = ROWS, seed: int = 0) -> PeriodShift:
    """How answers change when the periodic part is shifted or removed, at every site of a modular attention counter."""
    task, _ = task_of_counter(counter)
    if task.period is None:
        raise NotApplicable(f"{task.name} is not modular counting: no period is expected of its states")
    if not isinstance(counter, Transformer):
        raise NotApplicable(f"{type(counter).__name__} has no position ids by which states could cluster")
    n_pos = task.longest_row
    n_shifts = counter.cfg.max_position - n_pos + 1
    if n_shifts < task.period:
        raise NotApplicable(f"rows of {n_pos} tokens have {n_shifts} shifts: a period of {task.period} needs as many")
    with evaluating(counter):
        sites = _sites(counter)
        parts = _periodic_parts(counter, task, sites, n_shifts)
        generator = torch.Generator().manual_seed(seed)
        trials = [_Trial(counter, task, int(share * n_pos) - 1, rows, n_shifts, sites, generator) for share in COLUMNS]
        right = torch.cat([trial.right for trial in trials])
        if right.double().mean() < LEAST_RIGHT:
            raise NotApplicable(f"it answers {right.double().mean():.0%} right: there is little that could move")
        outcomes = _outcomes(trials, sites, parts, right)
    return PeriodShift(
        task.name, task.period, float(right.double().mean()), outcomes, paper_claims_clusters(counter, task)
    )


def _sites(counter: Transformer) -> list[Site]:
    """The sites at which the periodic part is edited."""
    layers = range(counter.cfg.n_layers)
    inside = [Site(kind, layer) for layer in layers for kind in ("resid_pre", "q", "resid_mid", "mlp_post")]
    return [*inside, Site("resid_post", counter.cfg.n_layers - 1)]


@dataclass(frozen=True)
class _Part:
    """One periodic part of the states at a site, and that of the control's period."""

    table: ResidueTable
    other: ResidueTable  # with the control's period
    variance: float  # share of the site's variance


@dataclass(frozen=True)
class _Move:
    """An intervention on a periodic part of the states."""

    kind: str  # key of KINDS
    code: str
    part: _Part
    is_control: bool


def _periodic_parts(
    counter: Transformer, task: Task, sites: Sequence[Site], n_shifts: int
) -> dict[tuple[Site, str], _Part]:
    """The periodic parts by site and code, fitted on rows of equal tokens at every shift, from the second round on."""
    assert task.period is not None
    token_ids = _row(task).expand(n_shifts, -1)
    pids = torch.arange(n_shifts)[:, None] + torch.arange(token_ids.shape[1])
    names = [site.hook for site in sites]
    _, cache = counter.run_with_cache(
        token_ids.to(counter.device), pids.to(counter.device), names_filter=lambda name: name in names
    )
    late = slice(min(task.period + task.prefix, token_ids.shape[1] // 2), None)
    own, distance = (x[:, late].numpy().ravel() for x in (pids, pids - pids[:, :1]))
    other = next(period for period in OTHER_PERIODS if math.gcd(period, task.period) == 1)
    true, false = (np.linalg.pinv(_design(own, distance, period)) for period in (task.period, other))
    parts = {}
    for site in sites:
        states = cache[site.hook][:, late].cpu().double()
        flat = states.flatten(0, 1).flatten(1).numpy()
        total = flat.var(0).sum()
        tables = [_tables(solver @ flat, period) for solver, period in ((true, task.period), (false, other))]
        for code, table, wrong in zip(CODES, *tables, strict=True):
            variance = float((table**2).sum(1).mean() / total) if total > 0 else 0.0
            shaped = [torch.tensor(x).float().reshape(len(x), *states.shape[2:]) for x in (table, wrong)]
            parts[site, code] = _Part(shaped[0], shaped[1], variance)
    return parts


def _design(
    own: Int[np.ndarray, "token"], distance: Int[np.ndarray, "token"], period: int
) -> Float[np.ndarray, "token column"]:
    """The columns of the regression: residues of PID and distance, then drifts (slow waves and a straight line)."""
    blocks, drifts = [], []
    for place in (own, distance):
        blocks.append((place[:, None] % period == np.arange(period)).astype(float))
        middle = (place - place.min() + 0.5) / (np.ptp(place) + 1)
        waves = np.arange(1, 2 * (np.ptp(place) + 1) // (4 * period) + 1)
        drifts += [np.cos(np.pi * np.outer(middle, waves)), middle[:, None] - 0.5]
    return np.hstack([*blocks, *drifts])


def _tables(coefficients: Float[np.ndarray, "column d"], period: int) -> list[Float[np.ndarray, "residue d"]]:
    """The periodic parts of PID and of distance, with mean 0."""
    return [part - part.mean(0) for part in (coefficients[:period], coefficients[period : 2 * period])]


def _row(task: Task) -> Int[Tensor, "1 pos"]:
    """The longest row of equal tokens."""
    return torch.tensor([task.vocab.encode([*task.prefix_tokens, *[task.kinds[0]] * (task.longest_row - task.prefix)])])


class _Trial:
    """Rows at random shifts that end with the token that answers, and the cache of their unedited run."""

    def __init__(
        self,
        counter: Transformer,
        task: Task,
        column: int,
        rows: int,
        n_shifts: int,
        sites: Sequence[Site],
        generator: torch.Generator,
    ) -> None:
        assert task.period is not None
        self.counter, self.task, self.column = counter, task, column
        self.token_ids = _row(task)[:, : column + 1].expand(rows, -1).to(counter.device)
        shifts = torch.randint(n_shifts, (rows, 1), generator=generator)
        self.distances = torch.arange(column + 1).expand(rows, -1)
        self.pids = shifts + self.distances
        self.steps = torch.randint(1, task.period, (rows, 1), generator=generator)
        names = {name for layer in range(counter.cfg.n_layers) for name in counter.qkv_hooks(layer)[1:]}
        names |= {Site("resid_pre", layer).hook for layer in range(counter.cfg.n_layers)}
        logits, self.cache = counter.run_with_cache(
            self.token_ids, self.pids.to(counter.device), names_filter=lambda name: name in names
        )
        self.right = self._answered(logits, 0)

    def hits(self, site: Site, moves: Sequence[_Move]) -> Bool[Tensor, "move row"]:
        """Whether the answer of each row is as predicted, for each move."""
        if moves[0].kind in ("others", "all"):
            return torch.stack([self._answered(self._rerun(site, move), KINDS[move.kind].steps) for move in moves])
        # Other tokens do not change: only the last one is run again, in one copy of the rows per move.
        edits = torch.cat([self._edit(move, slice(-1, None)) for move in moves]).to(self.counter.device)
        layer = site.layer or 0
        resid = self.cache[Site("resid_pre", layer).hook][:, -1:].repeat(len(moves), 1, 1)
        with self.counter.hooks(fwd_hooks=[(site.hook, _add(edits))]):
            logits = self.counter.run_from(layer, self.column, resid, self.pids.to(self.counter.device), self.cache)
        copies = zip(logits.unflatten(0, (len(moves), -1)), moves, strict=True)
        return torch.stack([self._answered(copy, KINDS[move.kind].steps) for copy, move in copies])

    def _rerun(self, site: Site, move: _Move) -> Float[Tensor, "row pos d_vocab"]:
        """The logits of a whole run with a move."""
        edit = self._edit(move, slice(None))
        if move.kind == "others":
            edit[:, -1] = 0
        hooks = [(site.hook, _add(edit.to(self.counter.device)))]
        return self.counter.run_with_hooks(self.token_ids, self.pids.to(self.counter.device), fwd_hooks=hooks)

    def _edit(self, move: _Move, columns: slice) -> StateChange:
        """What a move adds to the states of each token; the control's is scaled to the length of the true one."""
        places = (self.pids if move.code == "pid" else self.distances)[:, columns]

        def change(part: ResidueTable) -> StateChange:
            here = part[places % len(part)]
            return -here if move.kind == "removed" else part[(places + self.steps) % len(part)] - here

        true = change(move.part.table)
        if not move.is_control:
            return true
        edit = change(move.part.other)
        length, true_length = (_length(x) for x in (edit, true))
        return edit * torch.where(length > 0, true_length / length, 0)

    def _answered(self, logits: Float[Tensor, "row pos d_vocab"], steps: int) -> Bool[Tensor, "row"]:
        """Whether the last token's answer is the one that is right `steps` shifts later."""
        expected = self.task.answer_ids(self.column - self.task.prefix + steps * self.steps[:, 0])
        return logits[:, -1].argmax(-1).cpu() == expected


def _length(edit: StateChange) -> Float[Tensor, "row pos *ones"]:
    """The norm of the edit at each token."""
    return edit.flatten(2).norm(dim=-1).reshape(*edit.shape[:2], *[1] * (edit.ndim - 2))


def _add(edit: StateChange) -> Callable[..., Tensor]:
    """A hook that adds the edit."""
    return lambda value, hook: value + edit.to(value.dtype)


def _outcomes(
    trials: Sequence[_Trial],
    sites: Sequence[Site],
    parts: dict[tuple[Site, str], _Part],
    right: Bool[Tensor, "row"],
) -> tuple[Shifted, ...]:
    """The outcome of every intervention at every site, with its control."""
    reported = right & (torch.arange(len(right)) % 2 == 0)
    choosing = right & ~reported
    outcomes = []
    for site in sites:
        at_own_token = [(kind, code) for kind in ("own", "removed") for code in CODES]
        groups = [at_own_token, [("others", "pid"), ("all", "pid")]] if site == Site("resid_pre", 0) else [at_own_token]
        for group in groups:
            moves = [_Move(kind, code, parts[site, code], wrong) for kind, code in group for wrong in (False, True)]
            all_hits = torch.cat([trial.hits(site, moves) for trial in trials], 1)
            for move, hits, control in zip(moves[::2], all_hits[::2], all_hits[1::2], strict=True):
                chosen_by = float(hits[choosing].double().mean() - control[choosing].double().mean())
                shares = (share_interval(hits[reported]), share_interval(control[reported]))
                words = (KINDS[move.kind].done, site.label, KINDS[move.kind].predicted)
                outcomes.append(Shifted(*words, *shares, move.kind, move.code, move.part.variance, chosen_by))
    return tuple(outcomes)
