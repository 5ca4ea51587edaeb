"""Do activations repeat every m positions? A cluster score and a p-value for every modulus m.

Activations x[pos] cluster by pos mod m exactly if they have period m, that is, if all their power lies on a comb of
frequencies k/m (its *teeth*). The score is the share of their variance that the clusters explain, from 0 (chance) to 1.
Shuffled positions are not a fair null for it: a sine of any frequency is nearer to some period than shuffled positions
are. The null here moves the teeth instead, each to a random place within half a tooth spacing. A moved comb has as many
teeth in the same parts of the spectrum. So it explains as much of drift, coloured noise and sines of other frequencies
as the true comb, which explains more only if the power is on its teeth and not beside them.

1. *Drift* (everything slower than twice the largest modulus) is removed, then what a position inherits from the one
   before it (first-order autoregression). Noise of any smooth spectrum is nearly white after that.
2. The ends are tapered, so that the rest of a drift does not leak over the whole spectrum.
3. All numbers follow from agreement[lag], summed over columns: the variance within clusters is a sum over the lags that
   are multiples of m, and the power at any frequency is a cosine transform.
4. `p_alone` of a modulus is the share of moved combs that explain as much as its own. `p` corrects for the number of
   moduli (Sidak, each weighted by 1 / (m - 1), since a long period has many teeth and a short one few; a modulus that
   is *expected* beforehand gets half of the weight).
5. A period of 5 is also one of 10, 15 and 20. Among the moduli with p <= 0.05 the period is the one that describes the
   activations best by Schwarz's criterion, which penalises the number of clusters.
6. It must last (`reading.lasting`): half a row apart, surely more than half of the agreement between neighbouring parts
   must be left. Otherwise it *fades*, as a noisy oscillator, a period that stops, or one whose phase drifts.

One pure sine is near k/m for some m <= 20, whatever its frequency. So a circle is no proof of a period among 19
candidates, but it is one for the expected modulus. Clusters, whose power is on several teeth, are a proof for both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.signal.windows import tukey

from models.errors import CountLensError
from probes.reading.lasting import PARTS, Lasting, measure_lasting
from probes.reading.pca import ROUNDING
from probes.stats import ALPHA, Interval, jackknife

LARGEST_MODULUS = 20
USUAL_MODULUS = 10  # if a task has no base: the paper's
LEAST_ROUNDS = PARTS  # a period must occur so often, once in every part of the row
PERMUTATIONS = 40_000  # enough for p < 0.001 after correction
TAPERED = 0.5  # share of the positions that the taper touches

Innovations = Float[np.ndarray, "step d"]


@dataclass(frozen=True)
class Periods:
    """Scores and p-values of each modulus, and the period that follows from them."""

    moduli: tuple[int, ...]
    scores: Float[np.ndarray, "modulus"]  # share of variance that clusters explain, adjusted: 0 is chance, 1 is all
    null95: Float[np.ndarray, "modulus"]  # the score below which 95 % of moved combs are
    p_alone: Float[np.ndarray, "modulus"]  # p-value if the modulus were the only one
    p: Float[np.ndarray, "modulus"]  # corrected for all moduli
    period: int | None  # the modulus that explains the activations over the whole row; None if there is none
    fading: int | None  # the modulus that explains them, but not surely over the whole row; else None
    strength: Interval  # the score of the best modulus
    lasting: Lasting  # how much of the best modulus is left half a row apart
    expected: int | None  # the modulus that was expected beforehand
    varies: bool  # False if activations vary by nothing but drift

    @property
    def best(self) -> int:
        """The index of the period, lasting or not, or else of the modulus with the smallest p."""
        period = self.fading if self.period is None else self.period
        return int(self.p.argmin()) if period is None else self.moduli.index(period)


@dataclass(frozen=True)
class Spectrum:
    """The power of tapered activations, scaled such that a pure wave on one tooth has a share of 1."""

    agreement: Float[np.ndarray, "lag"]  # sum over positions and columns of x[pos] * x[pos + lag]
    power: Float[np.ndarray, "frequency"]  # share of variance at frequencies 0 to 1/2
    width: float  # the number of independent frequencies that one tooth covers because of the taper


def usual_moduli(n_pos: int) -> tuple[int, ...]:
    """The moduli from 2 to 20 of which the positions hold six rounds."""
    return tuple(range(2, min(LARGEST_MODULUS, n_pos // LEAST_ROUNDS) + 1))


def find_period(
    activations: Float[np.ndarray, "pos d"],
    moduli: Sequence[int] | None = None,
    expected: int | None = None,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Periods:
    """The cluster scores and p-values of all moduli, and the period, of activations at contiguous positions."""
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
    shares = np.array([comb_share(spectrum, modulus) for modulus in tried])
    null = [moved_comb_shares(spectrum, modulus, permutations, seed) for modulus in tried]
    exceed = np.array([(moved >= share).sum() for moved, share in zip(null, shares, strict=True)])
    p_alone = (1 + exceed) / (1 + permutations)
    p = 1 - (1 - p_alone) ** (1 / weights(tried, expected))
    at = int((1 - ALPHA) * (permutations - 1))
    null95 = np.array([np.partition(moved, at)[at] for moved in null])
    scores, band = adjust_for_chance(spectrum, tried, shares), adjust_for_chance(spectrum, tried, null95)
    candidate = _best_significant(tried, shares, p, len(steps) / spectrum.width)
    best = tried[int(p.argmin())] if candidate is None else candidate
    left = measure_lasting(steps, best)
    period, fading = (candidate, None) if left.surely else (None, candidate)
    strength = _strength(steps, best, float(scores[tried.index(best)]))
    return Periods(tried, scores, band, p_alone, p, period, fading, strength, left, expected, varies=True)


def _strength(steps: Innovations, modulus: int, score: float) -> Interval:
    """The score with an interval, whose width is that of the plain cluster share under a jackknife over parts."""
    part = np.arange(len(steps)) * PARTS // len(steps)
    residues = np.arange(len(steps)) % modulus

    def clustered(kept: Int[np.ndarray, "part"]) -> Float[np.ndarray, "1"]:
        here = np.isin(part, kept)
        return np.array([clustered_share(steps[here], residues[here], modulus)])

    (plain,) = jackknife(clustered, PARTS)
    return Interval(score, score - (plain.value - plain.low), min(1.0, score + (plain.high - plain.value)))


def clustered_share(x: Float[np.ndarray, "pos d"], groups: Int[np.ndarray, "pos"], number: int) -> float:
    """The share of the variance between the means of groups, adjusted so that 0 is chance."""
    x = x - x.mean(0, dtype=np.float64)
    members = (groups[:, None] == np.arange(number)).astype(float)
    sums, sizes = members.T @ x, members.sum(0)
    total = (x**2).sum()
    if total == 0:
        return 0.0
    between = ((sums**2).sum(1) / np.maximum(sizes, 1)).sum()
    return float(1 - (total - between) / total * (len(x) - 1) / (len(x) - (sizes > 0).sum()))


def cluster_score(activations: Float[np.ndarray, "pos d"], modulus: int) -> float:
    """The cluster score of one modulus, without a p-value; `find_period` may remove more drift and differ a little."""
    _check([modulus], len(activations))
    steps = innovations(activations, slowest=2 * min(LARGEST_MODULUS, len(activations) // LEAST_ROUNDS))
    if steps is None:
        return 0.0
    spectrum = spectrum_of(steps)
    return float(adjust_for_chance(spectrum, [modulus], np.array([comb_share(spectrum, modulus)]))[0])


def adjust_for_chance(
    spectrum: Spectrum, moduli: Sequence[int], shares: Float[np.ndarray, "modulus"]
) -> Float[np.ndarray, "modulus"]:
    """Shares of variance on a scale on which white noise has 0."""
    chance = spectrum.width * (np.array(moduli) - 1) / len(spectrum.agreement)
    return (shares - chance) / (1 - chance)


def _check(moduli: Sequence[int], n_pos: int) -> None:
    """Refuses moduli below 2, and those of which the positions hold too few rounds."""
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
    """The activations without drift slower than a period of `slowest`, and without what each keeps of the one before.

    None if they vary by nothing but drift.
    """
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
    """The agreement and power of the activations, summed over columns, so that rotations do not change them."""
    n_pos, half = len(steps), half_grid(len(steps))
    taper = tukey(n_pos + 2, TAPERED)[1:-1]
    tapered = steps * taper[:, None]
    transform = np.fft.rfft(tapered, 2 * n_pos, axis=0)
    peak = (taper**2).sum() / taper.sum() ** 2
    scale = peak / (tapered**2).sum()
    agreement = scale * np.fft.irfft((np.abs(transform) ** 2).sum(1))[:n_pos]
    # Padded with so many zeros that the power of a moved tooth can be read off at the nearest frequency.
    wrapped = np.concatenate([agreement, np.zeros(2 * half - 2 * n_pos + 1), agreement[:0:-1]])
    return Spectrum(agreement, np.fft.rfft(wrapped).real, peak * n_pos)


def half_grid(n_pos: int) -> int:
    """The number of frequencies from 0 to 1/2 that are computed: about 60 per independent one."""
    return max(4096, 1 << (32 * n_pos - 1).bit_length())


def comb_share(spectrum: Spectrum, modulus: int) -> float:
    """The share of variance on the teeth 1/m .. (m-1)/m: lags that are multiples of m add to it, others subtract."""
    lags = np.arange(1, len(spectrum.agreement))
    signs = np.where(lags % modulus == 0, modulus - 1, -1)
    return float((modulus - 1) * spectrum.agreement[0] + 2 * signs @ spectrum.agreement[1:])


def moved_comb_shares(
    spectrum: Spectrum, modulus: int, permutations: int, seed: int
) -> Float[np.ndarray, "permutation"]:
    """The share of variance that each randomly moved comb explains."""
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
    """The places of moved teeth on a grid of `half` frequencies up to 1/2, and which combs have their last tooth.

    They are the same for all activations. The last tooth of an even modulus, at 1/2, is its own mirror image: it stands
    for one wave, not two. Moved, it would stand for two, so only every other comb has it. That is right for sines and
    a little strict for noise. For odd moduli the second value is None: all combs have all teeth.
    """
    generator = np.random.default_rng([seed, modulus])
    teeth = np.arange(1, modulus // 2 + 1)[:, None]
    moved = (teeth + generator.uniform(-0.5, 0.5, (len(teeth), permutations))) / modulus
    places = np.rint(2 * half * np.minimum(moved, 1 - moved)).astype(np.intp)
    return places, generator.random(permutations) < 0.5 if modulus % 2 == 0 else None


def weights(moduli: Sequence[int], expected: int | None = None) -> Float[np.ndarray, "modulus"]:
    """The share of the error rate of each modulus: in proportion to 1 / (m - 1), or half of it if m is expected.

    >>> weights((2, 3, 5), expected=5).round(2).tolist()
    [0.33, 0.17, 0.5]
    """
    shares = 1 / (np.array(moduli) - 1)
    if expected is None or len(moduli) == 1:
        return shares / shares.sum()
    is_expected = np.array(moduli) == expected
    return np.where(is_expected, 0.5, 0.5 * shares / shares[~is_expected].sum())


def _best_significant(
    moduli: tuple[int, ...], shares: Float[np.ndarray, "modulus"], p: Float[np.ndarray, "modulus"], n_free: float
) -> int | None:
    """The significant modulus with the best Schwarz criterion; None if none is significant."""
    left = np.clip(1 - shares, 1e-9, None)
    cost = n_free * np.log(left) + (np.array(moduli) - 1) * np.log(n_free)
    return None if p.min() > ALPHA else moduli[int(np.where(p <= ALPHA, cost, np.inf).argmin())]
