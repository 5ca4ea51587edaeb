"""How well a counter counts: accuracy by position and by shift, and which wrong answers it gives.

Accuracy at each position has Wilson's interval; totals are bootstrapped over rows. Accuracy by shift is measured on the
same rows at every offset of their position ids, so that only the offset differs.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int, Shaped
from sklearn.metrics import confusion_matrix
from torch import Tensor

from models.counter import Counter
from probes.inputs.rows import constant_share, draw_rows
from probes.result import PERCENT, Headline, Result, Verdict, task_of_counter
from probes.stats import RESAMPLES, Interval, bootstrap_mean, wilson
from training.batches import Batch
from training.evaluate import predict
from training.paper.tables import paper_numbers_of
from training.policies import count_offsets
from training.tasks import MAIN_SPLITS, Split, Task

GOOD = 95.0  # percent from which on a split counts as mastered
BROKEN = 90.0  # percent below which a position counts as broken
SHIFT_ROWS = 6  # rows that are put at every shift
MAX_SHIFTS = 16  # evenly spaced
MAX_SHIFTS_OF_EQUAL_ROWS = 48  # more for tasks whose rows repeat: there are few different ones, so each shift is cheap
SIGNIFICANT = 0.01


@dataclass(frozen=True)
class PercentAt:
    """Percent right at each position or shift; NaN if nothing is scored there."""

    at: Int[np.ndarray, "at"]  # positions in the row from 1 on, or shifts from 0 on
    percent: Float[np.ndarray, "at"]
    low: Float[np.ndarray, "at"]  # 95 % interval
    high: Float[np.ndarray, "at"]
    scored: Int[np.ndarray, "at"]  # number of scored tokens


@dataclass(frozen=True)
class Behaviour(Result):
    """How well a counter counts, from which position on it fails, and its wrong answers. Dicts are by split."""

    task: str
    trained_up_to: int  # the last position in the row that training scores
    total: dict[str, Interval]  # percent of scored tokens that are right
    constant: dict[str, float]  # percent that the best constant answer would get
    by_position: dict[str, PercentAt]
    answers: tuple[str, ...]  # tokens that occur as a label or as an answer
    confusion: dict[str, Int[np.ndarray, "right answer"]]  # how often each answer is given, by right answer
    by_shift: dict[str, PercentAt]  # ind and ood; empty if rows have no shift
    shift_p: dict[str, float]  # p-value of the differences between shifts; NaN with a single row
    why_no_shift: str | None
    paper: tuple[float, float] | None  # the paper's best seed, IND and OOD

    @property
    def agrees(self) -> bool | None:
        """Whether IND and OOD both succeed or fail (at 95 %) as in the paper; None if it has no such counter."""
        if self.paper is None:
            return None
        ours = (self.total["ind"].value, self.total["ood"].value)
        return all((our >= GOOD) == (their >= GOOD) for our, their in zip(ours, self.paper, strict=True))

    @property
    def breaks_at(self) -> int | None:
        """The first position at which accuracy is surely below 90 %, IND or OOD; None if there is none."""
        ind, ood = self.by_position["ind"], self.by_position["ood"]
        broken = [*ind.at[ind.high < BROKEN], *ood.at[ood.high < BROKEN]]
        return int(min(broken)) if broken else None

    def depends_on_shift(self, split: str) -> bool:
        """Whether accuracy differs between shifts: significantly, or at all if there is only one row."""
        p, percent = self.shift_p[split], self.by_shift[split].percent
        return bool(np.ptp(percent) > 0) if np.isnan(p) else p < SIGNIFICANT

    @property
    def headline(self) -> Headline:
        return Headline.of(
            self.verdict.sentence.partition(":")[0].lower(), "OOD accuracy (%)", self.total["ood"], PERCENT
        )

    @property
    def verdict(self) -> Verdict:
        ind, ood = self.total["ind"], self.total["ood"]
        scores = f"IND {ind.value:.1f} %, OOD {ood.value:.1f} %"
        if ind.value < GOOD:
            sentence = f"Does not fit: {scores}; one and the same answer would give {self.constant['ind']:.1f} % IND"
        elif ood.value >= GOOD:
            sentence = f"Fits and extrapolates: {scores}"
        elif ood.low > max(self.constant["ood"], 100 - GOOD):
            sentence = f"Fits and extrapolates in part: {scores}"
        else:
            sentence = f"Fits but does not extrapolate: {scores}"
        if self.breaks_at is None:
            sentence += "; no position is surely below 90 %"
        else:
            sentence += f"; below 90 % first at position {self.breaks_at} (trained up to {self.trained_up_to})"
        ranges = [
            f"{split.upper()} {shares.percent.min():.1f} to {shares.percent.max():.1f} %"
            for split, shares in self.by_shift.items()
            if self.depends_on_shift(split)
        ]
        if ranges and ind.low > self.constant["ind"]:  # otherwise there is no skill that a shift could disturb
            sentence += f"; depends on the shift ({', '.join(ranges)})"
        change = (
            f"IND or OOD on the other side of {GOOD:g} %; another sample of rows would give "
            f"{ind.low:.1f} to {ind.high:.1f} IND and {ood.low:.1f} to {ood.high:.1f} OOD"
        )
        if self.paper is not None:
            sentence += f"; the paper has {self.paper[0]:g} and {self.paper[1]:g}"
        return Verdict(sentence + ".", change, self.agrees)

    def to_frame(self) -> pd.DataFrame:
        """Columns: measure (total, position, shift, confusion), split, at, answer, value, low, high, scored."""
        parts = [
            pd.DataFrame([{"measure": "total", "split": split, "value": x.value, "low": x.low, "high": x.high}])
            for split, x in self.total.items()
        ]
        for measure, splits in (("position", self.by_position), ("shift", self.by_shift)):
            for split, shares in splits.items():
                columns = {name: value for name, value in vars(shares).items() if name != "percent"}
                frame = pd.DataFrame({"measure": measure, "split": split, "value": shares.percent} | columns)
                parts.append(frame[frame.scored > 0])
        for split, counts in self.confusion.items():
            right, answer = counts.nonzero()
            names = np.array(self.answers, dtype=object)
            cells = {"at": names[right], "answer": names[answer], "value": counts[right, answer]}
            parts.append(pd.DataFrame({"measure": "confusion", "split": split} | cells))
        order = ["measure", "split", "at", "answer", "value", "low", "high", "scored"]
        return pd.concat(parts, ignore_index=True).reindex(columns=order)


def behaviour(counter: Counter, rows: int = 256, seed: int = 0) -> Behaviour:
    """Accuracy by position and by shift, and confused answers, on `rows` random rows of each split."""
    task, policy = task_of_counter(counter)
    total: dict[str, Interval] = {}
    constant: dict[str, float] = {}
    by_position: dict[str, PercentAt] = {}
    pairs: dict[str, Int[np.ndarray, "pair 3"]] = {}  # label, answer, weight
    for split in task.splits:
        batch = draw_rows(counter, task, policy, split, rows, seed)
        answers = predict(counter, batch)
        scored = task.scored(split, batch.label_ids)
        right = (answers == batch.label_ids) & scored
        n_right, n_scored = 100 * _array(right.sum(1))[None], _array(scored.sum(1))
        (total[split],) = bootstrap_mean(n_right, n_scored, _array(batch.weights), seed)
        constant[split] = constant_share(batch, scored)
        by_position[split] = _by_position(right, scored, batch.weights)
        if split in MAIN_SPLITS:
            weights = batch.weights[:, None].expand(scored.shape)
            columns = [batch.label_ids[scored], answers[scored], weights[scored].long()]
            pairs[split] = torch.stack(columns, 1).cpu().numpy()
    names, confusion = _confusion(task, pairs)
    why_no_shift = _why_no_shift(counter, policy)
    by_shift: dict[str, PercentAt] = {}
    shift_p: dict[str, float] = {}
    for split in () if why_no_shift else MAIN_SPLITS:
        by_shift[split], shift_p[split] = _by_shift(counter, task, policy, split, seed)
    return Behaviour(
        task=task.name,
        trained_up_to=task.prefix + task.train_length,
        total=total,
        constant=constant,
        by_position=by_position,
        answers=names,
        confusion=confusion,
        by_shift=by_shift,
        shift_p=shift_p,
        why_no_shift=why_no_shift,
        paper=_paper(counter),
    )


def _paper(counter: Counter) -> tuple[float, float] | None:
    """IND and OOD of the paper's best seed of such a counter; None if it has none."""
    numbers = None if counter.info is None else paper_numbers_of(counter.info)
    return None if numbers is None or numbers.best is None else (numbers.best.ind, numbers.best.ood)


