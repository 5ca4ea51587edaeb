"""Study 3: which token tells ape where the row begins? Not the first alone: the first several vote."""

from probes.studies.study import Claim, Protocol, seeds
from training.sweep.grid import Cell

VOTERS = 12  # the first so many tokens are moved
N_SEEDS, N_QUICK_SEEDS = 10, 4
SNAPSHOTS = 24

PROTOCOL = Protocol(
    question="Which token tells a modular counter where its row begins?",
    background=(
        "The paper says that modular counters recognise the first token and subtract its position from their own. On "
        "five ape counters (seeds 5 to 9) moving the first token's position id (PID) alone changed most answers but "
        "moved nearly none by as many places, while moving the first five together moved over half of them; no rule "
        "with fixed weights predicted more than 52 % of the answers. That moving a whole row changes nothing cannot "
        "tell: there, all tokens move together. A pilot on the shipped ape, sine and spe counters, after which this "
        "protocol was revised: a vote as below explained 34, 28 and 25 % of where answers count from, the first token "
        "alone 0, 17 and less than 0 %; moving single PIDs by 10 kept 100, 54 and 51 % of the answers, by 5 28, 61 and "
        "62 %; keys and values of the first 12 tokens of layer 1, from rows that begin elsewhere, left 56 % (ape) and "
        "99 % (sine) of the answers as they were; on the ape counter, following a moved beginning had half risen at "
        "step 121, OOD at step 241."
    ),
    hypothesis=(
        "The first several tokens vote. Each points, with a weight of its place, at the beginning that its own PID "
        "implies on a circle of 10; the answer is counted from where the sum points. The vote is taken in layer 0."
    ),
    grid=(
        "mod10 without bos, 2 layers, preset small: ape (with 24 snapshots over training), sine and spe. Seeds 1000 "
        "to 1009, last checkpoint. Quick: ape alone, four seeds."
    ),
    measured={
        "scheme": "ape, sine or spe",
        "ind": "percent right in distribution, last checkpoint",
        "ood": "percent right beyond the training length, last checkpoint",
        "vote_explains": "share of the variance of where a row's answers count from that the vote explains, on rows "
        "that it was not fitted to; below 0 where the mean would do better",
        "vote_explains_long": "the same at tokens 51 to 100 of rows of 100 tokens",
        "first_explains": "the same for a vote with the first token as its only voter",
        "vote_right": "share of answers that count from the residue that the vote points at",
        "first_right": "share of answers that count from what the first token implies",
        "keeps_moved": "share of answers that count from the true beginning all the same",
        "keeps_layer1": "the same if PIDs stay, but keys and values of the first 12 tokens in layer 1 are those of rows "
        "that begin as many places elsewhere",
        "voters": "effective number of voters: (sum of weights)^2 / sum of their squares",
        **{f"weight_{place}": f"share of the weights of token {place}" for place in range(1, VOTERS + 1)},
        "keeps_10": "share of answers that stay when one of the first eight PIDs is moved by 10",
        "keeps_5": "share of answers that stay when it is moved by 5",
        "anchor_first": "what the anchor `first token` predicts in the probe `anchor`",
        "anchor_best": "what the best anchor predicts there",
        "qk_layer0": "share of the variance of layer 0's attention scores over the key's PID at periods that divide 10",
        "qk_layer1": "the same in layer 1, at the mean residual stream of each PID",
        "vote_rise": "training step at which following a moved beginning has done half of its rise (ape)",
        "ood_rise": "training step at which OOD has done half of its rise (ape)",
    },
    analysis=(
        "Rows of 50 tokens; each of the first 12 PIDs is moved, with probability one half, by a step of its own from "
        "-4 to 5 places. Watched are tokens 17 to 50 that are answered right with nothing moved. Each answer is a unit "
        "vector that points at the beginning it counts from, on a circle of 10; a row is their mean. The vote is the "
        "sum of the tokens' unit vectors with weights that are not negative, fitted by least squares to 256 rows and "
        "scored on 256 others. Periods that divide 10: of 120 PIDs, the discrete Fourier components at 10, 5, 10/3, "
        "2.5 and 2; five components taken at random hold 8 % of white noise. Rises: the step at which a curve over "
        "snapshots first passes half of its rise, as in the probe `dynamics`. Means over seeds; 95 % intervals from "
        "drawing seeds again."
    ),
    claims=(
        Claim(
            "more than the first token",
            "On ape, the vote explains more of where answers count from than the first token alone, by more than 0.15.",
            "above",
            0.15,
            "the interval of the difference lies below 0.15",
        ),
        Claim(
            "several voters",
            "On ape, the effective number of voters is above 2.",
            "above",
            2,
            "the interval of the number lies below 2",
        ),
        Claim(
            "blind to ten",
            "On ape, moving single PIDs by 10 keeps more answers than moving them by 5, by more than 20 points: PIDs "
            "are read modulo 10.",
            "above",
            0.2,
            "the interval of the difference lies below 0.2",
        ),
        Claim(
            "a vote and nothing else",
            "On ape, the vote explains more than half. (The pilot speaks against it: then tokens do more than vote.)",
            "above",
            0.5,
            "the interval of the share lies below 0.5",
            is_primary=False,
        ),
        Claim(
            "taken in layer 0",
            "On ape, other keys and values of the first 12 tokens in layer 1 leave more answers as they were than moved "
            "PIDs do, by more than 20 points.",
            "above",
            0.2,
            "the interval of the difference lies below 0.2",
            is_primary=False,
        ),
        Claim(
            "beyond training",
            "On ape, the vote that was fitted to rows of 50 tokens explains more than 0.15 at tokens 51 to 100.",
            "above",
            0.15,
            "the interval of the share lies below 0.15",
            is_primary=False,
        ),
        Claim(
            "in the weights",
            "On ape, more than half of the variance of layer 1's attention scores over the key's PID is at periods "
            "that divide 10.",
            "above",
            0.5,
            "the interval of the share lies below 0.5",
            is_primary=False,
        ),
        Claim(
            "the vote forms first",
            "On ape, following a moved beginning rises before OOD does: log2 of the ratio of their steps is below 0.",
            "below",
            0,
            "the interval of the logarithm lies above 0",
            is_primary=False,
        ),
        Claim(
            "sine as well",
            "On sine, the vote explains more than the first token alone, by more than 0.15.",
            "above",
            0.15,
            "the interval of the difference lies below 0.15",
            is_primary=False,
        ),
        Claim(
            "not spe",
            "On spe, which does not extrapolate, moving PIDs by 10 is hardly better than by 5: less than 20 points.",
            "below",
            0.2,
            "the interval of the difference lies above 0.2",
            is_primary=False,
        ),
    ),
    left_out=("Snapshots of sine and spe (disk space), rows with bos, and moves of tokens after the twelfth."),
)

CELLS: tuple[Cell, ...] = (
    {"task": "mod10", "architecture": "ape", "snapshots": SNAPSHOTS, "seed": seeds(N_SEEDS)},
    {"task": "mod10", "architecture": ["sine", "spe"], "seed": seeds(N_SEEDS)},
)
QUICK_CELLS: tuple[Cell, ...] = (
    {"task": "mod10", "architecture": "ape", "snapshots": SNAPSHOTS, "seed": seeds(N_QUICK_SEEDS)},
)
