"""The common form of causal tests: how often answers after an intervention are as a claim predicts."""

from dataclasses import asdict, dataclass

import pandas as pd

from probes.result import Result
from probes.stats import Interval


@dataclass(frozen=True)
class Outcome:
    """How often answers come out as predicted after an intervention, and after its control."""

    done: str  # the intervention, in words
    place: str  # the place of the intervention, in words
    predicted: str  # what the claim predicts for the answers, in words
    share: Interval  # of answers as predicted
    control: Interval | None = None  # share of such answers after the control; None if there is no control

    @property
    def stands_out(self) -> bool:
        """Whether answers are surely as predicted more often than after the control; False without a control."""
        return self.control is not None and self.share.low > self.control.high

    @property
    def text(self) -> str:
        """The share with its interval, and the control's share, as text."""
        control = "" if self.control is None else f", control {self.control.value:.0%}"
        low, high = (min(max(bound, 0.0), 1.0) for bound in (self.share.low, self.share.high))  # rounding
        return f"{self.share.value:.0%} ({low:.0%} to {high:.0%}{control})"


class CausalTest(Result):
    """A result that consists of outcomes."""

    outcomes: tuple[Outcome, ...]

    def to_frame(self) -> pd.DataFrame:
        """One line per outcome."""
        lines = []
        for outcome in self.outcomes:
            line = asdict(outcome)
            intervals = {name: line.pop(name) for name in list(line) if isinstance(line[name], dict)}
            line |= intervals.pop("share")
            for name, interval in intervals.items():
                line |= {f"{name}_{bound}": value for bound, value in interval.items()}
            lines.append(line)
        return pd.DataFrame(lines)


def grade_outcome(outcome: Outcome, most: float = 0.5) -> str:
    """`yes`, `in part` or `no`.

    `no` if the outcome does not stand out from its control, `yes` if the share is also surely above `most`.
    """
    if not outcome.stands_out:
        return "no"
    return "yes" if outcome.share.low > most else "in part"
