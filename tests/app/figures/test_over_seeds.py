"""The picture of seeds shows each, its label, and the interval over seeds."""

from app.figures.over_seeds import over_seeds_figure
from probes.over_seeds import OverSeeds, SeedVerdict
from probes.result import Headline


def result(values: list[float]) -> OverSeeds:
    labels = ["first", "mean", "first", "<b>"]
    seeds = tuple(
        SeedVerdict(seed, Headline(labels[seed], "share", value, value - 0.1), "", None)
        for seed, value in enumerate(values)
    )
    return OverSeeds("mod10/ape-2L", "anchor", seeds, (9,), "countlens sweep")


def test_seeds_are_grouped_by_label_and_the_missing_have_a_place() -> None:
    figure = over_seeds_figure(result([0.5, 0.7, 0.6, 0.8]))
    assert [trace.name for trace in figure.data] == ["first (2)", "mean (1)", "&lt;b> (1)"]
    assert list(figure.data[0].x) == ["seed 0", "seed 2"]
    assert list(figure.layout.xaxis.categoryarray) == ["seed 0", "seed 1", "seed 2", "seed 3", "seed 9"]
    assert tuple(figure.data[0].error_y.array) == (0, 0)  # no upper bound is known
    band, line = figure.layout.shapes
    assert band.y0 < line.y0 < band.y1
    assert "first 2" in figure.layout.meta["alt"]


def test_one_seed_has_no_band() -> None:
    assert len(over_seeds_figure(result([0.5])).layout.shapes) == 1
