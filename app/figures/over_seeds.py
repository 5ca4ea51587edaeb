"""What a probe says of every seed of a cell."""

import math
import textwrap

import plotly.graph_objects as go
from plotly.colors import qualitative

from app.escape import for_plotly
from app.figures.style import INK, dress, error_bars
from probes.over_seeds import OverSeeds
from probes.stats import Interval

COLOURS = qualitative.Safe  # of labels, from the most frequent on
WIDTH = 42  # characters of a line beside the axis
BAND = "rgba(51, 51, 51, 0.12)"


def over_seeds_figure(result: OverSeeds) -> go.Figure:
    """Every seed's number with its own interval, coloured by its label; the band is the mean's interval over seeds."""
    figure = go.Figure()
    for number, label in enumerate(result.labels):
        mine = {seed: headline for seed, headline in result.headlines.items() if headline.label == label}
        bounds = [Interval(each.value, _or(each.low, each.value), _or(each.high, each.value)) for each in mine.values()]
        figure.add_scatter(
            x=[f"seed {seed}" for seed in mine],
            y=[bound.value for bound in bounds],
            error_y=error_bars(bounds, thickness=1),
            mode="markers",
            name=for_plotly(f"{label} ({len(mine)})"),
            marker={"size": 10, "color": COLOURS[number % len(COLOURS)]},
            hovertemplate="%{x}: %{y:.3g}<extra>" + for_plotly(label) + "</extra>",
        )
    mean = result.mean
    if math.isfinite(mean.low):
        figure.add_hrect(y0=mean.low, y1=mean.high, fillcolor=BAND, line_width=0, layer="below")
    if math.isfinite(mean.value):
        figure.add_hline(mean.value, line_color=INK, line_dash="dash")
    seeds = sorted([*(verdict.seed for verdict in result.seeds), *result.missing])
    figure.update_xaxes(categoryorder="array", categoryarray=[f"seed {seed}" for seed in seeds], title=None)
    figure.update_yaxes(title="<br>".join(map(for_plotly, textwrap.wrap(result.measure, WIDTH))))
    return dress(figure, result.verdict.sentence, showlegend=True, legend={"orientation": "h", "y": 1.15}, height=320)


def _or(bound: float, value: float) -> float:
    return bound if math.isfinite(bound) else value
