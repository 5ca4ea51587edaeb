"""Study 1: does the mechanism, measured inside the training range, predict extrapolation?"""

from probes.studies.study import Protocol, StudyClaim, seeds
from training.sweep.grid import Cell

SCHEMES = ("ape", "sine")
DECAYS = (0.1, 1.0)
N_SEEDS, N_QUICK_SEEDS = 16, 6

PROTOCOL = Protocol(
    question="Does the mechanism, measured inside the training range, predict how well a counter extrapolates?",
    background=(
        "Pilot on 18 ape counters: interchange accuracy on rows of the training length correlated 0.84 with OOD; IND "
        "accuracy, loss, margin and weight norm did not (at most 0.35). Its splits were chosen after seeing data. "
        '"Internal Causal Mechanisms Robustly Predict Language Model Out-of-Distribution Behaviors" (arXiv 2505.11770) '
        "claims in its title what is tested here; here it is asked of many seeds of one small counter with a stated "
        "algorithm, with the score and every analysis fixed before the runs."
    ),
    hypothesis=(
        "Counters that look alike in distribution differ in how far they follow (own PID - beginning) mod 10. How "
        "often swaps of its variables come out inside the trained range tells how often answers are right beyond it."
    ),
    grid=(
        "mod10 without bos, 2 layers, preset small but: ape with token embeddings of std 0.1 (with the preset's 0.01 "
        "nearly all seeds reach 100, and there is nothing to predict), sine 128 wide; weight decay 0.1 and 1.0; 16 "
        "seeds from 1000 on each, 64 runs, last checkpoint. Quick: six seeds."
    ),
    measured={
        "scheme": "ape or sine",
        "decay": "weight decay",
        "cell": "scheme and decay together",
        "score": "interchange accuracy: the lesser of the two below",
        "score_own": "share of swaps of the token's own PID that come out as predicted",
        "score_beginning": "share of swaps of the row's beginning that come out as predicted",
        "ind": "percent right in distribution, last checkpoint",
        "log_loss": "log10 of the expected loss in distribution",
        "margin": "mean over tokens of the right answer's logit minus the best wrong one's, in distribution",
        "weight_norm": "Euclidean norm of all parameters",
        "ood": "percent right beyond the training length, last checkpoint",
    },
    analysis=(
        "The score is that of the probe `mechanism`: 256 pairs of rows of 50 tokens. One variable of the paper's "
        "equation is set to its value in the other row, at the place that does best on 96 other pairs. Only pairs "
        "count whose predicted answer is neither row's own, and whose implied distance from the beginning occurred in "
        "training (0 to 49 tokens): so no swap asks for a count beyond it. Correlations are Spearman's, of ranks within each of the four "
        "cells (scheme and decay): differences between cells count for nothing. Each run's OOD is predicted by least "
        "squares on the runs of all other seeds, with an intercept for each cell, from log loss alone, and from log "
        "loss and score. 95 % intervals from drawing whole seeds again."
    ),
    claims=(
        StudyClaim(
            "the score goes with OOD",
            "Within cells, the rank correlation of score and OOD is above 0.3.",
            "above",
            0.3,
            "the interval of the correlation lies below 0.3",
        ),
        StudyClaim(
            "beyond the loss",
            "Within cells and given the loss in distribution, the partial rank correlation is above 0.2.",
            "above",
            0.2,
            "the interval of the partial correlation lies below 0.2",
        ),
        StudyClaim(
            "better predictions",
            "Predictions of OOD for seeds left out err by at least 1 point less with the score than without it.",
            "above",
            1,
            "the interval of the reduction of the mean absolute error lies below 1 point",
            unit="points",
        ),
        StudyClaim(
            "better than what is measured anyway",
            "Within cells, the score's correlation with OOD is above the largest absolute one of IND accuracy, log "
            "loss, margin and weight norm.",
            "above",
            0,
            "the interval of the difference lies below 0",
            is_primary=False,
        ),
        StudyClaim(
            "close predictions",
            "With the score, predictions for seeds left out err by less than 10 points on average.",
            "below",
            10,
            "the interval of the mean absolute error lies above 10 points",
            is_primary=False,
            unit="points",
        ),
    ),
    left_out=(
        "Sine at its preset's 256 columns (four times the cost), rope, nope and spe (no seed of theirs extrapolates "
        "without bos), and tasks other than mod10."
    ),
)


def _cells(number: int) -> tuple[Cell, ...]:
    common: Cell = {"task": "mod10", "weight_decay": list(DECAYS), "seed": seeds(number)}
    return (
        common | {"architecture": "ape", "embed_std": 0.1},
        common | {"architecture": "sine", "d_model": 128},
    )


CELLS, QUICK_CELLS = _cells(N_SEEDS), _cells(N_QUICK_SEEDS)
