"""What probes say about the paper's claims, on results that are made to confirm and to contradict them."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.explorer.inside import attention_lines, bos_lines, cluster_lines, first_token_lines, subtraction_lines
from probes.reading.mod_pca import PAPER_SITES
from probes.sites import Site
from probes.stats import Interval
from training.paper.finding import Finding


def first_token(value: float, claim: bool | None) -> Any:
    reading = SimpleNamespace(value=value, low=value - 0.02, high=value)
    return SimpleNamespace(best_first=SimpleNamespace(first=reading), claim=claim)


def clusters(score: float, period: int | None) -> Any:
    sites = [SimpleNamespace(site=site, score=score, period=period) for site in PAPER_SITES]
    return SimpleNamespace(sites=(*sites, SimpleNamespace(site=Site("embed"), score=1.0, period=10)))


def variation(ratio: float, spread: float = 0.02) -> Any:
    return SimpleNamespace(at=lambda layer: SimpleNamespace(ratio=ratio, low=ratio - spread, high=ratio + spread))


def ablation(change: float) -> Any:
    effect = SimpleNamespace(ind=Interval(change, change - 1, change + 1))
    return SimpleNamespace(clean_ind=98.0, effect={"embedding next": effect}.get)


def test_who_recognises_the_first_token_is_what_the_result_says() -> None:
    finding = Finding(tuple(first_token_lines({"ape": first_token(1.0, True), "nope": first_token(0.5, False)})))
    assert finding.verdict == "holds"
    assert [(line.ours, line.expects) for line in finding.lines] == [(100.0, "at least 95"), (50.0, "below 95")]
    contradicted = {"ape": first_token(0.6, True), "nope": first_token(1.0, False)}
    assert Finding(tuple(first_token_lines(contradicted))).verdict == "does not hold here"
    assert Finding(tuple(first_token_lines({"lstm": first_token(1.0, None)}))).verdict == "not tested"


def test_clusters_are_looked_for_at_the_papers_sites_alone() -> None:
    finding = Finding(tuple(cluster_lines({"ape": clusters(0.9, 10), "spe": clusters(0.9, None)})))
    assert finding.verdict == "holds"
    assert [line.ours for line in finding.lines] == [pytest.approx(90.0)] * 3 + [0.0] * 3
    for nothing in (clusters(0.9, 7), clusters(0.3, 10), clusters(0.9, None)):
        assert Finding(tuple(cluster_lines({"ape": nothing}))).verdict == "does not hold here"
    both = {"ape": clusters(0.9, 10), "spe": clusters(0.9, 10)}
    assert Finding(tuple(cluster_lines(both))).verdict == "holds in part"
    assert Finding(tuple(cluster_lines({"ape": SimpleNamespace(sites=())}))).verdict == "not tested"


def test_answers_that_do_not_move_with_the_first_token_speak_against_the_subtraction() -> None:
    def anchors(share: float) -> Any:
        move = SimpleNamespace(tokens="token 1", follows=Interval(share, share - 0.01, share + 0.01))
        other = SimpleNamespace(tokens="first 5", follows=Interval(1.0, 1.0, 1.0))
        return SimpleNamespace(moves=(other, move))

    assert Finding(tuple(subtraction_lines({"ape": anchors(0.98)}))).verdict == "holds"
    (line,) = subtraction_lines({"ape": anchors(0.02)})
    assert (line.holds, line.ours) == (False, 2.0)


def test_scores_vary_less_than_ropes_only_where_intervals_are_apart() -> None:
    results = {"rope": variation(0.2), "ape": variation(0.1), "spe": variation(0.17), "sine": variation(0.3)}
    holds = {line.name.split(",")[0]: line.holds for line in attention_lines(results)}
    assert holds == {"ape": True, "spe": False, "sine": False}
    assert not list(attention_lines({"ape": variation(0.1)}))


def test_bos_is_needed_where_another_token_in_its_place_surely_costs() -> None:
    (needed,) = bos_lines({"rope": ablation(-60.0)})
    assert (needed.holds, needed.ours, needed.interval) == (True, 38.0, (37.0, 39.0))
    (not_needed,) = bos_lines({"rope": ablation(-0.5)})
    assert not_needed.holds is False
