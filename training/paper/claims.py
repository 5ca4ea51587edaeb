"""The paper's claims in its order, each with a test on our scores.

Claims about the inside of counters are also tested by probes, which this room does not know: `app/explorer/walk.py`
adds their lines.

A claim that some can and others cannot count is tested on each of them. What decides it is marked there: a zoo in which
everything fails does not confirm in part that nope fails.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from training.paper.agreement import SUCCESS, Side
from training.paper.finding import Finding, Line, bounded, exceeding
from training.paper.tables import printed

if TYPE_CHECKING:  # needs pandas, which the first page of the explorer does not wait for
    from training.paper.comparison import ComparedCell, Comparison

SIDES: dict[Side, str] = {"ind": "trained lengths", "ood": "longer rows"}
GUESSING = 15.0  # percent: the best constant answer to modular rows is right in 11.8
HALF = 50.0
FIT_ALONE = 5.0  # percent: vanilla counting answered by one number
LARGE_GAP = 20.0  # points between the best seed and the median one
LEAST_SEEDS = 3  # for a median to say something
MAIN, RECURRENT_TABLE = "counting_results", "counting_results_other_architectures"
SCHEMES = ("nope", "sine", "ape", "rope", "spe")
OTHERS = ("sine", "ape", "rope", "spe")
LAYERS = (1, 2, 4)


@dataclass(frozen=True)
class PaperClaim:
    """A claim of the paper."""

    title: str
    section: str
    sentence: str
    how: str  # how it is tested, for whoever has not read the paper
    lines: Callable[["Comparison"], Iterator[Line]]  # what our scores say


def judge(claim: PaperClaim, comparison: "Comparison") -> Finding:
    """What our scores say about a claim."""
    return Finding(tuple(claim.lines(comparison)))


def _cell(comparison: "Comparison", table: str, **fields: Any) -> "ComparedCell":
    """The cell of a table with these values."""
    cells = next(compared.cells for compared in comparison.tables if compared.name == table)
    return next(cell for cell in cells if all(getattr(cell.paper, name) == value for name, value in fields.items()))


def _score(cell: "ComparedCell", side: Side) -> float | None:
    return None if cell.numbers is None else float(getattr(cell.numbers, side))


def _name(cell: "ComparedCell", side: Side) -> str:
    paper = cell.paper
    bos = " with bos" * paper.bos
    size = f"{paper.width} wide" if paper.width else f"{paper.layers} layer{'s' * (paper.layers > 1)}"
    return f"{paper.architecture}{bos}, {size}, {SIDES[side]}"


def _within(cell: "ComparedCell", side: Side, name: str = "", decides: bool = True, **bound: Any) -> Line:
    """A line that a score lies on one side of a number: `at_least`, `at_most` or `below`."""
    paper = getattr(cell.paper, side)
    return bounded(
        name or _name(cell, side), _score(cell, side), paper, **bound, decides=decides, **_origin(cell, side)
    )


def _above(cell: "ComparedCell", other: "ComparedCell", decides: bool = True) -> Line:
    """A line that one counter is right beyond training lengths more often than another."""
    name, than = _name(cell, "ood"), _score(other, "ood")
    numbers = _score(cell, "ood"), cell.paper.ood
    return exceeding(name, *numbers, other.paper.architecture, than, decides=decides, **_origin(cell, "ood"))


def _origin(cell: "ComparedCell", side: Side) -> dict[str, Any]:
    """The counter that a line is of, and why it differs from the paper's, with the scores of all seeds."""
    reason, scores = cell.reason, cell.by_seed(side)
    if reason is not None and len(scores) > 1:
        reason = f"{reason} (our seeds: {', '.join(map(printed, scores))})"
    return {"run": cell.ours.name if cell.ours else None, "reason": reason}


def _succession(comparison: "Comparison") -> Iterator[Line]:
    for scheme in SCHEMES:
        for layers in (2, 4):
            cell = _cell(comparison, MAIN, task="vanilla_succession", architecture=scheme, layers=layers)
            yield _within(cell, "ood", at_most=GUESSING)


