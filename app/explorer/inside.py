"""What probes say about the paper's claims: lines for the walk through the paper, from the results of one probe."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from probes.ablation.bos_ablation import BosAblation, lowers
from probes.mechanism.anchors import Anchors
from probes.reading.attention_variation import AttentionVariation
from probes.reading.first_token import READ, FirstToken
from probes.reading.mod_pca import PAPER_CLAIMS, PAPER_SITES, ModPca
from training.paper.finding import Line, bounded

VISIBLE = 50.0  # percent of the variance between clusters from which on they can be seen
MOST = 50.0  # percent of answers: what follows the first token less often goes by something else
FIRST_MOVE = "token 1"  # the kind of move of which `anchor_probe` tells
FIRST = "how well a probe reads the first token"
PLAIN = {"resid_post": "output", "q": "queries", "mlp_post": "MLP"}  # kinds of the paper's sites, for newcomers


def first_token_lines(results: Mapping[str, FirstToken]) -> Iterator[Line]:
    """Whether a probe reads the first token, by architecture; the result says what the paper expects of it."""
    for architecture, found in results.items():
        best = found.best_first.first
        bound = {"below": 100 * READ} if found.claim is False else {"at_least": 100 * READ}
        interval = 100 * best.low, 100 * best.high
        line = bounded(f"{architecture}, {FIRST}", 100 * best.value, None, **bound, decides=bool(found.claim))
        yield _estimated(line, interval, found.claim is not None)


def cluster_lines(results: Mapping[str, ModPca]) -> Iterator[Line]:
    """The clusters by position modulo 10 at the paper's sites, by architecture."""
    for architecture, found in results.items():
        for wanted in PAPER_SITES:
            there = [site for site in found.sites if (site.site.kind, site.site.layer) == (wanted.kind, wanted.layer)]
            clear = max((site.score for site in there if site.period == 10), default=0.0)  # else it could be chance
            expected = PAPER_CLAIMS[architecture]
            bound = {"at_least": VISIBLE} if expected else {"below": VISIBLE}
            name = f"{architecture}, {PLAIN[wanted.kind]} of layer {wanted.layer}"
            yield bounded(name, 100 * clear if there else None, None, **bound, decides=expected)


def subtraction_lines(results: Mapping[str, Anchors]) -> Iterator[Line]:
    """How many answers move with the first token's position id, when that alone is moved, by architecture."""
    for architecture, found in results.items():
        follows = next(move.follows for move in found.moves if move.tokens == FIRST_MOVE)
        name = f"{architecture}, answers that move with the first token"
        line = bounded(name, 100 * follows.value, None, at_least=MOST)
        yield _estimated(line, (100 * follows.low, 100 * follows.high), True)


def attention_lines(results: Mapping[str, AttentionVariation]) -> Iterator[Line]:
    """How far positions move attention scores: surely less than in rope, by architecture."""
    if "rope" not in results:
        return
    rope = results["rope"].at(0)
    for architecture, found in results.items():
        if architecture == "rope":
            continue
        mine = found.at(0)
        expects = f"surely below rope ({100 * rope.ratio:.0f})"
        holds = mine.high < rope.low
        interval = 100 * mine.low, 100 * mine.high
        name = f"{architecture}, positions move scores"
        yield Line(name, expects, 0.0, 100 * rope.low, 100 * mine.ratio, None, holds, interval=interval)


def bos_lines(results: Mapping[str, BosAblation]) -> Iterator[Line]:
    """How often a counter is right with an ordinary token in the place of bos: surely less often than before."""
    for architecture, found in results.items():
        change = found.effect("embedding next").ind
        ours = found.clean_ind + change.value
        interval = found.clean_ind + change.low, found.clean_ind + change.high
        expects = f"surely below {found.clean_ind:.0f}"
        name = f"{architecture}, bos replaced, trained lengths"
        yield Line(name, expects, 0.0, found.clean_ind, ours, None, lowers(change), interval=interval)


def _estimated(line: Line, interval: tuple[float, float], claimed: bool) -> Line:
    """The line with its interval; untested where the paper claims nothing of such a counter."""
    return replace(line, interval=interval, holds=line.holds if claimed else None)
