"""How much a trained counter needs its first token: bos, or the first counted token if there is no bos.

The first token is cut off, replaced or set to zero inside the counter (`ablation.edits`). The change in accuracy and in
the prediction at each position is measured on the same rows. (The tables of the paper's appendix C compare counters
that were *trained* with and without bos; `countlens tables` shows those.)

Without one of its counted tokens, any row is counted wrong. So the second token is edited in the same way as a control,
and the verdict is about the difference between the two edits, row by row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from models.counter import Counter
from models.errors import CountLensError
from models.families import family_of
from models.transformer import Transformer
from probes.ablation.edits import KINDS, Edit, edit_hooks, edits_of, split_batch
from probes.inputs.rows import draw_rows
from probes.result import Headline, Result, Verdict, task_of_counter
from probes.stats import Interval, Intervals, bounded_mean
from training.batches import Batch
from training.evaluate import predict
from training.tasks import BOS, MAIN_SPLITS, NOT_SCORED, Split, Task

CONTROLS = {
    "cut": "cut second",
    "state zero": "state zero second",
}  # the same edit of the second token
MATTERS = 1.0  # points: an edit matters if the whole interval of its change is below minus this


@dataclass(frozen=True)
class Effect:
    """The effect of one edit on accuracy."""

    kind: str  # key of KINDS
    layer: int | None  # None: every layer
    head: int | None  # None: every head
    ind: Interval  # change in accuracy, in percentage points
    ood: Interval

    @property
    def place(self) -> str:
        """The place as text: `everywhere`, `layer 1`, or `1.3` for head 3 of layer 1."""
        if self.layer is None:
            return "everywhere"
        return f"layer {self.layer}" if self.head is None else f"{self.layer}.{self.head}"

    @property
    def matters(self) -> bool:
        """Whether the edit surely lowers accuracy, IND or OOD."""
        return lowers(self.ind) or lowers(self.ood)

    @property
    def short(self) -> str:
        """Both changes as text, without their intervals."""
        return f"{self.ind.value:+.1f} IND, {self.ood.value:+.1f} OOD"


@dataclass(frozen=True)
class BosAblation(Result):
    """The effect of every edit on accuracy, and on the predictions at each position."""

    architecture: str
    task: str
    first: str  # the token that was edited
    clean_ind: float  # percent, without an edit
    clean_ood: float
    effects: tuple[Effect, ...]
    beyond_control: Effect  # the main edit's change minus its control's, at tokens after the second
    changed: Float[np.ndarray, "effect pos"]  # share of OOD rows with a changed prediction; NaN: no label
    rows_at: Int[np.ndarray, "pos"]  # OOD rows with a label at this position
    trained_up_to: int  # positions below this one occur in training
    rows: int
    seed: int

    def describe(self, effect: Effect) -> str:
        """An edit in words, with its place if the same edit is made in several places."""
        several = any(other.layer is not None for other in self.effects if other.kind == effect.kind)
        return KINDS[effect.kind].format(first=self.first) + (f", {effect.place}" if several else "")

    def effect(self, kind: str, layer: int | None = None, head: int | None = None) -> Effect:
        """The effect of one edit."""
        for effect in self.effects:
            if (effect.kind, effect.layer, effect.head) == (kind, layer, head):
                return effect
        kinds = ", ".join(dict.fromkeys(effect.kind for effect in self.effects))
        raise CountLensError(f"no edit {kind!r} at layer {layer}, head {head}: this counter has {kinds}")

    @property
    def heads_that_matter(self) -> tuple[Effect, ...]:
        """The heads in which a cut surely lowers accuracy, worst first."""
        heads = [effect for effect in self.effects if effect.kind == "cut" and effect.head is not None]
        return tuple(
            sorted((head for head in heads if head.matters), key=lambda head: min(head.ind.value, head.ood.value))
        )

    @property
    def headline(self) -> Headline:
        edit = self.effects[[effect.layer is None for effect in self.effects].index(True)]
        label = f"{self.first} {'matters' if edit.matters else 'does not matter'}"
        return Headline.of(label, f"change in OOD accuracy (points), {self.describe(edit)}", edit.ood)

    @property
    def verdict(self) -> Verdict:
        kinds = [effect.kind for effect in self.effects]
        main = "cut" if "cut" in kinds else "state zero"
        change, control, beyond = self.effect(main), self.effect(CONTROLS[main]), self.beyond_control
        done = {"cut": "attention to {} cut everywhere", "state zero": "the state after {} reset to 0"}[main]
        parts = [
            f"With {done.format(self.first)}, accuracy changes by {change.ind:+.1f} points IND from "
            f"{self.clean_ind:.1f} % and by {change.ood:+.1f} OOD from {self.clean_ood:.1f} %",
            f"with the same done to the second token, by {control.short}",
            f"at later tokens the difference is {beyond.ind:+.1f} IND and {beyond.ood:+.1f} OOD: {self._comparison()}",
        ]
        if "embedding next" in kinds:
            parts.append(f"with the next token in its place, by {self.effect('embedding next').short}")
        if any(effect.head is not None for effect in self.effects):
            parts.append(self._heads())
        return Verdict(
            "; ".join(parts) + ".",
            f"An edit counts if the whole 95 % interval of its change lies below {-MATTERS:.0f} point; if the first "
            "token were like any other, the same edit of the second would cost as much.",
            self._agrees(),
        )

    def _comparison(self) -> str:
        """Part of the verdict: whether the edit costs more than its control."""
        by_split = {"IND": self.beyond_control.ind, "OOD": self.beyond_control.ood}
        more = " and ".join(split for split, change in by_split.items() if lowers(change))
        less = " and ".join(split for split, change in by_split.items() if change.low > MATTERS)
        if more:
            return f"{self.first} costs more than its control ({more})" + (f", and less {less}" if less else "")
        if less:
            return f"the control costs more ({less}), so this does not show that {self.first} is special"
        return f"{self.first} does not surely cost more than its control"

    def _heads(self) -> str:
        """Part of the verdict: the three heads whose cuts cost most."""
        heads = self.heads_that_matter
        if not heads:
            return "no head matters alone"
        named = ", ".join(f"{head.place} ({head.short})" for head in heads[:3])
        return f"heads that matter alone: {named}" + (f" and {len(heads) - 3} more" if len(heads) > 3 else "")

    def _agrees(self) -> bool | None:
        """Whether nope and rope need bos in vanilla and modular counting, as the paper says; None for other counters.

        The test replaces bos by another token. A cut is no test: if all tokens are counted, any cut changes the count.
        """
        plain = self.task.startswith(("mod", "vanilla"))
        if not (plain and self.first == BOS and self.architecture in ("nope", "rope") and self.clean_ind > 90):
            return None
        return lowers(self.effect("embedding next").ind)

    def to_frame(self) -> pd.DataFrame:
        """One line per edit and split."""
        lines = [
            {
                **{"kind": effect.kind, "layer": effect.layer, "head": effect.head, "place": effect.place},
                **{"split": split, "clean": clean, "change": change.value, "low": change.low, "high": change.high},
            }
            for effect in (*self.effects, self.beyond_control)
            for split, clean, change in (
                ("ind", self.clean_ind, effect.ind),
                ("ood", self.clean_ood, effect.ood),
            )
        ]
        return pd.DataFrame(lines).astype({"layer": "Int64", "head": "Int64"})


def bos_ablation(counter: Counter, rows: int | None = None, seed: int = 0) -> BosAblation:
    """The effect of every edit of the first token, on `rows` rows of each split (64, or 32 for a wide counter).

    Without bos, the first token is itself counted, so cutting it always costs some accuracy; the control says how much.
    """
    if rows is None:
        rows = 64 if counter.cfg.d_model <= 128 else 32
    if rows < 2:
        raise CountLensError(f"rows={rows}: an interval needs at least 2")
    task, policy = task_of_counter(counter)
    batches = {split: draw_rows(counter, task, policy, split, rows, seed) for split in MAIN_SPLITS}
    edits = edits_of(counter, batches["ind"])
    by_split = {split: _split_effects(counter, task, split, batches[split], edits, seed) for split in MAIN_SPLITS}
    pairs = zip(edits, by_split["ind"].changes, by_split["ood"].changes, strict=True)
    effects = tuple(Effect(edit.kind, edit.layer, edit.head, ind, ood) for edit, ind, ood in pairs)
    main = "cut" if any(edit.kind == "cut" for edit in edits) else "state zero"
    beyond = Effect(
        f"{main} beyond control",
        None,
        None,
        by_split["ind"].beyond_control,
        by_split["ood"].beyond_control,
    )
    return BosAblation(
        architecture=_architecture(counter),
        task=f"{task.name} + bos" if task.bos else task.name,
        first=BOS if task.bos else "the first token",
        clean_ind=by_split["ind"].accuracy,
        clean_ood=by_split["ood"].accuracy,
        effects=effects,
        beyond_control=beyond,
        changed=by_split["ood"].changed,
        rows_at=by_split["ood"].rows_at,
        trained_up_to=task.prefix + task.train_length,
        rows=rows,
        seed=seed,
    )


def first_token_cost(counter: Counter, rows: int, seed: int = 0) -> float:
    """How many points of IND accuracy the main edit of the first token costs beyond its control; quick, for curves."""
    task, policy = task_of_counter(counter)
    batch = draw_rows(counter, task, policy, "ind", rows, seed)
    later = task.scored("ind", batch.label_ids) & (torch.arange(batch.label_ids.shape[1], device=counter.device) > 1)
    weights = (later * batch.weights[:, None]).cpu().numpy()
    name = "cut" if isinstance(counter, Transformer) else "zeroed"
    everywhere = [(layer, None) for layer in range(counter.cfg.n_layers)]
    answers = (predictions(counter, batch, edit_hooks(counter, name, everywhere, {}, column)) for column in (0, 1))
    first, second = ((answer == batch.label_ids.cpu().numpy()) * weights for answer in answers)
    return float(100 * (second - first).sum() / max(weights.sum(), 1))


def lowers(change: Interval) -> bool:
    """Whether accuracy surely falls by more than MATTERS points."""
    return change.high < -MATTERS


def _architecture(counter: Counter) -> str:
    """The positional scheme of a transformer, else the family."""
    return getattr(counter.cfg, "position", family_of(counter.cfg))


@dataclass(frozen=True)
class _SplitEffects:
    """The effects of the edits on one split."""

    accuracy: float  # percent, without an edit
    changes: Intervals  # by edit
    beyond_control: Interval
    changed: Float[np.ndarray, "effect pos"]
    rows_at: Int[np.ndarray, "pos"]


def _split_effects(
    counter: Counter, task: Task, split: Split, batch: Batch, edits: Sequence[Edit], seed: int
) -> _SplitEffects:
    """The effects of the edits on a batch: predictions with each edit and without, compared row by row."""
    labels = batch.label_ids.cpu().numpy()
    scored = task.scored(split, batch.label_ids).cpu().numpy()
    clean = predictions(counter, batch, ())
    edited = np.stack([predictions(counter, batch, edit.hooks) for edit in edits])
    right, right_edited = (((answers == labels) & scored).sum(-1).astype(float) for answers in (clean, edited))
    n_scored, rows = scored.sum(1).astype(float), batch.weights.double().cpu().numpy()
    weights = label_weights(batch)
    rows_at = weights.sum(0)
    with np.errstate(invalid="ignore"):  # 0 / 0 at positions without a label
        changed = ((edited != clean) * weights).sum(1) / rows_at
    names = [edit.kind if edit.layer is None else None for edit in edits]
    (main,) = (names.index(name) for name in CONTROLS if name in names)
    control = names.index(CONTROLS[str(names[main])])
    later = scored & (np.arange(scored.shape[1]) > 1)  # a state edit also changes the answer at its own token
    of_first, of_second = (((edited[edit] == labels) & later).sum(-1).astype(float) for edit in (main, control))
    (beyond,) = _differences(of_first[None], of_second, later.sum(1).astype(float), rows, seed)
    return _SplitEffects(
        accuracy=float(100 * (right @ rows) / max(n_scored @ rows, 1)),
        changes=_differences(right_edited, right, n_scored, rows, seed),
        beyond_control=beyond,
        changed=changed,
        rows_at=rows_at,
    )


def _differences(
    right: Float[np.ndarray, "edit row"],
    reference: Float[np.ndarray, "row"],
    scored: Float[np.ndarray, "row"],
    weights: Float[np.ndarray, "row"],
    seed: int,
) -> Intervals:
    """The differences in accuracy from a reference, in points, with intervals from resampling rows.

    They are paired: a row is resampled with both of its results. A row can lose at most all tokens that the reference
    has right, and gain at most all that it has wrong.
    """
    points, every = 100 * (right - reference), np.ones((len(right), 1))
    return bounded_mean(points, scored, weights, every * -100 * reference, every * 100 * (scored - reference), seed)


def label_weights(batch: Batch) -> Int[np.ndarray, "row pos"]:
    """The weight of its row at each token with a label; 0 at other tokens."""
    labelled = (batch.label_ids != NOT_SCORED) & batch.attention_mask
    return (labelled * batch.weights[:, None].long()).cpu().numpy()


def predictions(counter: Counter, batch: Batch, hooks: Sequence[tuple[str, object]]) -> Int[np.ndarray, "row pos"]:
    """The most likely token at every position, in a run with these hooks."""
    with counter.hooks(fwd_hooks=list(hooks)):
        return torch.cat([predict(counter, part) for part in split_batch(counter, batch)]).cpu().numpy()
