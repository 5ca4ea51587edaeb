"""Do equal tokens cluster by their position id modulo m? (paper, section 5 and appendix D)

The paper feeds one row of equal tokens at PIDs 0..127 and shows the first two principal components of what a counter
computes there, coloured by PID mod 10. This gives the same pictures for every site, and for each a test of every
modulus from 2 to 20 (`reading.periods`). p-values are corrected over moduli at each site, and over sites by Benjamini
and Hochberg. A recurrent counter ignores position ids: for it, the PID is the position in the row.

The score leaves drift aside. A period that is small beside a drift makes a spiral staircase rather than clusters, as in
an LSTM's cell states: `visible` is the share of all variance, drift included, that lies between the clusters.

In a row that begins at PID 0 the PID modulo 10 is the answer, too. So where a counter has both, every site is also read
over many shifts (`reading.pid_or_answer`), and the verdict counts sites by the variable that they hold.

A period that is not sure to last over the whole row is counted apart, as one that may fade (`reading.lasting`).

Tokens that a task puts first (bos, a start number) come first here too, at the PIDs before. The row's first token is
drawn but not tested: a counter that recognises it keeps it apart.
"""

from collections import Counter as Tally
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int
from scipy.stats import false_discovery_control

from models.counter import Counter
from models.errors import CountLensError
from probes.inputs.equal_tokens import contiguous_pids, equal_token_activations, first_tested
from probes.reading.lasting import LEAST_LEFT
from probes.reading.pca import principal_components
from probes.reading.periods import (
    LEAST_ROUNDS,
    PERMUTATIONS,
    USUAL_MODULUS,
    Periods,
    cluster_score,
    clustered_share,
    find_period,
)
from probes.reading.pid_or_answer import Separation, pid_or_answer
from probes.reading.site_periods import SitePeriods, by_variable, count_sites, say_fading
from probes.result import Headline, NotApplicable, Result, Verdict, task_of_counter
from probes.sites import Site, sites_of
from probes.stats import ALPHA, say_p
from training.tasks import Task

GENERALISES = 90.0  # percent OOD
# What the paper's figure shows, of two-layer counters: a layer's output, the next one's queries and MLP.
PAPER_SITES = (Site("resid_post", 0), Site("q", 1), Site("mlp_post", 1))
PAPER_CLAIMS = {"ape": True, "sine": True, "spe": False}  # by scheme: clusters by PID mod 10


@dataclass(frozen=True)
class ModPca(Result):
    """Principal components and periods at every site."""

    pids: Int[np.ndarray, "pos"]  # of the equal tokens
    token: str  # which they are
    expected: int | None  # the task's base, where it has one
    sites: tuple[SitePeriods, ...]
    claim: bool | None  # whether the paper sees clusters by PID mod 10 in such a counter; None: it does not say

    def at(self, site: Site) -> SitePeriods:
        """What was found at one site."""
        for found in self.sites:
            if found.site == site:
                return found
        raise CountLensError(f"{site.label} was not looked at: {', '.join(found.site.label for found in self.sites)}")

    @property
    def clearest(self) -> SitePeriods:
        """The site with the highest score among those with a period, or among all where there is none."""
        return max(self.sites, key=lambda site: (site.period is not None, site.fading is not None, site.score))

    @property
    def headline(self) -> Headline:
        period = self.clearest.period
        label = "no period" if period is None else f"period {period}"
        return Headline(label, "cluster score at the clearest site", self.clearest.score)

    @property
    def verdict(self) -> Verdict:
        found = [site for site in self.sites if site.period is not None]
        fading = [site for site in self.sites if site.fading is not None]
        if not found and not fading:
            return Verdict(self._nothing(), _WOULD_FIND, self._agrees())
        parts = [self._periods(found)] if found else [f"no lasting period at any of {len(self.sites)} sites"]
        if fading:
            parts.append(say_fading(fading))
        return Verdict("; ".join(parts), _WOULD_LOSE, self._agrees())

    def _periods(self, found: Sequence[SitePeriods]) -> str:
        """The most frequent period, by the variable that its sites hold, and the others."""
        ((period, _),) = Tally(site.period for site in found).most_common(1)
        of_period = [site for site in found if site.period == period]
        others = [site for site in found if site.period != period]
        sentence = f"period {period} at {len(of_period)} of {len(self.sites)} sites, {by_variable(of_period)}"
        if others:
            moduli = sorted({site.period for site in others if site.period is not None})
            sentence += f"; elsewhere {', '.join(map(str, moduli))} ({count_sites(others)})"
        return sentence

    def _nothing(self) -> str:
        low, high = self.sites[0].periods.moduli[0], self.sites[0].periods.moduli[-1]
        nearest = min(self.sites, key=lambda site: site.p)
        if not any(site.periods.varies for site in self.sites):
            what = "vary with the position only by drift" if _drifting(self.sites) else "are the same at every position"
            return f"no period: activations {what}, at all of {len(self.sites)} sites"
        return (
            f"no period from {low} to {high} at any of {len(self.sites)} sites (nearest: {nearest.modulus} at "
            f"{nearest.site.label}, score {nearest.score:.2f}, {say_p(nearest.p)} before correction for sites)"
        )

    def _agrees(self) -> bool | None:
        """Whether the paper's pictures come out: clear clusters by PID mod 10 at its sites, or none at any.

        None where its sites were not looked at, or where intervals leave open whether clusters are clear.
        """
        seen = [self._clear_tens(wanted) for wanted in PAPER_SITES]
        if self.claim is None or "not looked at" in seen:
            return None
        if (not self.claim) in seen:
            return False
        return None if None in seen else True

    def _clear_tens(self, wanted: Site) -> bool | str | None:
        """Whether some head of this site, or the site itself, has clear clusters."""
        there = [site for site in self.sites if (site.site.kind, site.site.layer) == (wanted.kind, wanted.layer)]
        clear = [site.clear(USUAL_MODULUS) for site in there]
        if not there:
            return "not looked at"
        return True if True in clear else None if None in clear else False

    def to_frame(self) -> pd.DataFrame:
        """One line a site and modulus; what is said of the site as a whole is the same on all lines of it."""
        frames = []
        for found in self.sites:
            columns = {
                "modulus": found.periods.moduli,
                "score": found.periods.scores,
                "null95": found.periods.null95,
                "p_alone": found.periods.p_alone,
                "p": found.periods.p,
            }
            whole = {"q_site": found.q, "period": found.period, "fading": found.fading}
            frames.append(pd.DataFrame(found.site.columns | columns | whole | found.numbers()))
        frame = pd.concat(frames, ignore_index=True)
        return frame.astype({"layer": "Int64", "head": "Int64", "period": "Int64", "fading": "Int64"})

    def coordinates_frame(self) -> pd.DataFrame:
        """One line a site and position: where it lies on the principal components."""
        frames = []
        for found in self.sites:
            components = {f"component_{number + 1}": column for number, column in enumerate(found.coordinates.T)}
            frames.append(pd.DataFrame(found.site.columns | {"pid": self.pids} | components))
        return pd.concat(frames, ignore_index=True).astype({"layer": "Int64", "head": "Int64"})


