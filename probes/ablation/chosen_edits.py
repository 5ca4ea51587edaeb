"""Accuracy at each position with the first token edited in chosen heads or layers, or the second token instead.

`probes.ablation.bos_ablation` edits every place in turn, with intervals; this is one choice of places, and quick.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from models.counter import Counter
from models.errors import CountLensError, unknown
from models.transformer import Transformer
from probes.ablation.bos_ablation import label_weights, predictions
from probes.ablation.edits import Hooks, LayerHead, edit_hooks, means_to_read
from probes.inputs.rows import draw_rows
from probes.result import Result, Verdict, task_of_counter
from training.tasks import BOS

EDITS = {
    "cut": "attention to {token} cut",
    "replaced": "the next token's value read at {token}",
    "zeroed": "zeros read at {token}",
    "averaged": "the mean of all tokens read at {token}",
}
STATE_EDITS = {
    "zeroed": "the state after {token} set to 0",
    "averaged": "the state after {token} set to the mean of all positions",
}
ROWS = 16  # all of the greatest length, so that every position has the same number


@dataclass(frozen=True)
class ChosenEdits(Result):
    """Percent right at each position of the longest rows, with and without an edit; NaN if nothing is scored there."""

    done: str  # the edit of the first token, in words
    places: str  # the places of the edit, in words
    clean: Float[np.ndarray, "pos"]  # without an edit
    edited: Float[np.ndarray, "pos"]
    control: Float[np.ndarray, "pos"]  # the same edit of the second token
    rows_at: Int[np.ndarray, "pos"]
    trained_up_to: int  # the last position in the row that training scores

    def mean(self, percent: Float[np.ndarray, "pos"]) -> tuple[float, float]:
        """The mean percent right at trained positions and beyond them; NaN if there are none."""
        trained = np.arange(len(percent)) < self.trained_up_to
        weights, values = self.rows_at.astype(float), np.nan_to_num(percent)
        with np.errstate(invalid="ignore"):  # 0 / 0
            trained_mean, beyond = ((values * weights)[at].sum() / weights[at].sum() for at in (trained, ~trained))
        return float(trained_mean), float(beyond)

    @property
    def verdict(self) -> Verdict:
        clean, edited, control = (self.mean(percent) for percent in (self.clean, self.edited, self.control))
        return Verdict(
            f"With {self.done} {self.places}, accuracy goes from {clean[0]:.1f} to {edited[0]:.1f} % at trained "
            f"positions and from {clean[1]:.1f} to {edited[1]:.1f} % beyond; with the second token edited instead, "
            f"to {control[0]:.1f} and {control[1]:.1f} %.",
            "If both edits cost the same, the first token matters no more than another one.",
        )

    def to_frame(self) -> pd.DataFrame:
        """One line per position; positions count from 1."""
        columns = {"clean": self.clean, "edited": self.edited, "control": self.control, "rows": self.rows_at}
        frame = pd.DataFrame({"position": np.arange(1, len(self.clean) + 1)} | columns)
        return frame[frame.rows > 0].reset_index(drop=True)


def chosen_edits(
    counter: Counter, edit: str, places: Sequence[LayerHead] | None = None, rows: int = ROWS, seed: int = 0
) -> ChosenEdits:
    """The accuracy with an edit of the first token at these places (all if None), on `rows` rows of full length."""
    allowed = EDITS if isinstance(counter, Transformer) else STATE_EDITS
    if edit not in allowed:
        raise unknown(f"edit of {type(counter).__name__}", edit, allowed)
    chosen = [(layer, None) for layer in range(counter.cfg.n_layers)] if places is None else list(places)
    _check(counter, chosen)
    task, policy = task_of_counter(counter)
    longest = task.with_lengths(task.ood_lengths[1] - 1, None)
    batch = draw_rows(counter, longest, policy, "ood", rows, seed)
    means = means_to_read(counter, batch) if edit == "averaged" else {}
    runs: list[Hooks] = [(), *(edit_hooks(counter, edit, chosen, means, column) for column in (0, 1))]
    labels, weights = batch.label_ids.cpu().numpy(), label_weights(batch)
    rows_at = weights.sum(0)
    with np.errstate(invalid="ignore"):  # 0 / 0 at positions without a label
        clean, edited, control = (
            100 * ((predictions(counter, batch, hooks) == labels) * weights).sum(0) / rows_at for hooks in runs
        )
    done = allowed[edit].format(token=BOS if task.bos else "the first token")
    return ChosenEdits(
        done, _say_places(chosen, places), clean, edited, control, rows_at, task.prefix + task.train_length
    )


def _check(counter: Counter, places: Sequence[LayerHead]) -> None:
    """Refuses layers and heads that the counter lacks."""
    n_layers = counter.cfg.n_layers
    n_heads = counter.cfg.n_heads if isinstance(counter, Transformer) else 0
    for layer, head in places:
        if not 0 <= layer < n_layers or (head is not None and not 0 <= head < n_heads):
            where = f"layer {layer}" + ("" if head is None else f", head {head}")
            raise CountLensError(f"{where} is not in this counter: it has {n_layers} layers of {n_heads} heads")


def _say_places(chosen: Sequence[LayerHead], places: Sequence[LayerHead] | None) -> str:
    """The places as text: `everywhere`, or the names of layers and heads."""
    if places is None:
        return "everywhere"
    names = [f"layer {layer}" if head is None else f"head {layer}.{head}" for layer, head in chosen]
    return f"in {', '.join(names)}" if names else "nowhere"