def _array(tensor: Shaped[Tensor, "*at"]) -> Float[np.ndarray, "*at"]:
    return tensor.double().cpu().numpy()


def _by_position(right: Tensor, scored: Tensor, weights: Tensor) -> PercentAt:
    """Percent right at each position of the row, with Wilson's interval."""
    n_right, n_scored = (_array((which * weights[:, None]).sum(0)) for which in (right, scored))
    share = np.divide(n_right, n_scored, out=np.full_like(n_right, np.nan), where=n_scored > 0)
    low, high = wilson(n_right, n_scored)
    return PercentAt(np.arange(1, len(share) + 1), 100 * share, 100 * low, 100 * high, n_scored.astype(int))


def _confusion(
    task: Task, pairs: dict[str, Int[np.ndarray, "pair 3"]]
) -> tuple[tuple[str, ...], dict[str, Int[np.ndarray, "right answer"]]]:
    """The tokens that occur as label or answer, and per split how often each was answered for each right one."""
    ids = np.unique(np.concatenate([of_split[:, :2] for of_split in pairs.values()]))
    counts = {
        split: confusion_matrix(labels, answers, labels=ids, sample_weight=weights)
        for split, (labels, answers, weights) in ((split, of_split.T) for split, of_split in pairs.items())
    }
    return tuple(task.vocab.decode(ids.tolist())), counts


