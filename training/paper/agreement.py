"""Whether our accuracy and the paper's both count as success, or both as failure."""

from typing import Literal, NamedTuple

SUCCESS = 95.0  # percent; judged at one digit after the point, as the paper prints its numbers
Side = Literal["ind", "ood"]
Agreement = Literal["both succeed", "both fail", "differ"]


class Accuracy(NamedTuple):
    """Accuracy in percent, in and out of distribution."""

    ind: float
    ood: float


def succeeds(accuracy: float) -> bool:
    """Whether this accuracy, in percent, counts as success."""
    return round(accuracy, 1) >= SUCCESS


def agreement(ours: float, paper: float) -> Agreement:
    """Whether two accuracies both count as success, both as failure, or differ.

    >>> agreement(98.6, 100.0), agreement(10.0, 11.8), agreement(77.9, 100.0)
    ('both succeed', 'both fail', 'differ')
    """
    succeed = [succeeds(accuracy) for accuracy in (ours, paper)]
    return "both succeed" if all(succeed) else "differ" if any(succeed) else "both fail"
