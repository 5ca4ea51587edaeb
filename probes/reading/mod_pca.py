"""Do equal tokens cluster by their position id modulo m? (paper, section 5 and appendix D)

The paper feeds one row of equal tokens at PIDs 0..127 and shows the first two principal components of what a counter
computes there, coloured by PID mod 10. This gives the same pictures for every site, and for each a test of every
modulus from 2 to 20 (`reading.periods`). p-values are corrected over moduli at each site, and over sites by Benjamini
and Hochberg. A recurrent counter ignores position ids: for it, the PID is the position in the row.

The score leaves drift aside. A period that is small beside a drift makes a spiral staircase rather than clusters, as in
an LSTM's cell states: `visible` is the share of all variance, drift included, that lies between the clusters.

Tokens that a task puts first (bos, a start number) come first here too, at the PIDs before. The row's first token is
drawn but not tested: a counter that recognises it keeps it apart.
"""

from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import false_discovery_control

from models.counter import Counter
from models.errors import CountLensError
from probes.inputs.equal_tokens import contiguous_pids, equal_token_activations, first_tested
from probes.reading.pca import principal_components
from probes.reading.periods import ALPHA, LEAST_ROUNDS, PERMUTATIONS, Periods, cluster_score, find_period
from probes.result import NotApplicable, Result, Verdict, task_of_counter
from probes.sites import Site, sites_of
from training.tasks import Task

CLEAR = 0.5  # clusters that explain half of the variance or more can be seen; below, they overlap
GENERALISES = 90.0  # percent OOD
# What the paper's figure shows, of two-layer counters: a layer's output, the next one's queries and MLP.
PAPER_SITES = (Site("resid_post", 0), Site("q", 1), Site("mlp_post", 1))
PAPER_CLAIMS = {"ape": True, "sine": True, "spe": False}  # by scheme: clusters by PID mod 10


@dataclass(frozen=True)
class SitePeriods:
    """One site: its picture, and its period."""

    site: Site
    periods: Periods
    q: float  # smallest p of the moduli, corrected for all sites
    visible: float  # share of all variance, with drift, between the clusters of its modulus: what an eye would see
    coordinates: Float[np.ndarray, "pos component"]  # principal components
    variance: Float[np.ndarray, "component"]  # share of the variance that each explains

    @property
    def period(self) -> int | None:
        """The modulus by which positions cluster; None where that could be chance."""
        return self.periods.period if self.q <= ALPHA else None

    @property
    def modulus(self) -> int:
        """The period, or the modulus that comes nearest to being one."""
        return self.periods.moduli[self.periods.best]

    @property
    def score(self) -> float:
        return float(self.periods.scores[self.periods.best])

    @property
    def p(self) -> float:
        return float(self.periods.p[self.periods.best])


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
        return max(self.sites, key=lambda site: (site.period is not None, site.score))

    @property
    def verdict(self) -> Verdict:
        found = [site for site in self.sites if site.period is not None]
        if not found:
            return Verdict(self._nothing(), _WOULD_FIND, self._agrees())
        ((period, times),) = Tally(site.period for site in found).most_common(1)
        clearest = max((site for site in found if site.period == period), key=lambda site: site.score)
        faint = "" if clearest.score >= CLEAR else "faint "
        sentence = (
            f"{faint}period {period} at {times} of {len(self.sites)} sites, clearest at {clearest.site.label} "
            f"(score {clearest.score:.2f}, {say_p(clearest.p)})"
        )
        others = sorted({site.period for site in found if site.period is not None} - {period})
        if others:
            sentence += f"; elsewhere {', '.join(map(str, others))} ({len(found) - times} sites)"
        return Verdict(sentence, _WOULD_LOSE.format(period=period), self._agrees())

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
        """Whether the paper's pictures come out: clear clusters by PID mod 10 at its sites, or none at any."""
        seen = [self._clear_tens(wanted) for wanted in PAPER_SITES]
        if self.claim is None or None in seen:
            return None
        return all(seen) if self.claim else not any(seen)

    def _clear_tens(self, wanted: Site) -> bool | None:
        """Whether some head of this site, or the site itself, has clear clusters; None where nobody looked."""
        there = [site for site in self.sites if (site.site.kind, site.site.layer) == (wanted.kind, wanted.layer)]
        return any(site.period == 10 and site.score >= CLEAR for site in there) if there else None

    def to_frame(self) -> pd.DataFrame:
        """One line a site and modulus."""
        frames = []
        for found in self.sites:
            columns = {
                "modulus": found.periods.moduli,
                "score": found.periods.scores,
                "null95": found.periods.null95,
                "p_alone": found.periods.p_alone,
                "p": found.periods.p,
            }
            frames.append(pd.DataFrame(_name(found.site) | columns | {"q_site": found.q, "period": found.period}))
        frame = pd.concat(frames, ignore_index=True)
        return frame.astype({"layer": "Int64", "head": "Int64", "period": "Int64"})

    def coordinates_frame(self) -> pd.DataFrame:
        """One line a site and position: where it lies on the principal components."""
        frames = []
        for found in self.sites:
            components = {f"component_{number + 1}": column for number, column in enumerate(found.coordinates.T)}
            frames.append(pd.DataFrame(_name(found.site) | {"pid": self.pids} | components))
        return pd.concat(frames, ignore_index=True).astype({"layer": "Int64", "head": "Int64"})