def _why_no_shift(counter: Counter, policy: str) -> str | None:
    """The reason why accuracy by shift cannot be measured; None if it can."""
    if counter.ignores_positions:
        return "this counter does not see position ids: a shift changes nothing"
    if policy != "shifted":
        return f"its position ids are {policy}, so that rows have no shift"
    return None


def _by_shift(counter: Counter, task: Task, policy: str, split: Split, seed: int) -> tuple[PercentAt, float]:
    """Accuracy of the same rows at evenly spaced shifts, and the p-value of the differences between shifts.

    At each of these shifts the longest row still fits.
    """
    batch = draw_rows(counter, task, policy, split, SHIFT_ROWS, seed, ignore_positions=True)
    n_rows, n_pos = batch.token_ids.shape
    room = int(count_offsets(batch.attention_mask.sum(1), counter.cfg.max_position).min()) - 1
    most = MAX_SHIFTS_OF_EQUAL_ROWS if task.rows_repeat else MAX_SHIFTS
    shifts = np.unique(np.linspace(0, room, min(most, room + 1)).round().astype(int))
    offsets = torch.as_tensor(shifts, device=counter.device).repeat_interleave(n_rows)
    position_ids = offsets[:, None] + torch.arange(n_pos, device=counter.device)
    everywhere = Batch(
        batch.token_ids.repeat(len(shifts), 1),
        position_ids.clamp(max=counter.cfg.max_position - 1),  # reached by padding only
        batch.label_ids.repeat(len(shifts), 1),
        batch.attention_mask.repeat(len(shifts), 1),
        batch.weights.repeat(len(shifts)),
    )
    scored = task.scored(split, batch.label_ids)
    right = (predict(counter, everywhere) == everywhere.label_ids).view(len(shifts), n_rows, n_pos) & scored
    counts, weights = _array(scored.sum(1)), _array(batch.weights)
    sums = _array(right.sum(2))
    means = bootstrap_mean(100 * sums, counts, weights, seed)
    n_scored = np.full(len(shifts), int(counts @ weights))
    return PercentAt(shifts, means.value, means.low, means.high, n_scored), _shift_p(sums, weights, seed)


def _shift_p(right: Float[np.ndarray, "shift row"], weights: Float[np.ndarray, "row"], seed: int) -> float:
    """The p-value of differences between shifts, from permuting each row's results over the shifts."""
    if len(weights) < 2:
        return float("nan")
    permuted = np.random.default_rng(seed).permuted(np.broadcast_to(right, (RESAMPLES, *right.shape)), axis=1)
    spread, chance = (right @ weights).var(), (permuted @ weights).var(1)
    return float((1 + (chance >= spread - 1e-9).sum()) / (1 + RESAMPLES))
