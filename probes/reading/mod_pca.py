"""Do equal tokens cluster by their position id modulo m? (paper, section 5 and appendix D)

The paper runs counters on one row of equal tokens at PIDs 0..127 and shows the first two principal components of their
activations, coloured by PID mod 10. This probe makes the same pictures for every site and tests every modulus from 2
to 20 (`reading.periods`). p-values are corrected over moduli at each site, and over sites by Benjamini and Hochberg.
A recurrent counter ignores position ids: for it, the PID is the position in the row.

The score ignores drift. A period that is small relative to a drift makes a spiral staircase rather than clusters, as in
an LSTM's cell states: `visible` is the share of all variance, drift included, between the clusters.

In a row that begins at PID 0, PID and answer are equal modulo 10. So if a counter has both, every site is also tested
over many shifts (`reading.pid_or_answer`), and the verdict counts sites by the variable that they follow.

A period that does not surely last over the whole row is counted separately, as one that may fade (`reading.lasting`).

Tokens that a task puts first (bos, a start number) come first here too, at the PIDs before. The row's first token is
drawn but not tested, because a counter that recognises it gives it an activation of its own.
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
from probes.inputs.equal_tokens import contiguous_pids, equal_token_activations, n_untested
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
from probes.reading.site_periods import SitePeriods, count_sites, say_by_variable, say_fading
from probes.result import Headline, NotApplicable, Result, Verdict, task_of_counter
from probes.sites import Site, sites_of
from probes.stats import ALPHA, say_p
from training.tasks import Task

GENERALISES = 90.0  # percent OOD
# The sites in the paper's figure of two-layer counters: a layer's output, the next layer's queries and MLP.
PAPER_SITES = (Site("resid_post", 0), Site("q", 1), Site("mlp_post", 1))
PAPER_CLAIMS = {"ape": True, "sine": True, "spe": False}  # by scheme, whether there are clusters by PID mod 10


@dataclass(frozen=True)
class ModPca(Result):
    """The principal components and the period at every site."""

    pids: Int[np.ndarray, "pos"]  # of the equal tokens, in order
    token: str  # the token that is repeated
    expected: int | None  # the task's base; None if it has none
    sites: tuple[SitePeriods, ...]
    claim: bool | None  # whether the paper sees clusters by PID mod 10 in such a counter; None if it says nothing

    def at(self, site: Site) -> SitePeriods:
        """The principal components and the period of one site."""
        for periods in self.sites:
            if periods.site == site:
                return periods
        labels = ", ".join(periods.site.label for periods in self.sites)
        raise CountLensError(f"{site.label} was not looked at: {labels}")

    @property
    def clearest(self) -> SitePeriods:
        """The site with the highest score among those with a period, else with a fading period, else among all."""
        return max(self.sites, key=lambda site: (site.period is not None, site.fading is not None, site.score))

    @property
    def headline(self) -> Headline:
        period = self.clearest.period
        label = "no period" if period is None else f"period {period}"
        return Headline(label, "cluster score at the clearest site", self.clearest.score)

    @property
    def verdict(self) -> Verdict:
        periodic = [site for site in self.sites if site.period is not None]
        fading = [site for site in self.sites if site.fading is not None]
        if not periodic and not fading:
            return Verdict(self._nothing(), _WOULD_FIND, self._agrees())
        parts = [self._periods(periodic)] if periodic else [f"no lasting period at any of {len(self.sites)} sites"]
        if fading:
            parts.append(say_fading(fading))
        return Verdict("; ".join(parts), _WOULD_LOSE, self._agrees())

    def _periods(self, periodic: Sequence[SitePeriods]) -> str:
        """Part of the verdict: the most frequent period, by the variable that its sites follow, and other periods."""
        ((period, _),) = Tally(site.period for site in periodic).most_common(1)
        of_period = [site for site in periodic if site.period == period]
        others = [site for site in periodic if site.period != period]
        sentence = f"period {period} at {len(of_period)} of {len(self.sites)} sites, {say_by_variable(of_period)}"
        if others:
            moduli = sorted({site.period for site in others if site.period is not None})
            sentence += f"; elsewhere {', '.join(map(str, moduli))} ({count_sites(others)})"
        return sentence

    def _nothing(self) -> str:
        """The verdict if there is no period at any site."""
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
        """Whether there are clear clusters by PID mod 10 at all of the paper's sites, or at none, as the paper claims.

        None without a claim, if its sites were not looked at, or if intervals leave it open.
        """
        heads = [[at for at in self.sites if Site(at.site.kind, at.site.layer) == site] for site in PAPER_SITES]
        if self.claim is None or not all(heads):
            return None
        by_site = [[at.clear(USUAL_MODULUS) for at in of_site] for of_site in heads]
        clear = [True if True in of_site else None if None in of_site else False for of_site in by_site]
        if (not self.claim) in clear:
            return False
        return None if None in clear else True

    def to_frame(self) -> pd.DataFrame:
        """One line per site and modulus; columns about the whole site are repeated on all of its lines."""
        frames = []
        for at in self.sites:
            columns = {
                "modulus": at.periods.moduli,
                "score": at.periods.scores,
                "null95": at.periods.null95,
                "p_alone": at.periods.p_alone,
                "p": at.periods.p,
            }
            whole = {"q_site": at.q, "period": at.period, "fading": at.fading}
            frames.append(pd.DataFrame(at.site.columns | columns | whole | at.numbers()))
        frame = pd.concat(frames, ignore_index=True)
        return frame.astype({"layer": "Int64", "head": "Int64", "period": "Int64", "fading": "Int64"})

    def coordinates_frame(self) -> pd.DataFrame:
        """One line per site and position: its coordinates on the principal components."""
        frames = []
        for at in self.sites:
            components = {f"component_{number + 1}": column for number, column in enumerate(at.coordinates.T)}
            frames.append(pd.DataFrame(at.site.columns | {"pid": self.pids} | components))
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
    """Whether activations vary with the position at any site."""
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
    """The principal components and periods of a row of equal tokens, at the given sites or at all.

    By default the row has the token that the task counts, at PIDs 0..127 or as many as the counter has, and moduli 2
    to 20 are tested.
    """
    task, _ = task_of_counter(counter)
    counted = task.kinds[0] if token is None else token
    places = contiguous_pids(counter, pids, task.prefix)
    chosen = list(sites_of(counter) if sites is None else sites)
    if not chosen:
        raise CountLensError("no sites to look at: leave `sites` out for all of them")
    activations = equal_token_activations(counter, task, places, chosen, counted)
    expected = getattr(task, "base", None)
    start = n_untested(task)
    tested = {site: find_period(x[start:], moduli, expected, permutations, seed) for site, x in activations.items()}
    corrected = _correct_over_sites(tested)
    pictures = {site: principal_components(x, components) for site, x in activations.items()}
    visible = {}
    for site, x in activations.items():
        modulus = tested[site].moduli[tested[site].best]
        visible[site] = clustered_share(x[start:], np.arange(len(x) - start) % modulus, modulus)
    follows: dict[Site, Separation] = {}
    with suppress(NotApplicable):
        follows = pid_or_answer(counter, task, chosen)
    all_periods = tuple(
        SitePeriods(site, tested[site], corrected[site], visible[site], *pictures[site], follows.get(site))
        for site in chosen
    )
    return ModPca(places, counted, expected, all_periods, paper_claims_clusters(counter, task))


def base_score(counter: Counter, seed: int = 0) -> float:
    """The cluster score of the task's base, averaged over the outputs of all blocks; quick, for curves."""
    task, _ = task_of_counter(counter)
    base: int | None = getattr(task, "base", None)
    if base is None:
        raise NotApplicable(f"{task.name} has no base, so no modulus is expected of its positions")
    places, sites = contiguous_pids(counter, None, task.prefix), sites_of(counter, ["resid_post"])
    if len(places) - 1 < LEAST_ROUNDS * base:
        raise NotApplicable(f"{len(places)} positions hold fewer than {LEAST_ROUNDS} rounds of {base}")
    activations = equal_token_activations(counter, task, places, sites, task.kinds[0])
    return float(np.mean([cluster_score(x[n_untested(task) :], base) for x in activations.values()]))


def _correct_over_sites(tested: dict[Site, Periods]) -> dict[Site, float]:
    """The smallest p at each site, corrected for the number of sites at which activations vary."""
    smallest = {site: float(periods.p.min()) for site, periods in tested.items()}
    varying = [site for site, periods in tested.items() if periods.varies]
    if varying:
        corrected = false_discovery_control([smallest[site] for site in varying])
        smallest |= dict(zip(varying, map(float, corrected), strict=True))
    return smallest


def paper_claims_clusters(counter: Counter, task: Task) -> bool | None:
    """Whether the paper's figure shows clusters: in ape and sine counters that generalise, and not in spe.

    None for other counters, since the figure shows only mod-10 counters with two layers.
    """
    scheme = getattr(counter.cfg, "position", None)
    same_kind = task.name == "mod10" and not task.bos and counter.cfg.n_layers == 2
    if not same_kind or scheme not in PAPER_CLAIMS or counter.info is None:
        return None
    claim = PAPER_CLAIMS[scheme]
    return claim if not claim or counter.info.scores.get("ood", 0.0) >= GENERALISES else None