def _helper(comparison: "Comparison") -> Iterator[Line]:
    for scheme in SCHEMES:
        cells = [_cell(comparison, MAIN, task="helper", architecture=scheme, layers=layers) for layers in (2, 4)]
        best = max(cells, key=lambda cell: _score(cell, "ood") or -1.0)
        yield _within(best, "ood", at_least=HALF)


def _shifted_start(comparison: "Comparison") -> Iterator[Line]:
    for scheme in ("rope", "nope", "sine", "ape", "spe"):
        for layers in reversed(LAYERS):
            cell = _cell(comparison, MAIN, task="shifted_start", architecture=scheme, layers=layers)
            succeeds = (scheme, layers) == ("rope", 4)
            bound: dict[str, Any] = {"at_least": SUCCESS} if succeeds else {"below": SUCCESS}
            yield _within(cell, "ood", **bound, decides=succeeds)


def _far_extrapolation(comparison: "Comparison") -> Iterator[Line]:
    for train_length, ood_length in ((25, 100), (50, 200), (25, 200)):
        lengths = {"train_length": train_length, "ood_length": ood_length}
        cell = _cell(comparison, "shiftedstart_extremify_ratio", **lengths)
        yield _within(cell, "ood", at_most=HALF, name=f"rope, 4 layers, from {train_length} to {ood_length} tokens")


def _modular(comparison: "Comparison") -> Iterator[Line]:
    cells = {scheme: _cell(comparison, MAIN, task="mod10", architecture=scheme, layers=2) for scheme in SCHEMES}
    for scheme in ("ape", "sine"):
        yield _within(cells[scheme], "ood", at_least=SUCCESS)
    yield _within(cells["spe"], "ind", at_least=SUCCESS, decides=False)
    yield _within(cells["spe"], "ood", at_most=GUESSING, decides=False)
    for scheme in ("nope", "rope"):
        yield _within(cells[scheme], "ind", at_most=GUESSING, decides=False)


def _selective(comparison: "Comparison") -> Iterator[Line]:
    two = {scheme: _cell(comparison, MAIN, task="selective", architecture=scheme, layers=2) for scheme in SCHEMES}
    for scheme in OTHERS:
        yield _above(two["nope"], two[scheme])
    four = {scheme: _cell(comparison, MAIN, task="selective", architecture=scheme, layers=4) for scheme in SCHEMES}
    for scheme in SCHEMES:
        bound: dict[str, Any] = {"below": SUCCESS} if scheme == "rope" else {"at_least": SUCCESS}
        yield _within(four[scheme], "ood", **bound, decides=scheme != "rope")


def _first_token(comparison: "Comparison") -> Iterator[Line]:
    table = "first_tok_homogeneous_results"
    for scheme in ("sine", "ape", "spe", "nope", "rope"):
        cell = _cell(comparison, table, architecture=scheme, width=32)
        if scheme in ("nope", "rope"):
            yield _within(cell, "ind", at_most=FIT_ALONE, name=f"{scheme}, equal tokens", decides=False)
        else:
            yield _within(cell, "ood", at_least=SUCCESS, name=f"{scheme}, equal tokens")
    table = "first_tok_heterogeneous_results"
    causal, blind = (_cell(comparison, table, causal=causal) for causal in (True, False))
    yield _within(causal, "ood", at_least=SUCCESS, name="nope, different tokens")
    yield _within(blind, "ood", at_most=FIT_ALONE, name="nope, different tokens, no causal mask", decides=False)


def _no_scores(comparison: "Comparison") -> Iterator[Line]:
    """The tables say nothing of what is inside a counter."""
    return iter(())


def _position_blind(comparison: "Comparison") -> Iterator[Line]:
    cells = {scheme: _cell(comparison, "selective_bos", bos=True, architecture=scheme, layers=1) for scheme in SCHEMES}
    for scheme in ("nope", "sine", "ape", "spe"):
        yield _above(cells[scheme], cells["rope"])


