"""Do activations repeat every m positions? A cluster score for every modulus, and how often chance gives as much.

Activations x[pos] cluster by pos mod m exactly when they have period m, that is, when all their power lies on a comb
of frequencies k/m (the *teeth*). The score is the share of their variance that the clusters explain, from 0 (no more
than chance) to 1. Shuffling positions is no null for it: a sine of any frequency is nearer to some period than shuffled
positions are to any. The null here moves the teeth instead, each to a random place within half a tooth spacing of where
it belongs. Such a comb has as many teeth in the same parts of the spectrum, and explains as much of drift, of coloured
noise and of sines of other frequencies as the true one does, unless the power is on the true teeth and not beside them.

1. *Drift*, all that is slower than twice the largest modulus, is taken out, and of the rest what a position inherits
   from the one before it (first-order autoregression): noise of any smooth spectrum is then nearly white.
2. The ends are tapered, so that what is left of a drift does not leak over the whole spectrum.
3. Summed over columns, agreement[lag] is all that matters: the variance within clusters is a sum over the lags that
   are multiples of m, and the power at any frequency is its cosine transform.
4. `p_alone` of a modulus is the share of moved combs that explain as much as its own. `p` corrects for having tried
   all moduli (Sidak, each weighted by 1 / (m - 1): a long period has many teeth to show itself by, a short one few; a
   modulus that is *expected* beforehand gets half of all weight).
5. A period of 5 is also one of 10, 15 and 20. Among the moduli with p <= 0.05 the period is the one that describes
   the activations best by Schwarz's criterion: more clusters have to earn their keep.
6. It must last (`reading.lasting`): half a row apart, surely more than half of the agreement between neighbouring parts
   must be left. Otherwise it is said to fade: an oscillator with noise, a period that stops, one whose phase drifts.

One pure sine is near k/m for some m <= 20, whatever its frequency. So a circle alone is no proof of a period among
19 candidates; it is one of the expected modulus. Clusters, whose power is on several teeth, are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.signal.windows import tukey

from models.errors import CountLensError
from probes.reading.lasting import PARTS, Lasting, lasting
from probes.reading.pca import ROUNDING
from probes.stats import ALPHA, Interval, jackknife

LARGEST_MODULUS = 20
USUAL_MODULUS = 10  # where a task has no base: the paper's
LEAST_ROUNDS = PARTS  # a period must be seen so often: in every part of the row
PERMUTATIONS = 40_000  # so that p < 0.001 can be seen after correction
TAPERED = 0.5  # share of the positions that the taper touches

Innovations = Float[np.ndarray, "step d"]


@dataclass(frozen=True)
class Periods:
    """What was found for each modulus, and the period that it amounts to."""

    moduli: tuple[int, ...]
    scores: Float[np.ndarray, "modulus"]  # share of variance explained by clusters, adjusted: 0 is chance, 1 is all
    null95: Float[np.ndarray, "modulus"]  # 95 % of moved combs score less
    p_alone: Float[np.ndarray, "modulus"]  # of this modulus, had it been the only one
    p: Float[np.ndarray, "modulus"]  # corrected for all moduli
    period: int | None  # the modulus that explains the activations over the whole row
    fading: int | None  # the modulus that explains them, but not surely over the whole row
    strength: Interval  # score of the best modulus, and what it lies between
    lasting: Lasting  # how much of the best modulus is left half a row apart
    expected: int | None  # the modulus that was asked for beforehand
    varies: bool  # False where nothing but drift is left to explain

    @property
    def best(self) -> int:
        """The index of the period, lasting or not, or else of the modulus with the smallest p."""
        found = self.fading if self.period is None else self.period
        return int(self.p.argmin()) if found is None else self.moduli.index(found)


@dataclass(frozen=True)
class Spectrum:
    """Power of tapered activations, such that a pure wave on one tooth has a share of 1 of the variance."""

    agreement: Float[np.ndarray, "lag"]  # sum over positions and columns of x[pos] * x[pos + lag]
    power: Float[np.ndarray, "frequency"]  # share of variance at frequencies 0 to 1/2
    width: float  # of the taper: how many independent frequencies one tooth covers


def usual_moduli(n_pos: int) -> tuple[int, ...]:
    """2 to 20, as far as the positions hold six rounds of each."""
    return tuple(range(2, min(LARGEST_MODULUS, n_pos // LEAST_ROUNDS) + 1))


def find_period(
    activations: Float[np.ndarray, "pos d"],
    moduli: Sequence[int] | None = None,
    expected: int | None = None,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Periods:
    """Cluster scores and p-values of all moduli, and the period of activations at contiguous positions."""
    tried = usual_moduli(len(activations)) if moduli is None else tuple(sorted(set(moduli)))
    _check(tried, len(activations))
    if permutations < 1 or not np.isfinite(activations).all():
        raise CountLensError(f"permutations={permutations}: at least 1 is needed, and activations that are finite")
    expected = expected if expected in tried else None
    steps = innovations(activations, slowest=2 * max(tried))
    if steps is None:
        zeros, ones, nothing = np.zeros(len(tried)), np.ones(len(tried)), Interval(0.0, 0.0, 0.0)
        return Periods(
            tried, zeros, zeros, ones, ones, None, None, nothing, Lasting(nothing, False), expected, varies=False
        )
    spectrum = spectrum_of(steps)
    shares = np.array([explained(spectrum, modulus) for modulus in tried])
    null = [moved_combs(spectrum, modulus, permutations, seed) for modulus in tried]
    exceed = np.array([(moved >= share).sum() for moved, share in zip(null, shares, strict=True)])
    p_alone = (1 + exceed) / (1 + permutations)
    p = 1 - (1 - p_alone) ** (1 / weights(tried, expected))
    at = int((1 - ALPHA) * (permutations - 1))
    null95 = np.array([np.partition(moved, at)[at] for moved in null])
    scores, band = adjusted(spectrum, tried, shares), adjusted(spectrum, tried, null95)
    found = _smallest_sufficient(tried, shares, p, len(steps) / spectrum.width)
    best = tried[int(p.argmin())] if found is None else found
    left = lasting(steps, best)
    period, fading = (found, None) if left.surely else (None, found)
    strength = _strength(steps, best, float(scores[tried.index(best)]))
    return Periods(tried, scores, band, p_alone, p, period, fading, strength, left, expected, varies=True)


def _strength(steps: Innovations, modulus: int, score: float) -> Interval:
    """The score with an interval as wide as the jackknife over parts of the row makes that of plain clusters."""
    part = np.arange(len(steps)) * PARTS // len(steps)
    residues = np.arange(len(steps)) % modulus

    def clustered(kept: Int[np.ndarray, "part"]) -> Float[np.ndarray, "1"]:
        here = np.isin(part, kept)
        return np.array([clustered_share(steps[here], residues[here], modulus)])

    (plain,) = jackknife(clustered, PARTS)
    return Interval(score, score - (plain.value - plain.low), min(1.0, score + (plain.high - plain.value)))


def clustered_share(x: Float[np.ndarray, "pos d"], groups: Int[np.ndarray, "pos"], number: int) -> float:
    """Share of the variance that lies between the means of groups, adjusted so that 0 is chance."""
    x = x - x.mean(0, dtype=np.float64)
    members = (groups[:, None] == np.arange(number)).astype(float)
    sums, sizes = members.T @ x, members.sum(0)
    total = (x**2).sum()
    if total == 0:
        return 0.0
    between = ((sums**2).sum(1) / np.maximum(sizes, 1)).sum()
    return float(1 - (total - between) / total * (len(x) - 1) / (len(x) - (sizes > 0).sum()))


def cluster_score(activations: Float[np.ndarray, "pos d"], modulus: int) -> float:
    """The score of one modulus alone, without a null; it may differ a little from one among many, as the drift does."""
    _check([modulus], len(activations))
    steps = innovations(activations, slowest=2 * min(LARGEST_MODULUS, len(activations) // LEAST_ROUNDS))
    if steps is None:
        return 0.0
    spectrum = spectrum_of(steps)
    return float(adjusted(spectrum, [modulus], np.array([explained(spectrum, modulus)]))[0])


def adjusted(
    spectrum: Spectrum, moduli: Sequence[int], shares: Float[np.ndarray, "modulus"]
) -> Float[np.ndarray, "modulus"]:
    """Shares of variance on a scale where white noise has 0."""
    chance = spectrum.width * (np.array(moduli) - 1) / len(spectrum.agreement)
    return (shares - chance) / (1 - chance)


def _check(moduli: Sequence[int], n_pos: int) -> None:
    if not moduli or min(moduli) < 2:
        raise CountLensError(
            f"moduli {list(moduli)}: give at least one, each 2 or more, and positions for {LEAST_ROUNDS} rounds"
        )
    if n_pos < LEAST_ROUNDS * max(moduli):
        raise CountLensError(
            f"{n_pos} positions hold fewer than {LEAST_ROUNDS} rounds of {max(moduli)}: "
            f"use moduli up to {n_pos // LEAST_ROUNDS} or more positions"
        )


def innovations(activations: Float[np.ndarray, "pos d"], slowest: int) -> Innovations | None:
    """What is new at each position: without drift slower than a period of `slowest`, and without what it inherits
    from the position before. None where nothing but drift is left."""
    x = activations.astype(np.float64)
    n_pos = len(x)
    middle = (np.arange(n_pos) + 0.5) / n_pos
    waves = np.cos(np.pi * np.outer(middle, np.arange(2 * n_pos // slowest + 1)))
    drift, _ = np.linalg.qr(np.column_stack([waves, middle - 0.5]))
    rest = x - drift @ (drift.T @ x)
    if (rest**2).sum() <= ROUNDING**2 * (x**2).sum():
        return None
    inherited = np.clip((rest[1:] * rest[:-1]).sum() / (rest[:-1] ** 2).sum(), 0, 1)
    steps = rest[1:] - inherited * rest[:-1]
    return steps - steps.mean(0)


def spectrum_of(steps: Innovations) -> Spectrum:
    """Agreement and power; columns count together, so any rotation of the activations gives the same."""
    n_pos, half = len(steps), half_grid(len(steps))
    taper = tukey(n_pos + 2, TAPERED)[1:-1]
    tapered = steps * taper[:, None]
    transform = np.fft.rfft(tapered, 2 * n_pos, axis=0)
    peak = (taper**2).sum() / taper.sum() ** 2
    scale = peak / (tapered**2).sum()
    agreement = scale * np.fft.irfft((np.abs(transform) ** 2).sum(1))[:n_pos]
    # Padded with so many zeros that a tooth moved anywhere is read off at the nearest frequency.
    wrapped = np.concatenate([agreement, np.zeros(2 * half - 2 * n_pos + 1), agreement[:0:-1]])
    return Spectrum(agreement, np.fft.rfft(wrapped).real, peak * n_pos)


def half_grid(n_pos: int) -> int:
    """How many frequencies from 0 to 1/2 are computed: some 60 for each that is independent."""
    return max(4096, 1 << (32 * n_pos - 1).bit_length())


def explained(spectrum: Spectrum, modulus: int) -> float:
    """Share of variance on the teeth 1/m .. (m-1)/m: lags that are multiples of m count for, the others against."""
    lags = np.arange(1, len(spectrum.agreement))
    pulls = np.where(lags % modulus == 0, modulus - 1, -1)
    return float((modulus - 1) * spectrum.agreement[0] + 2 * pulls @ spectrum.agreement[1:])


def moved_combs(spectrum: Spectrum, modulus: int, permutations: int, seed: int) -> Float[np.ndarray, "permutation"]:
    """Share of variance that each randomly moved comb explains."""
    teeth, present = comb_moves(modulus, permutations, seed, len(spectrum.power) - 1)
    share = np.zeros(permutations)
    for tooth in teeth:
        share += spectrum.power[tooth]
    if present is not None:
        share -= np.where(present, 0, spectrum.power[teeth[-1]])
    return 2 * share  # each tooth stands for its mirror image above 1/2 too


@lru_cache(maxsize=64)
def comb_moves(
    modulus: int, permutations: int, seed: int, half: int
) -> tuple[Int[np.ndarray, "tooth permutation"], Bool[np.ndarray, "permutation"] | None]:
    """Places of moved teeth on a grid of `half` frequencies up to 1/2, the same for all activations.

    The last tooth of an even modulus, at 1/2, is its own mirror image: it stands for one wave and not for two. Once
    moved it would stand for two, so it is there in every other comb only: right for sines, a little strict for noise.
    """
    generator = np.random.default_rng([seed, modulus])
    teeth = np.arange(1, modulus // 2 + 1)[:, None]
    moved = (teeth + generator.uniform(-0.5, 0.5, (len(teeth), permutations))) / modulus
    places = np.rint(2 * half * np.minimum(moved, 1 - moved)).astype(np.intp)
    return places, generator.random(permutations) < 0.5 if modulus % 2 == 0 else None


def weights(moduli: Sequence[int], expected: int | None = None) -> Float[np.ndarray, "modulus"]:
    """How the error rate is shared out: by 1 / number of teeth, and half of it to the expected modulus.

    >>> weights((2, 3, 5), expected=5).round(2).tolist()
    [0.33, 0.17, 0.5]
    """
    shares = 1 / (np.array(moduli) - 1)
    if expected is None or len(moduli) == 1:
        return shares / shares.sum()
    there = np.array(moduli) == expected
    return np.where(there, 0.5, 0.5 * shares / shares[~there].sum())


def _smallest_sufficient(
    moduli: tuple[int, ...], shares: Float[np.ndarray, "modulus"], p: Float[np.ndarray, "modulus"], n_free: float
) -> int | None:
    """The significant modulus with the best Schwarz criterion; None where none is significant."""
    left = np.clip(1 - shares, 1e-9, None)
    cost = n_free * np.log(left) + (np.array(moduli) - 1) * np.log(n_free)
    return None if p.min() > ALPHA else moduli[int(np.where(p <= ALPHA, cost, np.inf).argmin())]
