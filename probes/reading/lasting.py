"""Does a period last over the whole row, or die out? Clusters of distant parts of a row, compared.

The row is cut into six parts. Of each, the means of the positions that are equal modulo m are its clusters, and two
parts agree as far as their clusters do, in place and in size (Lin's concordance, 1 where they coincide, 0 where they
have nothing in common). A period agrees half a row apart as well as between neighbours. A damped oscillator, a period
that stops, one whose phase drifts and one whose clusters change in the middle agree between neighbours only.

`share` is what is left, half a row apart, of the agreement between neighbours: 1 for a period, about 0 for the others.
Its interval is the jackknife's, one part left out at a time.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from probes.stats import Interval, jackknife

PARTS = 6
LEAST_LEFT = 0.5  # a period lasts where surely more than this share of the agreement is left half a row apart

Parts = Float[np.ndarray, "part residue d"]


@dataclass(frozen=True)
class Lasting:
    """How much of a period is left half a row apart."""

    share: Interval  # of the agreement between neighbouring parts; it may be below 0 or above 1
    surely: bool  # whether that is surely more than LEAST_LEFT


def lasting(x: Float[np.ndarray, "pos d"], modulus: int) -> Lasting:
    """How much of the clusters by position modulo m lasts; x is without drift and holds a round of m in each part."""
    clusters = part_clusters(x, modulus)
    size = (clusters**2).sum((1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):  # 0 / 0: parts in which nothing varies
        agreement = np.nan_to_num(2 * np.einsum("imd,jmd->ij", clusters, clusters) / np.add.outer(size, size))
    distance = np.abs(np.subtract.outer(np.arange(PARTS), np.arange(PARTS)))

    def share_and_excess(kept: Int[np.ndarray, "part"]) -> Float[np.ndarray, "two"]:
        pairs = np.ix_(kept, kept)
        near = agreement[pairs][distance[pairs] == 1].mean()
        far = agreement[pairs][distance[pairs] >= PARTS / 2].mean()
        return np.array([far / near if near > 0 else 0.0, far - LEAST_LEFT * near])

    share, excess = jackknife(share_and_excess, PARTS)
    return Lasting(share, excess.low > 0)


def part_clusters(x: Float[np.ndarray, "pos d"], modulus: int) -> Parts:
    """The mean of each residue in each part of the row."""
    edges = np.linspace(0, len(x), PARTS + 1).astype(int)
    residues = np.arange(len(x)) % modulus
    clusters = np.zeros((PARTS, modulus, x.shape[1]))
    for part, (start, end) in enumerate(pairwise(edges)):
        here = residues[start:end, None] == np.arange(modulus)
        clusters[part] = here.T @ x[start:end] / np.maximum(here.sum(0), 1)[:, None]
    return clusters
