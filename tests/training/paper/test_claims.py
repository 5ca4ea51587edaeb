"""The paper's claims on scores that are made to confirm and to contradict them."""

from collections.abc import Callable
from itertools import groupby

import pytest
from score_rows import row_of

from models.find import SHIPPED
from training.paper.claims import CLAIMS, GUESSING, judge
from training.paper.comparison import compare
from training.paper.differences import Difference
from training.paper.finding import Finding, bounded
from training.paper.score_table import ScoreRow, read_scores
from training.paper.tables import PaperCell, paper_cells

FROM_SCORES = [name for name in CLAIMS if name not in ("clusters", "subtraction")]  # of those the tables say nothing


def rows_with(score: Callable[[PaperCell], tuple[float, float]]) -> list[ScoreRow]:
    """Every cell of the paper: a seed with the best score and, where there is a median, two with that."""
    rows = []

    def key(cell: PaperCell) -> str:
        return str((cell.experiment, cell.width))

    for _, group in groupby(sorted(paper_cells(), key=key), key):
        cells = list(group)
        best = next(cell for cell in cells if cell.statistic == "best")
        typical = [cell for cell in cells if cell.statistic == "median"]
        name = f"{best.task}{'-bos' * best.bos}/{best.architecture}-{best.layers}L-{best.width}-{best.causal}"
        name += f"-{best.train_length}-{best.ood_length}"
        for seed, cell in enumerate((best, *typical, *typical)):
            ind, ood = score(cell)
            rows.append(row_of(best, ind, ood, seed, name=f"{name}/seed{seed}"))
    return rows


def verdicts(rows: list[ScoreRow]) -> dict[str, str]:
    comparison = compare(rows)
    return {name: judge(claim, comparison).verdict for name, claim in CLAIMS.items()}


def test_every_claim_holds_of_the_papers_own_numbers() -> None:
    comparison = compare(rows_with(lambda cell: (cell.ind, cell.ood)))
    for name in FROM_SCORES:
        finding = judge(CLAIMS[name], comparison)
        assert finding.verdict == "holds", (name, [line for line in finding.lines if not line.holds])
        assert len(finding.tested) == len(finding.lines) > 0
        for line in finding.lines:
            assert line.paper == pytest.approx(line.ours, abs=0.2), line  # a best seed by both sides


def test_where_nothing_extrapolates_no_claim_of_an_ability_holds_even_in_part() -> None:
    found = verdicts(rows_with(lambda cell: (11.8, 11.8)))
    for name in ("helper", "shifted start", "modular", "selective", "attention", "recurrent", "medians"):
        assert found[name] == "does not hold here", name
    assert found["succession"] == "holds"
    assert found["bos"] == "holds in part"  # without bos they fail, as they should


def test_where_everything_extrapolates_no_claim_of_a_failure_holds() -> None:
    found = verdicts(rows_with(lambda cell: (100.0, 100.0)))
    for name in ("succession", "far extrapolation", "attention", "medians"):
        assert found[name] == "does not hold here", name
    for name in ("shifted start", "modular", "recurrent", "first token", "bos"):
        assert found[name] == "holds in part", name


def test_one_contradicting_cell_is_seen() -> None:
    def ape_fails(cell: PaperCell) -> tuple[float, float]:
        failing = (cell.task, cell.architecture, cell.layers) == ("mod10", "ape", 2)
        return (100.0, 40.0) if failing else (cell.ind, cell.ood)

    finding = judge(CLAIMS["modular"], compare(rows_with(ape_fails)))
    assert finding.verdict == "holds in part"
    (line,) = [line for line in finding.lines if line.holds is False]
    assert (line.ours, line.paper, line.expects) == (40.0, 100.0, "at least 95")
    assert line.name == "ape, 2 layers, longer rows"


def test_without_scores_nothing_is_tested() -> None:
    assert set(verdicts([]).values()) == {"not tested"}


def test_a_median_of_two_seeds_tests_nothing() -> None:
    rows = [row for row in rows_with(lambda cell: (cell.ind, cell.ood)) if row.seed < 2]
    assert verdicts(rows)["medians"] == "not tested"


def test_an_undecided_claim_is_not_carried_by_its_side_lines() -> None:
    aside = bounded("nope", 11.8, 11.8, at_most=GUESSING, decides=False)
    assert Finding((aside,)).verdict == "not tested"
    assert Finding((aside, bounded("ape", 20.0, 100.0, at_least=95.0))).verdict == "does not hold here"
    assert Finding((aside, bounded("ape", None, 100.0, at_least=95.0))).sentence == (
        "1 of 1 numbers are as the claim says; 1 more is not tested"
    )


def test_a_line_that_does_not_come_out_tells_the_known_reason() -> None:
    rows = rows_with(lambda cell: (100.0, 40.0 if (cell.task, cell.architecture) == ("mod10", "sine") else cell.ood))
    reasons = [Difference("too narrow", {"task": ("mod10",), "architecture": ("sine",)})]
    lines = {line.name: line for line in judge(CLAIMS["modular"], compare(rows, reasons)).lines}
    assert lines["sine, 2 layers, longer rows"].reason == "too narrow (our seeds: 40.0, 40.0, 40.0)"
    assert lines["ape, 2 layers, longer rows"].reason is None


def test_the_shipped_scores_name_a_run_for_every_tested_line() -> None:
    comparison = compare(read_scores(SHIPPED / "scores.csv"))
    names = {row.name for row in read_scores(SHIPPED / "scores.csv")}
    for claim in CLAIMS.values():
        for line in judge(claim, comparison).tested:
            assert line.run in names


def test_texts_end_as_sentences_do_and_fit_a_line_or_two() -> None:
    for claim in CLAIMS.values():
        assert claim.sentence.endswith(".")
        assert claim.how.endswith(".")
        assert len(claim.sentence) < 160
        assert not claim.title.endswith(".")
