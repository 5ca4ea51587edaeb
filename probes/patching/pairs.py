"""Activation patching between the two rows of a counterfactual pair, at several sites of a counter.

A pair says what it changes and what it holds: if a patch changes the answers, the counter keeps the changed variable
at that place. Direction and metric depend on the labels.

    labels change (swap, start, bos_replaced)   denoise, logit_diff: how much of the clean answers does a patch
                                                restore, as a share of the difference between the two runs?
    labels hold (shift)                         noise, accuracy: both runs can be right while a mixture of them is not;
                                                how many answers does a patch break?

A site is a kind of activation, patched at one layer and position (and head) at a time. `head_z`, `head_q`, ... are the
kinds that have heads, patched one head at a time at all positions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from models.counter import Counter
from models.errors import CountLensError, unknown
from models.transformer import Transformer
from probes.inputs.counterfactuals import Pair, counterfactual_pair
from probes.patching.engine import NOTICEABLE, TOP, PatchGrid, activation_patch
from probes.patching.metrics import Metric
from probes.patching.patch_cells import AXES, axes_of, patchable_sites
from probes.result import Headline, NotApplicable, Result, Verdict, plain
from training.batches import Batch
from training.evaluate import evaluating
from training.tasks import NOT_SCORED, Task

USUAL_PAIRS = ("swap", "start", "shift", "bos_replaced")  # the pairs of equal length, the most informative first
PER_HEAD = "head_"  # before a kind: one head at a time, at all positions


@dataclass(frozen=True)
class PairPatching(Result):
    """The effects of patches between the rows of a pair, by site."""

    pair: str  # key of PAIRS
    changes: tuple[str, ...]  # variables in which the two rows differ
    holds: tuple[str, ...]  # variables in which they do not
    metric: str
    direction: str  # denoise or noise
    rows: int  # number of pairs of rows
    seed: int
    grids: dict[str, PatchGrid]  # by site

    @property
    def unpatched(self) -> tuple[float, float]:
        """The metric of the clean and of the corrupted run."""
        grid = next(iter(self.grids.values()))
        return grid.clean, grid.corrupted

    @property
    def relative(self) -> bool:
        """Whether effects are shares of the difference between the two runs; if not, they are changes of the metric."""
        return "labels" in self.changes and all(bool(np.isfinite(grid.effect).all()) for grid in self.grids.values())

    def effect(self, site: str) -> Float[np.ndarray, "*axes"]:
        """The effect of each patch of a site; 0 means none."""
        if site not in self.grids:
            raise unknown("patched site", site, self.grids)
        return self.grids[site].effect if self.relative else self.grids[site].change

    def finding(self, site: str) -> str:
        """A sentence that names the patches of a site with the largest effects."""
        effect = self.effect(site).ravel()
        strongest = np.argsort(-np.abs(effect), kind="stable")[:TOP]
        does = ("brings back" if self.direction == "denoise" else "takes away") if self.relative else "changes"
        what = f"the difference in {self.metric}" if self.relative else self.metric
        if abs(effect[strongest[0]]) < NOTICEABLE:
            least = f"{NOTICEABLE:.0%} of {what}" if self.relative else f"{what} by {NOTICEABLE}"
            return f"No single patch of {site} {does} {least}."
        names, form = self.grids[site].cell_names, ".0%" if self.relative else "+.2f"
        named = [f"{names[cell]} ({effect[cell]:{form}})" for cell in strongest if abs(effect[cell]) >= NOTICEABLE]
        return f"A patch of {site} {does} {what} most at {', '.join(named)}."

    @property
    def setting(self) -> str:
        """A sentence with the pair's variables and the metric of the unpatched runs."""
        clean, corrupted = self.unpatched
        return (
            f"The pair {self.pair} changes {_join(self.changes)} and holds {_join(self.holds)}: "
            f"{self.metric} is {clean:.3g} clean and {corrupted:.3g} corrupted."
        )

    @property
    def headline(self) -> Headline:
        strongest = {site: float(np.abs(self.effect(site)).max()) for site in self.grids}
        site = max(strongest, key=lambda name: strongest[name])
        kind = "share of the difference" if self.relative else f"change in {self.metric}"
        return Headline(f"most at {site}", f"largest effect of one patch ({kind})", strongest[site])

    @property
    def verdict(self) -> Verdict:
        return Verdict(
            " ".join([self.setting, *map(self.finding, self.grids)]),
            f"other cells whose patch moves {self.metric} further, on other rows of the pair",
        )

    def to_frame(self) -> pd.DataFrame:
        """One line per patch. Columns: pair, site, layer, pos, head, value, stderr, change, share.

        A coordinate is empty if a patch replaces all of its axis. `share` is the share of the difference between the
        two runs; it is empty unless effects are such shares.
        """
        columns = ["site", *AXES[:-1], "value", "stderr", "change", "share"]
        frames = [
            grid.to_frame()
            .assign(site=site, change=grid.change.ravel(), share=self._share(site).ravel())
            .reindex(columns=columns)
            .astype(dict.fromkeys(AXES[:-1], "Int64"))
            for site, grid in self.grids.items()
        ]
        table = pd.concat(frames, ignore_index=True)
        table.insert(0, "pair", self.pair)
        return table

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values, with means over rows for each grid, and the verdict."""
        sites = {
            site: {
                "axes": grid.axes,
                "value": grid.values,
                "stderr": grid.stderr,
                "change": grid.change,
                "share": self._share(site),
                "finding": self.finding(site),
            }
            for site, grid in self.grids.items()
        }
        clean, corrupted = self.unpatched
        fields = {name: value for name, value in vars(self).items() if name != "grids"}
        values: dict[str, Any] = plain(fields | {"clean": clean, "corrupted": corrupted, "sites": sites})
        return values | {"verdict": plain(self.verdict)}

    def _share(self, site: str) -> Float[np.ndarray, "*axes"]:
        """The effects as shares of the difference between the runs; NaN if they are not such shares."""
        effect = self.grids[site].effect
        return effect if self.relative else np.full_like(effect, np.nan)


def pair_patch(
    counter: Counter,
    pair: str | None = None,
    sites: Sequence[str] | None = None,
    metric: str | Metric | None = None,
    direction: str | None = None,
    *,
    batch: int = 16,
    length: int | None = None,
    seed: int = 0,
    only: Mapping[str, Sequence[int]] | None = None,
    at: Sequence[int] | None = None,
) -> PairPatching:
    """The metric for every patch of these sites between the rows of a pair.

    By default pair, sites, metric and direction are chosen to fit the counter, and rows have the task's usual `length`.
    `only` restricts axes to some coordinates, such as `{"layer": [1]}`; `at` are the positions whose answers count.
    """
    if batch < 1:
        raise CountLensError(f"batch={batch}: a pair needs at least 1 row")
    chosen = (
        usual_pair(counter, batch, seed, length) if pair is None else _named_pair(pair, counter, batch, seed, length)
    )
    metric = metric or ("logit_diff" if "labels" in chosen.changes else "accuracy")
    direction = direction or ("denoise" if "labels" in chosen.changes else "noise")
    if metric == "logit_diff" and "labels" not in chosen.changes:
        raise CountLensError(
            f"logit_diff compares the labels of two rows, but the pair {chosen.name} holds labels: take accuracy, "
            "probability or kl, or another pair"
        )
    axes_by_site = {name: _axes(counter, name, only or {}) for name in dict.fromkeys(sites or usual_sites(counter))}
    clean, corrupted = (_keep_scored_labels(counter, chosen.task, rows) for rows in (chosen.clean, chosen.corrupted))
    grids = {
        name: activation_patch(
            counter, clean, corrupted, _kind(name), metric, direction=direction, axes=axes, only=only, at=at
        )
        for name, axes in axes_by_site.items()
    }
    metric_name = next(iter(grids.values())).metric
    return PairPatching(chosen.name, chosen.changes, chosen.holds, metric_name, direction, batch, seed, grids)


def usual_pair(counter: Counter, batch: int = 16, seed: int = 0, length: int | None = None) -> Pair:
    """The first of USUAL_PAIRS that the counter's task has; their rows have equal length."""
    reasons = []
    for name in USUAL_PAIRS:
        if name == "shift" and counter.ignores_shifts and not counter.ignores_positions:
            reasons.append(f"shift: {counter.cfg.position} sees distances alone, which a shift holds")
            continue
        try:
            return counterfactual_pair(name, counter, batch, seed, length)
        except NotApplicable as reason:
            reasons.append(f"{name}: {reason}")
    raise NotApplicable(f"no pair of equally long rows fits this counter ({'; '.join(reasons)})")