def _bos(comparison: "Comparison") -> Iterator[Line]:
    for scheme in ("nope", "rope"):
        for bos in (False, True):
            cell = _cell(comparison, "bos", task="mod10", architecture=scheme, layers=2, bos=bos)
            bound: dict[str, Any] = {"at_least": SUCCESS} if bos else {"at_most": GUESSING}
            yield _within(cell, "ind", **bound, name=f"{scheme} {'with' if bos else 'without'} bos, {SIDES['ind']}")


def _recurrent(comparison: "Comparison") -> Iterator[Line]:
    for family in ("rnn", "lstm"):
        for task in ("shifted_start", "mod10", "selective"):
            cell = _cell(comparison, RECURRENT_TABLE, task=task, architecture=family, layers=1)
            low = 90.0 if (family, task) == ("rnn", "selective") else SUCCESS  # the paper: it slightly falls short
            yield _within(cell, "ood", at_least=low, name=f"{family}, {task}, {SIDES['ood']}")
    for family in ("mamba", "rwkv6"):
        cell = _cell(comparison, RECURRENT_TABLE, task="mod10", architecture=family, layers=1)
        yield _within(cell, "ood", at_most=GUESSING, name=f"{family}, mod10, {SIDES['ood']}", decides=False)
    cell = _cell(comparison, RECURRENT_TABLE, task="selective", architecture="s4", layers=1)
    yield _within(cell, "ood", below=SUCCESS, name=f"s4, selective, {SIDES['ood']}", decides=False)


def _medians(comparison: "Comparison") -> Iterator[Line]:
    """Where the paper's best seed and its median one lie far apart, so should ours; and where they do not, not."""
    gaps: dict[
        str, list[tuple[float, float | None, str | None]]
    ] = {}  # by architecture: the paper's, ours, and of what
    for table in (MAIN, RECURRENT_TABLE):
        for cell in next(compared.cells for compared in comparison.tables if compared.name == f"{table}_median"):
            paper = cell.paper
            same = {name: getattr(paper, name) for name in ("task", "architecture", "layers", "bos")}
            gap = _cell(comparison, table, **same).paper.ood - paper.ood
            ours = cell.ours if cell.ours and cell.ours.seeds >= LEAST_SEEDS else None
            seeds = [seed.ood for seed in ours.scores["best"]] if ours else []
            mine = max(seeds) - median(seeds) if seeds else None
            gaps.setdefault(paper.architecture, []).append((gap, mine, ours.name if ours else None))
    for architecture in ("sine", "ape", "spe", "mamba", "rwkv6"):
        telling = [gap for gap in gaps[architecture] if gap[0] >= LARGE_GAP]
        paper_gap, ours_gap, run = max(telling, key=lambda gap: (-1.0 if gap[1] is None else gap[1], gap[0]))
        yield bounded(f"{architecture}, best seed minus median", ours_gap, paper_gap, at_least=LARGE_GAP, run=run)
    for architecture in ("nope", "rnn", "lstm", "s4"):
        paper_gap, ours_gap, run = max(gaps[architecture], key=lambda gap: -1.0 if gap[1] is None else gap[1])
        name = f"{architecture}, best seed minus median"
        yield bounded(name, ours_gap, paper_gap, below=LARGE_GAP, decides=False, run=run)


