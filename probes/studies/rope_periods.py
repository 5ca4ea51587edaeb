"""Study 2: why does rope not count modulo 10? Its periods do not fit the base.

Trained with two waves that do, it does; and turning those waves of bos' key turns the answer, like the hand of a clock.
"""

from probes.studies.study import Claim, Protocol, seeds
from training.sweep.grid import Cell

BASES = tuple(range(4, 13))
DOSE_BASES = (7, 10)  # 10 is the paper's; 7 is prime, and far from the usual waves' periods
FACTORS = (1.0, 1.0025, 1.005, 1.01, 1.02, 1.037, 1.08)
EXACT, DETUNED = 1.0, 1.037
N_SEEDS, N_QUICK_SEEDS = 10, 4
SINE = {"d_model": 128, "n_heads": 1}  # a quarter of the preset's cost

PROTOCOL = Protocol(
    question="Why does rope, whose rotation is periodic, not count modulo 10?",
    background=(
        "The paper finds that rope does not extrapolate in modular counting, and wonders at it. Rope's usual periods "
        "(6.3, 19.9, 62.8, ... positions at 16 columns a head) are no multiples of 10; the second misses 20 by 0.7 %. "
        "Pilots with bos on other seeds: two waves replaced by periods of 10 and 20 reached a last OOD of 84 and 99, "
        "with 10.37 and 20.74 it was 39 and 30, with the usual ones 22 at best. Fourier Position Embedding (arXiv "
        "2412.17739) repairs rope's frequencies for longer contexts, and arXiv 2601.22690 is about how periodicity "
        "generalises; here one known period is set, detuned in steps, and turned inside trained counters."
    ),
    hypothesis=(
        "The counter reads the distance to bos off its waves as off a clock. It counts on beyond training if a wave "
        "comes round exactly with the base, and the worse the more the wave is detuned."
    ),
    grid=(
        "mod b with bos, b = 4..12, rope, 2 layers, preset small: the first two waves with periods b and 2b (exact), "
        "the same times 1.037 (detuned), or the usual ones. For b = 7 and 10 also times 1.0025, 1.005, 1.01, 1.02 and "
        "1.08. Sister experiment: mod10 without bos, sine, 128 wide, first two waves exact, detuned or usual. "
        "Seeds 1000 to 1009, last checkpoint. Quick: b = 7 and 10, exact, times 1.01, detuned and usual, and sine "
        "exact and detuned, four seeds."
    ),
    measured={
        "scheme": "rope or sine",
        "base": "b, of mod b",
        "arm": "exact, detuned (by any factor) or usual",
        "factor": "what the exact periods are multiplied by; none with the usual periods",
        "ind": "percent right in distribution, last checkpoint",
        "ood": "percent right beyond the training length, last checkpoint",
        "clock_follows": "share of answers that move by m when the first two waves of bos' key are turned by m places",
        "others_follow": "the same when all other waves of bos' key are turned instead, and the first two are not",
        "all_follow": "the same when all waves of bos' key are turned: as if bos stood m places further on",
        "exchanged_ood": "OOD after the first two waves of the trained counter are given the exact periods",
    },
    analysis=(
        "Means over seeds, then over bases; 95 % intervals from drawing whole seeds again. Turned waves: rows of the "
        "training length, every m from 1 to b - 1, tokens that are answered right with nothing turned and whose "
        "implied count lies in the trained range. Dose-response: Spearman's rank correlation of factor and OOD over "
        "the runs of bases 7 and 10, and the mean distance of the curve from that of an ideal clock: one whose hand "
        "has the detuned period 2b, and whose answer is that of the nearest hand position seen in training."
    ),
    claims=(
        Claim(
            "exact beats detuned",
            "Exact periods raise OOD by more than 15 points over periods that are 3.7 % longer (mean over bases).",
            "above",
            15,
            "the interval of the difference lies below 15 points",
            unit="points",
        ),
        Claim(
            "exact beats usual",
            "Exact periods raise OOD by more than 15 points over the usual ones (mean over bases).",
            "above",
            15,
            "the interval of the difference lies below 15 points",
            unit="points",
        ),
        Claim(
            "dose and response",
            "The more the periods are detuned, the lower is OOD: rank correlation below -0.5.",
            "below",
            -0.5,
            "the interval of the correlation lies above -0.5",
        ),
        Claim(
            "the clock turns the answer",
            "In exact counters, turning the two waves of bos' key by m places moves answers by m more often, by over "
            "a quarter of all answers, than turning all its other waves.",
            "above",
            0.25,
            "the interval of the difference of both shares lies below 0.25",
        ),
        Claim(
            "an ideal clock",
            "The dose-response curve is that of an ideal clock, within 15 points on average.",
            "below",
            15,
            "the interval of the mean distance lies above 15 points",
            is_primary=False,
            unit="points",
        ),
        Claim(
            "every base",
            "No base is an exception: the least difference of exact over detuned is above 0.",
            "above",
            0,
            "the interval of the least difference lies below 0",
            is_primary=False,
            unit="points",
        ),
        Claim(
            "too late after training",
            "Exact periods given to detuned counters after training raise OOD by less than 10 points.",
            "below",
            10,
            "the interval of the gain lies above 10 points",
            is_primary=False,
            unit="points",
        ),
        Claim(
            "sine as well",
            "Sine gains more than 10 points of OOD from exact periods over detuned ones. An earlier try with one such "
            "wave, 64 wide, showed no gain; if there is none, the finding is about rope alone.",
            "above",
            10,
            "the interval of the difference lies below 10 points",
            is_primary=False,
            unit="points",
        ),
    ),
    left_out=(
        "Sine at its preset's 256 columns, other bases than 10 for sine, and the dose-response of the other seven "
        "bases: each would have doubled the cost of about one and a half core hours."
    ),
)


def _rope(base: int, factors: tuple[float, ...], usual: bool, number: int) -> list[Cell]:
    common: Cell = {"task": f"mod{base}", "bos": True, "architecture": "rope", "seed": seeds(number)}
    tuned: Cell = common | {"periods": [periods_of(base, factor) for factor in factors]}
    return [tuned, common] if usual else [tuned]


def periods_of(base: int, factor: float) -> list[float]:
    """The periods of the first two waves: the base and its double, detuned.

    >>> periods_of(7, 1.037)
    [7.259, 14.518]
    """
    return [round(base * factor, 6), round(2 * base * factor, 6)]


def _sine(factors: tuple[float, ...], usual: bool, number: int) -> list[Cell]:
    common: Cell = {"task": "mod10", "architecture": "sine", "seed": seeds(number)} | SINE
    tuned: Cell = common | {"periods": [periods_of(10, factor) for factor in factors]}
    return [tuned, common] if usual else [tuned]


CELLS = (
    *(
        cell
        for base in BASES
        for cell in _rope(base, FACTORS if base in DOSE_BASES else (EXACT, DETUNED), True, N_SEEDS)
    ),
    *_sine((EXACT, DETUNED), True, N_SEEDS),
)
QUICK_CELLS = (
    *(cell for base in DOSE_BASES for cell in _rope(base, (EXACT, 1.01, DETUNED), True, N_QUICK_SEEDS)),
    *_sine((EXACT, DETUNED), False, N_QUICK_SEEDS),
)
