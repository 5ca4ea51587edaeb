"""Does a period last over the whole row, or does it fade? Clusters of distant parts of the row are compared.

The row is cut into six parts. The clusters of a part are the means of its positions that are equal modulo m. Two parts
agree if their clusters have the same places and sizes (Lin's concordance: 1 if they coincide, 0 if they are unrelated).
A lasting period agrees half a row apart as well as between neighbouring parts. A damped oscillator, a period that
stops, one whose phase drifts and one whose clusters change in the middle agree between neighbouring parts only.

`share` is the agreement half a row apart, divided by that between neighbouring parts: 1 for a lasting period, about 0
for the others. If neighbouring parts hardly agree there is nothing that could last, and the share is 0. Its interval is
a jackknife's, with one part left out at a time.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from probes.stats import Interval, jackknife

PARTS = 6
LEAST_LEFT = 0.5  # a period lasts if surely more than this share of the agreement is left half a row apart
LEAST_AGREEMENT = 0.1  # between neighbouring parts; a share of less says nothing

Parts = Float[np.ndarray, "part residue d"]


@dataclass(frozen=True)
class Lasting:
    """How much of a period is left half a row apart."""

    share: Interval  # of the agreement between neighbouring parts; can be below 0 or above 1
    surely: bool  # whether the share is surely above LEAST_LEFT


def measure_lasting(x: Float[np.ndarray, "pos d"], modulus: int) -> Lasting:
    """How much of the clusters by position modulo m lasts. x has no drift, and at least one round of m in each part."""
    clusters = part_clusters(x, modulus)
    size = (clusters**2).sum((1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):  # 0 / 0 in parts without variation
        agreement = np.nan_to_num(2 * np.einsum("imd,jmd->ij", clusters, clusters) / np.add.outer(size, size))
    distance = np.abs(np.subtract.outer(np.arange(PARTS), np.arange(PARTS)))

    def share_and_excess(kept: Int[np.ndarray, "part"]) -> Float[np.ndarray, "two"]:
        pairs = np.ix_(kept, kept)
        near = agreement[pairs][distance[pairs] == 1].mean()
        far = agreement[pairs][distance[pairs] >= PARTS / 2].mean()
        return np.array([far / near if near > LEAST_AGREEMENT else 0.0, far - LEAST_LEFT * near])

    share, excess = jackknife(share_and_excess, PARTS)
    return Lasting(share, excess.low > 0)


def part_clusters(x: Float[np.ndarray, "pos d"], modulus: int) -> Parts:
    """The mean activation of each residue modulo m, in each part of the row."""
    edges = np.linspace(0, len(x), PARTS + 1).astype(int)
    residues = np.arange(len(x)) % modulus
    clusters = np.zeros((PARTS, modulus, x.shape[1]))
    for part, (start, end) in enumerate(pairwise(edges)):
        here = residues[start:end, None] == np.arange(modulus)
        clusters[part] = here.T @ x[start:end] / np.maximum(here.sum(0), 1)[:, None]
    return clusters
