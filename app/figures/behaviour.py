"""How well a counter counts: by position, by shift, and what it says instead."""

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures.positions import Curve, accuracy_figure
from app.figures.style import FAINT, INK, SHARES_SCALE, SPLIT_BANDS, SPLIT_COLOURS, dress
from probes.reading.behaviour import Behaviour, PercentAt
from training.evaluate import Scores

MOST_LABELLED = 12  # answers up to which the cells of a confusion say their number


def curve_of(result: Behaviour, name: str, architecture: str) -> Curve:
    """The accuracy at each position, for a figure in which several counters are compared."""
    by_position = {
        split: [None if np.isnan(value) else float(value) for value in shares.percent]
        for split, shares in result.by_position.items()
    }
    scores = Scores({split: result.total[split].value for split in ("ind", "ood")}, by_position)
    return Curve(name, architecture, scores)


def position_figure(result: Behaviour, name: str = "this counter", architecture: str = "") -> go.Figure:
    """Percent right at each position with its 95 % interval, on both sides of the training length."""
    figure = accuracy_figure([curve_of(result, name, architecture)], result.trained_up_to)
    for split in ("ind", "ood"):
        for line in _band(result.by_position[split], FAINT.replace("0.12", "0.3")):
            figure.add_trace(line)
    figure.data = (*figure.data[1:], figure.data[0])  # the line above its bands
    figure.update_layout(showlegend=False)
    where = "nowhere" if result.breaks_at is None else f"first at position {result.breaks_at}"
    alt = (
        f"Line of the accuracy of {name} at each position of a row on {result.task}: {_totals(result)}. Training ends "
        f"at position {result.trained_up_to}; accuracy is surely below 90 % {where}."
    )
    return dress(figure, alt)


def _totals(result: Behaviour) -> str:
    return ", ".join(f"{result.total[split].value:.1f} % {split.upper()}" for split in ("ind", "ood"))


def _band(shares: PercentAt, colour: str, name: str = "") -> list[go.Scatter]:
    """Lower and upper edge of an interval, filled between, over the places where something is scored."""
    scored = shares.scored > 0
    common = {"x": shares.at[scored], "mode": "lines", "line_width": 0, "hoverinfo": "skip", "showlegend": False}
    lower = go.Scatter(y=shares.low[scored], legendgroup=name, **common)
    upper = go.Scatter(y=shares.high[scored], fill="tonexty", fillcolor=colour, legendgroup=name, **common)
    return [lower, upper]


def shift_figure(result: Behaviour) -> go.Figure:
    """Percent right over the shift of the position ids, or the reason why there is none."""
    figure = go.Figure()
    if result.why_no_shift is not None:
        figure.add_annotation(text=result.why_no_shift, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper")
        figure.update_layout(xaxis_visible=False, yaxis_visible=False)
        return dress(figure, f"No curve over shifts: {result.why_no_shift}.")
    for split, shares in result.by_shift.items():
        for line in _band(shares, SPLIT_BANDS[split], split):
            figure.add_trace(line)
        figure.add_scatter(
            x=shares.at,
            y=shares.percent,
            name=split.upper(),
            legendgroup=split,
            mode="lines+markers",
            line={"color": SPLIT_COLOURS[split], "width": 2},
            marker_size=5,
        )
    figure.update_layout(
        xaxis_title="shift: the first position id of a row",
        yaxis={"title": "accuracy (%)", "range": [-3, 105]},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    )
    ranges = [
        f"{split.upper()} from {shares.percent.min():.1f} to {shares.percent.max():.1f} %"
        for split, shares in result.by_shift.items()
    ]
    return dress(figure, f"Accuracy of the same rows over the shift of their position ids: {', '.join(ranges)}.")


def confusion_figure(result: Behaviour) -> go.Figure:
    """For each right answer, how often which answer is given (percent of its tokens), IND and OOD side by side."""
    splits = tuple(result.confusion)
    titles = [f"{split.upper()}, {result.total[split].value:.1f} % right" for split in splits]
    figure = make_subplots(1, len(splits), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.04)
    few = len(result.answers) <= MOST_LABELLED
    for column, split in enumerate(splits, start=1):
        counts = result.confusion[split].astype(float)
        tokens = counts.sum(1, keepdims=True)
        percent = np.divide(100 * counts, tokens, out=np.full_like(counts, np.nan), where=tokens > 0)
        figure.add_heatmap(
            x=result.answers,
            y=result.answers,
            z=percent,
            coloraxis="coloraxis",
            texttemplate="%{text}" if few else None,
            text=[["" if np.isnan(value) or value < 0.5 else f"{value:.0f}" for value in row] for row in percent],
            hovertemplate="right %{y}, said %{x}: %{z:.1f} %<extra></extra>",
            xgap=1 if few else 0,
            ygap=1 if few else 0,
            row=1,
            col=column,
        )
    figure.update_xaxes(title="answer", type="category", showgrid=False, constrain="domain")
    if len(splits) > 1:
        figure.update_xaxes(matches="x", col=2)
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False, constrain="domain")
    figure.update_yaxes(scaleanchor="x", row=1, col=1)  # the other panel matches it
    figure.update_yaxes(title="right", col=1)
    if not few:
        round_ones = [answer for answer in result.answers if answer.endswith("0")]
        figure.update_xaxes(tickvals=round_ones, tickangle=0)
        figure.update_yaxes(tickvals=round_ones)
    figure.update_layout(
        coloraxis={"colorscale": SHARES_SCALE, "cmin": 0, "cmax": 100, "colorbar": {"title": "% of row", "len": 0.8}},
        font_color=INK,
    )
    alt = f"Heat maps of the answers given for each right answer on {result.task}: {_totals(result)} on the diagonal."
    return dress(figure, alt)
