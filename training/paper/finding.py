"""What we found about a claim: the numbers that it rests on, ours beside the paper's, and the verdict they give."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:  # slow to import
    import pandas as pd

ClaimVerdict = Literal["holds", "holds in part", "does not hold here", "not tested"]
CLAIM_VERDICTS: tuple[ClaimVerdict, ...] = get_args(ClaimVerdict)


@dataclass(frozen=True)
class Line:
    """One number in percent, what the claim says of it, and whether that comes out."""

    name: str  # whose number it is
    expects: str  # what the claim says of it, such as `at least 95`
    low: float  # the range that the claim gives it
    high: float
    ours: float | None  # None: we have no such counter
    paper: float | None  # None: the paper has a picture or a sentence, and no number
    holds: bool | None  # None: not tested
    decides: bool = True  # whether the claim falls if none of the lines like this one holds
    run: str | None = None  # our counter that it is of
    interval: tuple[float, float] | None = None  # of ours, where it is an estimate
    reason: str | None = None  # why ours differs from the paper's, where that is known


@dataclass(frozen=True)
class Finding:
    """The lines of a claim."""

    lines: tuple[Line, ...]

    @property
    def tested(self) -> tuple[Line, ...]:
        return tuple(line for line in self.lines if line.holds is not None)

    @property
    def verdict(self) -> ClaimVerdict:
        """A claim holds if every tested line does, and does not if none of those does that decide it."""
        deciding = [line.holds for line in self.tested if line.decides]
        if not deciding:
            return "not tested"
        if all(line.holds for line in self.tested):
            return "holds"
        return "holds in part" if any(deciding) else "does not hold here"

    @property
    def sentence(self) -> str:
        """The tally behind the verdict."""
        missing = len(self.lines) - len(self.tested)
        if not self.tested:
            return f"none of its {missing} numbers is tested" if missing else "nothing is tested yet"
        count = f"{sum(line.holds is True for line in self.tested)} of {len(self.tested)} numbers are as the claim says"
        return f"{count}; {missing} more {'is' if missing == 1 else 'are'} not tested" if missing else count

    def to_frame(self) -> "pd.DataFrame":
        """One row per line."""
        import pandas as pd

        return pd.DataFrame([asdict(line) for line in self.lines])


def bounded(
    name: str,
    ours: float | None,
    paper: float | None,
    at_least: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    **more: Any,
) -> Line:
    """A line whose number has to lie on one side of another. Numbers are judged as printed, with one digit.

    >>> bounded("ape", 94.96, 100.0, at_least=95.0).holds, bounded("ape", 95.0, 37.7, below=95.0).holds
    (True, False)
    """
    value = None if ours is None else round(ours, 1)
    if at_least is not None:
        holds = None if value is None else value >= at_least
        return Line(name, f"at least {at_least:g}", at_least, 100.0, ours, paper, holds, **more)
    if at_most is not None:
        holds = None if value is None else value <= at_most
        return Line(name, f"at most {at_most:g}", 0.0, at_most, ours, paper, holds, **more)
    assert below is not None
    holds = None if value is None else value < below
    return Line(name, f"below {below:g}", 0.0, below, ours, paper, holds, **more)


def exceeding(name: str, ours: float | None, paper: float | None, other: str, than: float | None, **more: Any) -> Line:
    """A line whose number has to exceed another number of ours.

    >>> exceeding("nope", 70.0, 94.1, "rope", 49.0).holds, exceeding("nope", 70.0, 94.1, "spe", 75.9).holds
    (True, False)
    """
    holds = None if ours is None or than is None else round(ours, 1) > round(than, 1)
    expects = f"above {other}" + ("" if than is None else f" ({than:.1f})")
    return Line(name, expects, than or 0.0, 100.0, ours, paper, holds, **more)
