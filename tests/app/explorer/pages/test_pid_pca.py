"""The page Position PCA: its pictures hold what the probe finds at the chosen site."""

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from shipped import shipped

from app.figures.mod_pca import pca_figure
from app.figures.style import cyclic_colours
from models import load_counter
from probes.reading.mod_pca import mod_pca
from probes.sites import Site

Open, Figures = Callable[..., Any], Callable[[Any], list[Any]]
APE, LSTM = shipped("mod10/ape-2L"), shipped("mod10/lstm-1L")


def decoded(values: Any) -> np.ndarray:
    """Numbers as plotly's JSON has them."""
    if isinstance(values, dict):
        return np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"])
    return np.array(values)


@pytest.mark.parametrize(("counter", "site"), [(APE, Site("q", 1, 1)), (APE, Site("embed")), (LSTM, Site("state", 0))])
def test_points_lie_where_the_probe_has_them(open_page: Open, figures: Figures, counter: str, site: Site) -> None:
    asked = {"site": site.kind, "layer": str(site.layer or 0)} | ({} if site.head is None else {"head": str(site.head)})
    app = open_page("pid-pca", counter=counter, **asked)
    (found,) = mod_pca(load_counter(counter), sites=[site]).sites
    points = figures(app)[0]["data"][1]
    np.testing.assert_allclose(np.stack([decoded(points["x"]), decoded(points["y"])], 1), found.coordinates[:, :2])
    scores = figures(app)[1]["data"][1:]
    drawn = {x: y for trace in scores for x, y in zip(decoded(trace["x"]), decoded(trace["y"]), strict=True)}
    np.testing.assert_allclose([drawn[modulus] for modulus in found.periods.moduli], found.periods.scores)


def test_colours_and_dimensions_are_chosen(open_page: Open, figures: Figures) -> None:
    app = open_page("pid-pca", counter=APE)
    assert app.slider(key="modulus").value == 10  # the task's own
    app.slider(key="modulus").set_value(4).run()
    colours = figures(app)[0]["data"][1]["marker"]["color"]
    assert colours == cyclic_colours(4) * 32
    app.toggle(key="solid").set_value(True).run()
    points = figures(app)[0]["data"][1]
    assert points["type"] == "scatter3d"
    coordinates = mod_pca(load_counter(APE), sites=[Site("resid_post", 0)]).sites[0].coordinates
    np.testing.assert_allclose(decoded(points["z"]), coordinates[:, 2])


def test_the_position_ids_can_be_narrowed_and_moved(open_page: Open, figures: Figures) -> None:
    app = open_page("pid-pca", counter=APE, pids="40", shift="30")
    texts = figures(app)[0]["data"][1]["text"]
    assert (len(texts), texts[0]) == (40, "position id 30 (mod 10: 0)")
    assert app.slider(key="shift").max == 128 - 40


def test_a_compared_counter_has_what_it_has_of_the_same_positions(open_page: Open, figures: Figures) -> None:
    app = open_page("pid-pca", counter=shipped("selective-bos/ape-1L"), versus=LSTM, pids="40", shift="30")
    first, _, second, _ = figures(app)
    assert first["data"][1]["text"][0].startswith("position id 31 ")  # bos comes before
    assert second["data"][1]["text"][0].startswith("position id 0 ")  # it has no position ids to shift


def test_a_site_that_a_compared_counter_lacks_is_named(open_page: Open, figures: Figures) -> None:
    app = open_page("pid-pca", counter=APE, versus=LSTM, site="mlp_post", layer="1")
    assert len(figures(app)) == 2
    assert "unknown site 'L1 mlp\\_post'" in app.info[0].value  # as markdown wants it


def test_a_period_is_named_in_the_middle_of_its_clusters() -> None:
    found = mod_pca(load_counter(APE), sites=[Site("q", 1, 1)])
    names = pca_figure(found, Site("q", 1, 1)).data[2]
    assert list(names.text) == [f"<b>{residue}</b>" for residue in range(10)]