_WOULD_FIND = (
    f"some modulus whose clusters explain more than those of displaced periods do (corrected p at most {ALPHA})"
)
_WOULD_LOSE = (
    "tokens of equal PID mod {period} agreeing no better than tokens a displaced period apart "
    f"(p above {ALPHA} once corrected for all moduli and sites)"
)


def _drifting(sites: Sequence[SitePeriods]) -> bool:
    """Whether activations vary at all."""
    return any(site.variance.any() for site in sites)


def _name(site: Site) -> dict[str, str | int | None]:
    return {"site": site.label, "kind": site.kind, "layer": site.layer, "head": site.head}


def say_p(p: float) -> str:
    """A p-value as a report writes it.

    >>> say_p(0.00005), say_p(0.0312)
    ('p < 0.001', 'p = 0.031')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


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
    visible = {
        site: between_clusters(x[start:], periods.moduli[periods.best])
        for (site, x), periods in zip(activations.items(), tested.values(), strict=True)
    }
    found = tuple(SitePeriods(site, tested[site], corrected[site], visible[site], *pictures[site]) for site in chosen)
    return ModPca(places, counted, expected, found, paper_claim(counter, task))


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


def between_clusters(x: Float[np.ndarray, "pos d"], modulus: int) -> float:
    """Share of all variance, drift included, that lies between the means of pos mod m; adjusted, so that 0 is chance.

    >>> between_clusters(np.array([[1.0], [2.0]] * 9), modulus=2)
    1.0
    """
    x = x - x.mean(0, dtype=np.float64)
    means = np.array([x[residue::modulus].mean(0) for residue in range(modulus)])
    left = x - means[np.arange(len(x)) % modulus]
    if (x**2).sum() == 0:
        return 0.0
    return float(1 - (left**2).sum() / (x**2).sum() * (len(x) - 1) / (len(x) - modulus))


def paper_claim(counter: Counter, task: Task) -> bool | None:
    """What the paper's figure shows of two-layer counters: clusters where ape or sine generalise, none for spe."""
    scheme = getattr(counter.cfg, "position", None)
    same_kind = task.name == "mod10" and not task.bos and counter.cfg.n_layers == 2
    if not same_kind or scheme not in PAPER_CLAIMS or counter.info is None:
        return None
    claim = PAPER_CLAIMS[scheme]
    return claim if not claim or counter.info.scores.get("ood", 0.0) >= GENERALISES else None
