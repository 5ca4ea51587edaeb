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
        "tell: there, all tokens move together."
    ),
    hypothesis=(
        "The first several tokens vote. Each votes, with a weight of its place, for the beginning that its own PID "
        "implies, modulo 10; the answer is counted from the beginning with most votes."
    ),
    grid=(
        "mod10 without bos, 2 layers, preset small: ape (with 24 snapshots over training), sine and spe. Seeds 1000 "
        "to 1009, last checkpoint. Quick: ape alone, four seeds."
    ),
    measured={
        "scheme": "ape, sine or spe",
        "ind": "percent right in distribution, last checkpoint",
        "ood": "percent right beyond the training length, last checkpoint",
        "vote": "share of answers to moved PIDs that the fitted vote predicts, on rows that it was not fitted to",
        "vote_long": "the same at tokens 51 to 100 of rows of 100 tokens",
        "first": "the same share for the same kind of vote with the first token as its only voter",
        "first_exactly": "share of answers that are counted from the first token's PID",
        "null": "share that the vote's predictions for other rows get",
        "voters": "effective number of voters: (sum of weights)^2 / sum of their squares",
        "first_weight": "the first token's share of the weights",
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
        "-4 to 5 places. Watched are tokens 17 to 50 that are answered right with nothing moved. The vote for each "
        "residue is the sum over tokens of a weight of the place times a kernel of the circular distance from the "
        "implied beginning; weights (not negative) and kernel are fitted by alternating least squares to 256 rows and "
        "scored on 256 others. Periods that divide 10: of 120 PIDs, the discrete Fourier components at 10, 5, 10/3, "
        "2.5 and 2; five components taken at random hold 8 % of white noise. Rises: the step at which a curve over "
        "snapshots first passes half of its rise, as in the probe `dynamics`. Means over seeds; 95 % intervals from "
        "drawing seeds again."
    ),
    claims=(
        Claim(
            "more than the first token",
            "On ape, the vote predicts more answers than the first token alone does, by more than 10 points.",
            "above",
            0.10,
            "the interval of the difference lies below 0.10",
        ),
        Claim(
            "the vote explains",
            "On ape, the vote predicts more than half of the answers to moved PIDs.",
            "above",
            0.5,
            "the interval of the share lies below 0.5",
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
            "several voters",
            "On ape, the effective number of voters is above 2.",
            "above",
            2,
            "the interval of the number lies below 2",
            is_primary=False,
        ),
        Claim(
            "beyond training",
            "On ape, the vote that was fitted to rows of 50 tokens predicts more than half of the answers at tokens "
            "51 to 100.",
            "above",
            0.5,
            "the interval of the share lies below 0.5",
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
            "On sine, the vote predicts more answers than the first token alone does, by more than 10 points.",
            "above",
            0.10,
            "the interval of the difference lies below 0.10",
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
    left_out=(
        "Snapshots of sine and spe (disk space), rows with bos, and moves of tokens after the twelfth. The kernel of "
        "the vote is the same for all tokens."
    ),
)

CELLS: tuple[Cell, ...] = (
    {"task": "mod10", "architecture": "ape", "snapshots": SNAPSHOTS, "seed": seeds(N_SEEDS)},
    {"task": "mod10", "architecture": ["sine", "spe"], "seed": seeds(N_SEEDS)},
)
QUICK_CELLS: tuple[Cell, ...] = (
    {"task": "mod10", "architecture": "ape", "snapshots": SNAPSHOTS, "seed": seeds(N_QUICK_SEEDS)},
)
