"""Attribution patching: what a patch would do, to first order, for all cells from two runs and one gradient.

    effect of a cell = (donor's activation - receiver's) . d metric / d activation, at the receiver

Activations and gradients come from TransformerLens' `tools.analysis.attribution_patching`. The approximation is cheap
and may be far off where the counter is not linear in between; so it is never given without what it approximates: the
true grid of `activation_patch`, and how well the two correlate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.stats import pearsonr, spearmanr
from torch import Tensor
from transformer_lens.tools.analysis.attribution_patching import cache_activation_and_gradient

from models.counter import Counter
from models.errors import CountLensError
from probes.patching import PatchGrid, activation_patch
from probes.patching_cells import axes_of, source_hook
from probes.patching_metrics import Metric, scorer
from probes.result import Result, Verdict
from training.batches import Batch

CONSTANT = {"accuracy": "it is constant but for its steps"}  # metrics without a gradient, and why
CLOSE = 0.9  # a correlation from which on the approximation may stand for the truth


@dataclass(frozen=True)
class Attribution(Result):
    """First-order estimates of how a patch changes the metric, beside what it really does."""

    truth: PatchGrid
    estimate: Float[np.ndarray, "*axes"]  # of the change of the metric

    @property
    def change(self) -> Float[np.ndarray, "*axes"]:
        """What the patches really change."""
        return self.truth.change

    @property
    def correlation(self) -> float:
        """Pearson's, over the cells; NaN where one of the two is constant."""
        return _correlation(pearsonr, self.estimate, self.change)

    @property
    def rank_correlation(self) -> float:
        """Spearman's."""
        return _correlation(spearmanr, self.estimate, self.change)

    @property
    def verdict(self) -> Verdict:
        if np.isnan(self.correlation):
            return Verdict(f"At {self.truth.site} no patch changes {self.truth.metric}.", "a pair whose runs differ")
        judged = "may stand for" if self.correlation >= CLOSE else "does not stand for"
        return Verdict(
            f"At {self.truth.site} the first-order estimate {judged} true patches: over {self.estimate.size} cells "
            f"it correlates with them by {self.correlation:.2f} (by rank {self.rank_correlation:.2f}).",
            f"a correlation on the other side of {CLOSE}",
        )

    def to_frame(self) -> pd.DataFrame:
        """Columns: site, the axes, estimate, change; one cell a line."""
        cells = pd.DataFrame(product(*self.truth.axes.values()), columns=list(self.truth.axes))
        cells.insert(0, "site", self.truth.site)
        return cells.assign(estimate=self.estimate.ravel(), change=self.change.ravel())


def attribution_patch(
    counter: Counter,
    clean: Batch,
    corrupted: Batch,
    site: str = "resid_pre",
    metric: str | Metric = "logit_diff",
    *,
    direction: str = "denoise",
    axes: Sequence[str] | None = None,
    at: Sequence[int] | None = None,
) -> Attribution:
    """Estimates for every cell of a grid, and the true grid with them; arguments as for `activation_patch`."""
    if isinstance(metric, str) and metric in CONSTANT:
        raise CountLensError(f"{metric} has no gradient: {CONSTANT[metric]}; take logit_diff, probability or kl")
    if site == "state_step":
        raise CountLensError(
            "state_step is heard once a position, and TransformerLens keeps one gradient a hook point: take state, "
            "or patch state_step itself with activation_patch"
        )
    truth = activation_patch(counter, clean, corrupted, site, metric, direction=direction, axes=axes, at=at)
    donor, receiver = (clean, corrupted) if direction == "denoise" else (corrupted, clean)
    names = [source_hook(site, layer) for layer in truth.axes.get("layer", (None,))]
    was_training = counter.training
    counter.eval()
    try:
        with torch.no_grad():
            clean_logits = counter(clean.token_ids, clean.position_ids, _mask(counter, clean))
        score = scorer(metric, clean, corrupted, clean_logits, at)
        weights = torch.as_tensor(truth.weights / truth.weights.sum(), device=clean_logits.device)

        def mean(logits: Tensor) -> Tensor:
            return (score(logits[None, :, score.reads])[0] * weights.to(logits.dtype)).sum()

        with torch.enable_grad():
            at_receiver = _gradients(counter, receiver, mean, names)
        with torch.no_grad():
            mask = _mask(counter, donor)
            _, values = counter.run_with_cache(donor.token_ids, donor.position_ids, mask, names_filter=names)
    finally:
        counter.train(was_training)
    layers = [_summed(values[name], *at_receiver[name], site, truth.axes) for name in names]
    estimate = torch.stack(layers) if "layer" in truth.axes else layers[0]
    return Attribution(truth, estimate.double().cpu().numpy())


def _mask(counter: Counter, batch: Batch) -> Tensor | None:
    return None if counter.cfg.causal else batch.attention_mask


def _gradients(counter: Counter, batch: Batch, metric: Metric, names: list[str]) -> dict[str, tuple[Tensor, Tensor]]:
    """Activations at each hook point and what the metric's slope is there."""
    if not counter.cfg.causal and not batch.attention_mask.all():
        raise CountLensError(
            "TransformerLens passes tokens alone: for padded rows of a counter that sees them, use activation_patch"
        )
    with counter.at_positions(batch.position_ids):
        found = cache_activation_and_gradient(counter, batch.token_ids, metric, names)
    slopes = {name: found.gradients[name] for name in names}
    return {
        name: (found.activations[name], torch.zeros_like(found.activations[name]) if slope is None else slope)
        for name, slope in slopes.items()
    }


def _summed(
    donor: Tensor, receiver: Tensor, slope: Tensor, site: str, axes: dict[str, tuple[int, ...]]
) -> Float[Tensor, "..."]:
    """The product of difference and slope, summed over all that a cell replaces."""
    effect = (donor - receiver) * slope
    if site == "pattern":
        effect = effect.transpose(1, 2)  # position, then head, as in a grid
    own = [axis for axis in axes_of(site) if axis != "layer"]  # the axes of the tensor after the batch
    dims = [0, *(1 + i for i, axis in enumerate(own) if axis not in axes), *range(1 + len(own), effect.ndim)]
    return effect.sum(dims)


def _correlation(measure: object, estimate: np.ndarray, change: np.ndarray) -> float:
    if np.ptp(estimate) == 0 or np.ptp(change) == 0:
        return float("nan")
    return float(measure(estimate.ravel(), change.ravel()).statistic)  # type: ignore[operator]
