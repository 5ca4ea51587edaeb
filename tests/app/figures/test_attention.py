"""Figures of attention variation and of first-token edits: what is drawn is the result, and a sentence says it."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from plotly.colors import sample_colorscale

from app.figures.attention import variation_bars, variation_panels
from app.figures.bos import CHANGE_SCALE, ablation_bars, changed_positions, head_maps
from probes.ablation.bos_ablation import BosAblation, Effect
from probes.reading.attention_variation import AttentionVariation, LayerVariation, compare_variation
from probes.stats import Interval

NAN = float("nan")


def variation(ratio: float = 0.5, architecture: str = "rope", n_heads: int = 5) -> AttentionVariation:
    std = np.arange(2 * n_heads * 9, dtype=float).reshape(2, n_heads, 3, 3)
    std[1, 0, 2, 0] = NAN
    summary = [LayerVariation(layer, layer == 0, 1.0, 2.0, ratio, ratio - 0.1, ratio + 0.2) for layer in range(2)]
    occurs = np.array([[True, True, True], [True, True, True], [False, False, True]])
    return AttentionVariation(
        architecture, "selective + bos", ("0", "1", "<bos>"), occurs, std, std, tuple(summary), 8256, 0
    )


def the_same(at: float) -> Interval:
    return Interval(at, at - 2, at + 1)


def ablation(recurrent: bool = False) -> BosAblation:
    places: list[tuple[str, int | None, int | None]] = [
        ("state zero", None, None),
        ("state mean", None, None),
        ("state zero second", None, None),
    ]
    if not recurrent:
        places = [("cut", layer, head) for layer in range(2) for head in range(2)]
        places += [("cut", 0, None), ("cut", 1, None), ("cut", None, None), ("cut second", None, None)]
    effects = tuple(
        Effect(kind, layer, head, the_same(-10.0 * index), the_same(-5.0 * index))
        for index, (kind, layer, head) in enumerate(places)
    )
    changed = np.linspace(0, 1, len(effects) * 4).reshape(len(effects), 4)
    changed[:, 0] = NAN
    return BosAblation(
        "rope",
        "mod10 + bos",
        "<bos>",
        100.0,
        40.0,
        effects,
        Effect("cut beyond control", None, None, the_same(-10.0), the_same(-5.0)),
        changed,
        np.array([0, 8, 8, 4]),
        trained_up_to=3,
        rows=8,
        seed=0,
    )


def test_there_is_a_panel_a_head_on_one_colour_scale_that_starts_at_0() -> None:
    result = variation()
    figure = variation_panels(result, layer=1)
    assert len(figure.data) == 5
    for head, panel in enumerate(figure.data):
        np.testing.assert_array_equal(panel.z, result.std[1, head])
        assert tuple(panel.x) == tuple(panel.y) == result.tokens
        assert panel.coloraxis == "coloraxis"
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0, 89)
    assert figure.layout.annotations[4].text == "H4"
    assert figure.layout.yaxis.autorange == "reversed"
    assert np.asarray(figure.data[0].text).tolist() == [["", "", ""], ["", "", ""], ["×", "×", ""]]


def test_scores_that_never_vary_still_have_a_scale() -> None:
    figure = variation_panels(AttentionVariation(**vars(variation()) | {"std": np.zeros((2, 5, 3, 3))}))
    assert figure.layout.coloraxis.cmax > 0


def test_bars_compare_counters_with_their_intervals() -> None:
    results = {"a": variation(0.5), "b": variation(0.2, "ape"), "c": variation(NAN, "other")}
    figure = variation_bars(compare_variation(results))
    (bars,) = figure.data
    np.testing.assert_allclose(bars.y, [0.5, 0.2, NAN])
    np.testing.assert_allclose(bars.error_y.array[:2], 0.2)
    np.testing.assert_allclose(bars.error_y.arrayminus[:2], 0.1)
    assert bars.marker.color[:2] == ("#D55E00", "#009E73")
    assert [note.text for note in figure.layout.annotations] == ["0.5", "0.2", "one token pair"]


def test_ablation_bars_leave_out_single_heads_and_centre_their_colours_at_0() -> None:
    result = ablation()
    figure = ablation_bars(result)
    for bars, split in zip(figure.data, ("ind", "ood"), strict=True):
        assert list(bars.x) == [getattr(effect, split).value for effect in result.effects[4:]]
        np.testing.assert_allclose(bars.error_x.array, 1)
        np.testing.assert_allclose(bars.error_x.arrayminus, 2)
        middle_to_end = sample_colorscale(CHANGE_SCALE, [0.5 + points / 200 for points in bars.x])
        assert list(bars.marker.color) == middle_to_end  # nothing changed is the middle, all lost is the end
    assert figure.data[0].y[0] == "attention to <bos> cut, layer 0"
    assert figure.data[0].y[-1] == "attention to the second token cut (control)"


def test_head_maps_show_every_head_by_layer() -> None:
    figure = head_maps(ablation())
    assert np.asarray(figure.data[0].z).tolist() == [[0, -10], [-20, -30]]
    assert np.asarray(figure.data[1].z).tolist() == [[0, -5], [-10, -15]]
    assert figure.layout.coloraxis.cmid == 0
    assert len(head_maps(ablation(recurrent=True)).data) == 0


def test_changed_positions_are_percentages_with_the_border_of_training() -> None:
    result = ablation()
    figure = changed_positions(result)
    np.testing.assert_allclose(figure.data[0].z, 100 * result.changed[4:])
    assert figure.layout.shapes[0].x0 == 2.5  # between the last trained position and the next


@pytest.mark.parametrize(
    ("figure", "says"),
    [
        (variation_panels(variation()), "rope counter on selective + bos"),
        (variation_bars(compare_variation({"mine": variation()})), "mine 0.5"),
        (ablation_bars(ablation()), "when <bos> is edited in the rope counter on mod10 + bos"),
        (ablation_bars(ablation(recurrent=True)), "state after the second token reset to 0 (control)"),
        (head_maps(ablation()), "1.1 -30.0 IND, -15.0 OOD"),
        (head_maps(ablation(recurrent=True)), "No heads"),
        (changed_positions(ablation()), "attention to <bos> cut, everywhere"),
    ],
)
def test_every_figure_says_in_words_what_it_shows(figure: go.Figure, says: str) -> None:
    assert says in figure.layout.meta["alt"]
    assert figure.layout.meta["alt"].endswith(".")


def test_tables_are_tidy() -> None:
    assert isinstance(ablation().to_frame(), pd.DataFrame)
