"""The seeds of one kind of counter in one picture: a thin line for each, and their median."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from app.figures.behaviour import curve_of
from app.figures.positions import accuracy_figure
from app.figures.style import INK, dress

if TYPE_CHECKING:  # slow to import, and each page needs one of them
    from probes.reading.behaviour import Behaviour
    from probes.reading.mod_pca import ModPca
    from probes.sites import Site

THIN, THICK = 1, 3


def accuracy_spread(*results: "Behaviour", names: Sequence[str]) -> go.Figure:
    """Percent right at each position, of every seed by its name."""
    curves = [curve_of(result, name, "") for result, name in zip(results, names, strict=True)]
    figure = accuracy_figure(curves, results[0].trained_up_to)
    ood = [result.total["ood"].value for result in results]
    alt = (
        f"Accuracy at each position of {len(results)} counters that differ in their seed; beyond training lengths they "
        f"are right in {min(ood):.1f} to {max(ood):.1f} %, the median in {np.median(ood):.1f} %."
    )
    return _with_median(figure, alt)


def score_spread(*results: "ModPca", names: Sequence[str], site: "Site") -> go.Figure:
    """The cluster score of every modulus at one site, of every seed by its name."""
    figure = go.Figure()
    for result, name in zip(results, names, strict=True):
        periods = result.at(site).periods
        figure.add_scatter(x=list(periods.moduli), y=[float(score) for score in periods.scores], name=name)
    figure.update_xaxes(title="modulus")
    figure.update_yaxes(title="cluster score")
    found = [result.at(site).period for result in results]
    alt = f"Cluster scores by modulus at {site.label} of {len(results)} counters that differ in their seed; periods: "
    return _with_median(figure, alt + ", ".join(str(period or "none") for period in found) + ".")


def _with_median(figure: go.Figure, alt: str) -> go.Figure:
    """The figure with all its lines thin and grey, and the median of them on top."""
    lines = [trace for trace in figure.data if trace.y is not None]
    longest = max(lines, key=lambda trace: len(trace.y))
    middle = _median([trace.y for trace in lines], len(longest.y))
    figure.update_traces(mode="lines", line={"width": THIN, "color": "#999999", "dash": "solid"})
    style = {"color": INK, "width": THICK}
    figure.add_scatter(
        x=longest.x, y=[None if np.isnan(value) else value for value in middle], name="median", mode="lines", line=style
    )
    figure.update_layout(showlegend=False)
    return dress(figure, alt, height=380)


def _median(lines: Sequence[Sequence[Any]], length: int) -> Float[np.ndarray, "place"]:
    """The median at each place over the lines that have something there."""
    table = np.full((len(lines), length), np.nan)
    for row, line in zip(table, lines, strict=True):
        row[: len(line)] = [np.nan if value is None else value for value in line]
    empty = np.isnan(table).all(0)
    table[:, empty] = 0.0
    return np.where(empty, np.nan, np.nanmedian(table, axis=0))