def usual_sites(counter: Counter) -> tuple[str, ...]:
    """The sites that are patched by default: the stream, and what carries information between positions."""
    return ("resid_pre", "head_z") if isinstance(counter, Transformer) else ("resid_pre", "state_step")


def known_sites(counter: Counter) -> list[str]:
    """The names of all sites that can be patched in a counter, those patched one head at a time included."""
    kinds = patchable_sites(counter)
    return kinds + [f"{PER_HEAD}{kind}" for kind in kinds if "head" in axes_of(kind)]


def _named_pair(name: str, counter: Counter, batch: int, seed: int, length: int | None) -> Pair:
    """The pair of this name; refuses one whose rows differ in length."""
    pair = counterfactual_pair(name, counter, batch, seed, length)
    if not pair.same_length:
        clean, corrupted = (rows.token_ids.shape[1] for rows in (pair.clean, pair.corrupted))
        raise CountLensError(
            f"the rows of the pair {name} have {clean} and {corrupted} tokens, and a patch goes from a position to the "
            f"same one: take {', '.join(USUAL_PAIRS[:-1])} or {USUAL_PAIRS[-1]}"
        )
    return pair


def _kind(site: str) -> str:
    """The kind of activation of a site's name, such as z of head_z."""
    return site.removeprefix(PER_HEAD)


def _axes(counter: Counter, site: str, only: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """The axes of a site's grid; refuses restrictions of axes that it lacks."""
    if site not in known_sites(counter):
        raise unknown("site", site, known_sites(counter))
    per_head = ("layer", "head") if site.startswith(PER_HEAD) else None
    axes = per_head or tuple(axis for axis in axes_of(site) if axis != "src")
    for axis in only:
        if axis not in axes:
            raise CountLensError(f"{site} is patched by {_join(axes)}: {axis} cannot be chosen")
    return axes


def _keep_scored_labels(counter: Counter, task: Task, rows: Batch) -> Batch:
    """The rows with labels only at scored tokens; refuses a counter whose logits are not finite."""
    with evaluating(counter):
        if not bool(counter(rows.token_ids, rows.position_ids).isfinite().all()):
            raise NotApplicable("answers are not finite: this counter has diverged, train it anew")
    return replace(rows, label_ids=rows.label_ids.where(task.scored("ind", rows.label_ids), NOT_SCORED))


def _join(names: Sequence[str]) -> str:
    """The names as text, such as `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