CLAIMS: dict[str, PaperClaim] = {
    "succession": PaperClaim(
        "The list of numbers does not help",
        "section 4",
        "A model that can recite 1, 2, … 100 and has counted up to 50 things still cannot count to 51.",
        "The number list is added to the training rows; the counter is then asked to count more things than it saw.",
        _succession,
    ),
    "helper": PaperClaim(
        "A helper token makes it easy",
        "section 4",
        "Who has counted bananas up to 100 can also count apples beyond the 50 seen in training, under every scheme.",
        "A second token is counted up to 100 in training, the main one only up to 50. Shown is the better of 2 and 4 "
        "layers; the claim wants most answers beyond 50 right.",
        _helper,
    ),
    "shifted start": PaperClaim(
        "From a shifted start, only rope goes on",
        "section 4",
        "When a row begins at any number, so that all number words are known, only rope with four layers counts more "
        "things than it saw.",
        "Rows begin with a number k and go on from k + 1; training counts up to 50 things, the test more.",
        _shifted_start,
    ),
    "far extrapolation": PaperClaim(
        "And rope does not go far",
        "section 5, appendix G",
        "What rope learns is fragile: four times the training length is too much for it.",
        "The same task with other lengths in training and test.",
        _far_extrapolation,
    ),
    "modular": PaperClaim(
        "Modulo 10, ape and sine go on",
        "section 4",
        "ape and sine count modulo 10 beyond training lengths; spe breaks off there; nope and rope never learn it.",
        "Rows of equal tokens, up to 50 in training and 51 to 100 in the test, at every start position. Whoever always "
        "answers the same is right in 11.8 % of cases.",
        _modular,
    ),
    "selective": PaperClaim(
        "Counting each kind by itself",
        "section 4",
        "With two layers nope counts best how often a token occurred before; with four layers all but rope can.",
        "Rows of ten kinds of tokens, longer in the test than in training.",
        _selective,
    ),
    "first token": PaperClaim(
        "First step of counting modulo 10: recognise the first token",
        "section 5, appendices D and E",
        "Counting starts by recognising the first token; nope and rope cannot, when all tokens are equal.",
        "Counters trained on nothing but this task; and a linear probe that looks for the first token inside counters "
        "trained to count modulo 10 (100 % is always, 50 % is chance).",
        _first_token,
    ),
    "clusters": PaperClaim(
        "Second step: positions modulo 10",
        "section 5, appendix D",
        "In modular counters that extrapolate (ape, sine), states cluster by position modulo 10; in spe they do not.",
        "At the three places that the paper draws: the share of the variance that lies between positions which "
        "differ modulo 10, if it is more than chance. From 50 % on, clusters can be seen.",
        _no_scores,
    ),
    "subtraction": PaperClaim(
        "Third step: subtract the first token's position",
        "section 5",
        "Each token subtracts the first token's position from its own, modulo 10; that is the answer.",
        "The position id of the first token alone is moved by some places. If the claim holds, all later answers move "
        "by as many; shown is how many do.",
        _no_scores,
    ),
    "attention": PaperClaim(
        "Selective counting wants attention that ignores position",
        "section 5, appendix E",
        "Selective counting wants attention that ignores position; rope's cannot.",
        "With a first token of its own, every other scheme should count beyond training better than rope. And inside: "
        "how far positions move attention scores, in percent of how far the choice of tokens moves them.",
        _position_blind,
    ),
    "bos": PaperClaim(
        "nope and rope need a first token of its own",
        "appendix C",
        "nope and rope need a bos token as an anchor to count from.",
        "Counters trained without and with bos; and how often those trained with it are right once an ordinary token "
        "stands in its place.",
        _bos,
    ),
    "recurrent": PaperClaim(
        "Recurrent models count; newer ones less so",
        "section 6, appendix A",
        "RNN and LSTM count beyond training with one layer; S4, Mamba and RWKV-6, made to train in parallel, each fail "
        "somewhere.",
        "The same tasks, one layer.",
        _recurrent,
    ),
    "medians": PaperClaim(
        "Luck with the seed",
        "appendix B",
        "Where sine, ape, spe, Mamba or RWKV-6 can extrapolate, many of their seeds still do not.",
        f"Points of accuracy between the best seed and the median one, where the paper's are {LARGE_GAP:.0f} or more "
        f"apart and we have {LEAST_SEEDS} seeds or more.",
        _medians,
    ),
}