_WOULD_FIND = (
    f"some modulus whose clusters explain more than those of displaced periods do (corrected p at most {ALPHA})"
)
_WOULD_LOSE = (
    "tokens of equal PID mod m agreeing no better than tokens a displaced period apart "
    f"(p above {ALPHA} once corrected for all moduli and sites), or no more than {LEAST_LEFT:.0%} of the agreement "
    "between neighbouring parts of the row being left half a row apart"
)


def _drifting(sites: Sequence[SitePeriods]) -> bool:
    """Whether activations vary at all."""
    return any(site.variance.any() for site in sites)


def mod_pca(
    counter: Counter,
    pids: Sequence[int] | None = None,
    sites: Sequence[Site] | None = None,
    moduli: Sequence[int] | None = None,
    token: str | None = None,
    components: int = 3,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> ModPca:
    """Principal components and periods of a row of equal tokens, at every site or at these.

    By default at PIDs 0..127, or as far as the counter's go, of the token that its task counts, for moduli 2..20.
    """
    task, _ = task_of_counter(counter)
    counted = task.kinds[0] if token is None else token
    places = contiguous_pids(counter, pids, task.prefix)
    chosen = list(sites_of(counter) if sites is None else sites)
    if not chosen:
        raise CountLensError("no sites to look at: leave `sites` out for all of them")
    activations = equal_token_activations(counter, task, places, chosen, counted)
    expected = getattr(task, "base", None)
    start = first_tested(task)
    tested = {site: find_period(x[start:], moduli, expected, permutations, seed) for site, x in activations.items()}
    corrected = _over_sites(tested)
    pictures = {site: principal_components(x, components) for site, x in activations.items()}
    visible = {}
    for site, x in activations.items():
        modulus = tested[site].moduli[tested[site].best]
        visible[site] = clustered_share(x[start:], np.arange(len(x) - start) % modulus, modulus)
    follows: dict[Site, Separation] = {}
    with suppress(NotApplicable):
        follows = pid_or_answer(counter, task, chosen)
    found = tuple(
        SitePeriods(site, tested[site], corrected[site], visible[site], *pictures[site], follows.get(site))
        for site in chosen
    )
    return ModPca(places, counted, expected, found, paper_claims_clusters(counter, task))


def base_score(counter: Counter, seed: int = 0) -> float:
    """The cluster score of the task's own base, mean over the outputs of all blocks; quick, for curves."""
    task, _ = task_of_counter(counter)
    base: int | None = getattr(task, "base", None)
    if base is None:
        raise NotApplicable(f"{task.name} has no base, so no modulus is expected of its positions")
    places, sites = contiguous_pids(counter, None, task.prefix), sites_of(counter, ["resid_post"])
    if len(places) - 1 < LEAST_ROUNDS * base:
        raise NotApplicable(f"{len(places)} positions hold fewer than {LEAST_ROUNDS} rounds of {base}")
    activations = equal_token_activations(counter, task, places, sites, task.kinds[0])
    return float(np.mean([cluster_score(x[first_tested(task) :], base) for x in activations.values()]))


def _over_sites(tested: dict[Site, Periods]) -> dict[Site, float]:
    """The smallest p at each site, corrected over the sites at which activations vary at all."""
    smallest = {site: float(periods.p.min()) for site, periods in tested.items()}
    varying = [site for site, periods in tested.items() if periods.varies]
    if varying:
        corrected = false_discovery_control([smallest[site] for site in varying])
        smallest |= dict(zip(varying, map(float, corrected), strict=True))
    return smallest


def paper_claims_clusters(counter: Counter, task: Task) -> bool | None:
    """What the paper's figure shows of two-layer counters: clusters where ape or sine generalise, none for spe."""
    scheme = getattr(counter.cfg, "position", None)
    same_kind = task.name == "mod10" and not task.bos and counter.cfg.n_layers == 2
    if not same_kind or scheme not in PAPER_CLAIMS or counter.info is None:
        return None
    claim = PAPER_CLAIMS[scheme]
    return claim if not claim or counter.info.scores.get("ood", 0.0) >= GENERALISES else None
