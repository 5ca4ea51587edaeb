"""Figures of periods and of first-token readings: what is drawn is the result, and it says so in words."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go

from app.figures.first_token import first_token_figure
from app.figures.mod_pca import clearest_heads, pca_figure, pca_grid_figure, score_figure, score_map_figure
from app.figures.style import cyclic_colours
from probes.reading.first_token import FirstToken, Reading, SiteReadings
from probes.reading.lasting import Lasting
from probes.reading.mod_pca import ModPca
from probes.reading.periods import Periods
from probes.reading.pid_or_answer import Separation
from probes.reading.site_periods import SitePeriods
from probes.sites import Site
from probes.stats import Interval

MODULI = (2, 3, 4, 5)
PIDS = np.arange(20)


HALF = Interval(0.5, 0.4, 0.6)


def at(
    site: Site, period: int | None, score: float = 0.9, lasts: bool = True, follows: Separation | None = None
) -> SitePeriods:
    p = np.array([0.0002 if modulus == period else 0.8 for modulus in MODULI])
    scores = np.array([score if modulus == period else 0.1 for modulus in MODULI])
    found = (period, None) if lasts else (None, period)
    periods = Periods(MODULI, scores, scores / 2, p, p, *found, HALF, Lasting(HALF, lasts), None, True)
    coordinates = np.stack([np.cos(PIDS), np.sin(PIDS), PIDS / 20], 1)
    return SitePeriods(site, periods, float(p.min()), score, coordinates, np.array([0.5, 0.3, 0.1]), follows)


RESULT = ModPca(
    PIDS, "a", None, (at(Site("q", 0, 0), None), at(Site("q", 0, 1), 5), at(Site("resid_post", 0), 5, 0.7)), None
)


def alt(figure: go.Figure) -> str:
    """The words for whoever cannot see it; also that the figure can be written."""
    assert figure.to_json()
    return str(figure.layout.meta["alt"])


def test_tokens_of_equal_residue_have_equal_colours() -> None:
    figure = pca_figure(RESULT, Site("q", 0, 1))
    path, tokens, names = figure.data
    np.testing.assert_array_equal(tokens.x, np.cos(PIDS))
    assert len(set(tokens.marker.color)) == 5
    assert tokens.marker.color[0] == tokens.marker.color[5] != tokens.marker.color[1]
    assert list(path.y) == list(tokens.y)
    assert [text.strip("</b>") for text in names.text] == list("01234")
    assert "position id 7 (mod 5: 2)" in tokens.text
    assert "50%" in figure.layout.xaxis.title.text
    assert "coloured by PID mod 5: period 5 (score 0.90, p < 0.001)." in alt(figure)


def test_without_a_period_the_papers_colours_are_used_and_clusters_have_no_names() -> None:
    figure = pca_figure(RESULT, Site("q", 0, 0))
    assert len(figure.data) == 2
    assert len(set(figure.data[1].marker.color)) == 10
    assert "no period" in alt(figure)


def test_any_modulus_can_colour_the_tokens() -> None:
    assert len(set(pca_figure(RESULT, Site("q", 0, 1), modulus=4).data[1].marker.color)) == 4


def test_three_components_make_a_picture_in_space() -> None:
    figure = pca_figure(RESULT, Site("q", 0, 1), dimensions=3)
    assert {trace.type for trace in figure.data} == {"scatter3d"}
    np.testing.assert_array_equal(figure.data[1].z, PIDS / 20)
    assert alt(figure)


def test_small_multiples_show_the_clearest_head_of_each_kind() -> None:
    assert [found.site.label for found in clearest_heads(RESULT)] == ["L0 H1 q", "L0 resid_post"]
    figure = pca_grid_figure(replace(RESULT, expected=5))
    assert [note.text.split("<")[0] for note in figure.layout.annotations] == ["L0 H1 q", "L0 resid_post"]
    assert "2 of them have period 5" in alt(figure)


def test_scores_stand_over_the_band_of_the_null() -> None:
    figure = score_figure(RESULT, Site("q", 0, 1))
    band, significant, chance = figure.data
    assert list(band.x[:4]) == list(MODULI)
    np.testing.assert_allclose(band.y[:4], [0.05, 0.05, 0.05, 0.45])
    assert (list(significant.x), list(significant.y)) == ([5], [0.9])
    assert list(chance.x) == [2, 3, 4]
    assert figure.layout.annotations[0].text == "period 5"
    assert "period 5" in alt(figure)


def test_the_map_marks_the_period_of_every_site_that_has_one() -> None:
    figure = score_map_figure(RESULT)
    heat, marks, _ = figure.data
    assert heat.z.shape == (3, 4)
    assert list(marks.x) == [5, 5]
    assert list(marks.y) == ["L0 H1 q", "L0 resid_post"]
    assert "period 5 at 2 of 3 sites" in alt(figure)


def test_a_period_that_may_fade_is_marked_hollow_and_says_so_with_what_it_follows() -> None:
    follows = Separation(HALF, Interval(0.0, -0.1, 0.1), Interval(0.0, -0.1, 0.1))
    fading = replace(RESULT, sites=(at(Site("q", 0, 0), 5, lasts=False, follows=follows),))
    _, marks, hollow = score_map_figure(fading).data
    assert (len(marks.x), list(hollow.x)) == (0, [5])
    assert "period 5 that may fade (score 0.90, p < 0.001; over shifts: PID)" in alt(
        score_figure(fading, Site("q", 0, 0))
    )
    assert score_figure(fading, Site("q", 0, 0)).layout.annotations[0].text == "period 5, may fade"


def test_colours_go_round() -> None:
    colours = cyclic_colours(10)
    assert len(set(colours)) == 10

    def distance(one: str, other: str) -> float:
        values = [np.array([float(part) for part in colour[4:-1].split(",")]) for colour in (one, other)]
        return float(np.linalg.norm(values[0] - values[1]))

    assert distance(colours[-1], colours[0]) < distance(colours[5], colours[0])
    assert min(distance(one, other) for one, other in pairwise(colours)) > 20


def reading(value: float) -> Reading:
    return Reading(value, value - 0.05, value + 0.05, value, 0.001, (0.5, 0.6))


def test_readings_stand_next_to_those_of_untrained_counters() -> None:
    sites = (
        SiteReadings(Site("resid_pre", 0), reading(0.5), reading(0.3)),
        SiteReadings(Site("resid_post", 0), reading(0.9), reading(0.4)),
        SiteReadings(Site("resid_post", 1), reading(1.0), reading(0.8)),
    )
    figure = first_token_figure(FirstToken(0.7, sites, False, True))
    trained, untrained, shift, _ = figure.data
    np.testing.assert_array_equal(trained.z, [[0.5, 0.9], [np.nan, 1.0]])
    np.testing.assert_array_equal(untrained.z, [[0.55, 0.55], [np.nan, 0.55]])
    assert shift.z[1][1] == 0.8
    assert "0.70 by a token's own position id" in figure.layout.annotations[2].text
    assert "the first token is read (at L1 resid_post" in alt(figure)
