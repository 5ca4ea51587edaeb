"""The period of the activations at one site of a row of equal tokens, and sentences about many sites."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from probes.reading.periods import Periods
from probes.reading.pid_or_answer import Held, Separation
from probes.sites import Site
from probes.stats import ALPHA, say_p

CLEAR = 0.5  # share of the variance from which on clusters are visible in a picture
HOLDS: dict[Held, str] = {  # in the order of a report
    "PID": "the PID",
    "answer": "the answer",
    "both": "both of them",
    "two-way": "only the two together",
    "neither": "neither surely",
}


@dataclass(frozen=True)
class SitePeriods:
    """One site: its principal components, its period, and the variable that it follows over shifts."""

    site: Site
    periods: Periods
    q: float  # the smallest p of all moduli, corrected for the number of sites
    visible: float  # share of all variance, drift included, between the clusters of its modulus: what a picture shows
    coordinates: Float[np.ndarray, "pos component"]  # principal components
    variance: Float[np.ndarray, "component"]  # share of the variance that each explains
    follows: Separation | None  # the PID or the answer; None if a counter does not have both

    @property
    def period(self) -> int | None:
        """The modulus by which positions cluster over the whole row; None if that could be chance."""
        return self.periods.period if self.q <= ALPHA else None

    @property
    def fading(self) -> int | None:
        """The modulus by which positions cluster in parts of the row, but not surely in all of it; else None."""
        return self.periods.fading if self.q <= ALPHA else None

    @property
    def modulus(self) -> int:
        """The period, or the modulus with the smallest p if there is no period."""
        return self.periods.moduli[self.periods.best]

    @property
    def score(self) -> float:
        return float(self.periods.scores[self.periods.best])

    @property
    def p(self) -> float:
        return float(self.periods.p[self.periods.best])

    def clear(self, period: int) -> bool | None:
        """Whether clusters of this period are visible; None if the interval contains the threshold."""
        strength = self.periods.strength
        if period not in (self.period, self.fading) or strength.high < CLEAR:
            return False
        return True if self.period == period and strength.low > CLEAR else None

    def say(self) -> str:
        """The site with its score, p-value and what it follows, as part of a sentence."""
        numbers = f"score {self.periods.strength:.2f}, {say_p(self.p)}"
        return f"{self.site.label} ({numbers}{'' if self.follows is None else '; ' + self.follows.say()})"

    def numbers(self) -> dict[str, float | str | None]:
        """Columns of a table: the strength of the period, how much of it lasts, and what it follows."""
        numbers = {"strength": self.periods.strength, "lasting": self.periods.lasting.share}
        if self.follows is not None:
            numbers |= {"pid": self.follows.pid, "answer": self.follows.answer, "two_way": self.follows.two_way}
        columns: dict[str, float | str | None] = {"holds": None if self.follows is None else self.follows.held}
        for name, number in numbers.items():
            columns |= {name: number.value, f"{name}_low": number.low, f"{name}_high": number.high}
        return columns


def say_by_variable(sites: Sequence[SitePeriods]) -> str:
    """Part of a sentence: how many sites follow each variable, with the clearest of each; or the clearest of all."""
    groups = _group_by_variable(sites)
    if not groups:
        return f"clearest at {_clearest(sites).say()}"
    phrases = [f"{HOLDS[held]} at {len(group)}, clearest at {_clearest(group).say()}" for held, group in groups.items()]
    return f"which over shifts follow {'; '.join(phrases)}"


def say_fading(sites: Sequence[SitePeriods]) -> str:
    """Part of a sentence: the sites whose period may fade, and how much of it is left at the clearest one."""
    clearest = _clearest(sites)
    moduli = sorted({site.fading for site in sites if site.fading is not None})
    groups = ", ".join(f"{HOLDS[held]} at {len(group)}" for held, group in _group_by_variable(sites).items())
    return (
        f"period {' or '.join(map(str, moduli))} at {count_sites(sites)}{f' ({groups})' if groups else ''} may "
        f"fade: at {clearest.say()} {clearest.periods.lasting.share:.2f} of it is left half a row apart"
    )


def _group_by_variable(sites: Sequence[SitePeriods]) -> dict[Held, list[SitePeriods]]:
    """The sites that follow each variable over shifts; empty if a counter does not have both PID and answer."""
    follows = [(site, site.follows) for site in sites if site.follows is not None]
    groups = {held: [site for site, of_site in follows if of_site.held == held] for held in HOLDS}
    return {held: group for held, group in groups.items() if group}


def count_sites(sites: Sequence[SitePeriods]) -> str:
    """`1 site`, `2 sites`, ..."""
    return f"{len(sites)} site{'s' * (len(sites) != 1)}"


def _clearest(sites: Sequence[SitePeriods]) -> SitePeriods:
    return max(sites, key=lambda site: site.score)
