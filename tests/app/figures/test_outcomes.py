"""The picture of interventions has a bar for each, with its control."""

from shipped import shipped

from app.figures.outcomes import outcomes_figure
from app.figures.registry import figures_of
from models import load_counter
from probes.ablation.mask_as_finder import mask_as_finder
from probes.ablation.period_shift import period_shift
from probes.mechanism.start_distance import start_distance


def test_every_outcome_has_a_bar_and_controls_are_crosses() -> None:
    result = mask_as_finder(load_counter(shipped("first_tok_heterogeneous/nope-1L")))
    bars, crosses = outcomes_figure(result).data
    assert list(bars.x) == [one.share.value for one in result.outcomes]
    assert list(crosses.x) == [one.control.value for one in result.outcomes if one.control is not None]
    assert "first token: sees one later token of another kind, no longer first" in bars.customdata[0]


def test_a_result_without_outcomes_has_an_empty_picture() -> None:
    result = mask_as_finder(load_counter(shipped("first_tok_heterogeneous/nope-1L-noncausal")))
    (figure,) = figures_of(result).values()
    assert len(figure.data[0].x) == 0
    assert "0% of first tokens are recognised" in figure.layout.meta["alt"]


def test_pid_and_answer_have_a_picture_each() -> None:
    result = period_shift(load_counter(shipped("mod10/ape-1L")), rows=8)
    figures = figures_of(result)
    assert len(figures) == 2
    assert sum(len(figure.data[0].x) for figure in figures.values()) == len(result.outcomes)


def test_no_two_bars_have_one_name() -> None:
    """Plotly would put one on top of the other."""
    result = start_distance(load_counter(shipped("shifted_start/rope-1L")), rows=8)
    (figure,) = figures_of(result).values()
    names, places = figure.data[0].customdata, figure.data[0].y
    assert len(set(names)) == len(set(places)) == len(places) == len(result.outcomes)
