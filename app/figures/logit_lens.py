"""Where in the counter the answer can be read, and which parts wrote it."""

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures.style import INK, SHARES_SCALE, SPLIT_COLOURS, dress, error_bars
from probes.reading.logit_lens import LogitLens

ROW_HEIGHT = 30


def lens_figure(result: LogitLens) -> go.Figure:
    """Percent right that the head reads after each part, at each position and over all IND and OOD positions."""
    figure = make_subplots(1, 2, column_widths=[0.82, 0.18], shared_yaxes=True, horizontal_spacing=0.02)
    n_pos = result.by_position.shape[1]
    figure.add_heatmap(
        x=np.arange(1, n_pos + 1),
        y=result.sites,
        z=result.by_position,
        coloraxis="coloraxis",
        hovertemplate="%{y}, position %{x}: %{z:.1f} %<extra></extra>",
        row=1,
        col=1,
    )
    totals = np.stack([means.value for means in result.accuracy.values()], axis=1)
    figure.add_heatmap(
        x=[split.upper() for split in result.accuracy],
        y=result.sites,
        z=totals,
        coloraxis="coloraxis",
        text=[[f"{value:.0f}" for value in row] for row in totals],
        texttemplate="%{text}",
        hovertemplate="%{y}, %{x}: %{z:.1f} %<extra></extra>",
        ygap=1,
        xgap=1,
        row=1,
        col=2,
    )
    figure.add_vline(x=result.trained_up_to + 0.5, line={"color": INK, "width": 1.5, "dash": "dash"}, row=1, col=1)
    figure.update_xaxes(showgrid=False)
    figure.update_xaxes(title="position in the row (dashed: training ends)", row=1, col=1)
    figure.update_yaxes(showgrid=False, autorange="reversed")
    figure.update_layout(
        coloraxis={"colorscale": SHARES_SCALE, "cmin": 0, "cmax": 100, "colorbar": {"title": "% right"}},
        height=130 + ROW_HEIGHT * len(result.sites),
    )
    alt = f"Heat map of the accuracy that the head reads after each part of the counter. {result.verdict.sentence}"
    return dress(figure, alt)


def attribution_figure(result: LogitLens) -> go.Figure:
    """What each part adds to the margin of the right answer, around 0, with 95 % intervals."""
    figure = go.Figure()
    for split, means in result.attribution.items():
        figure.add_bar(
            y=result.parts,
            x=means.value,
            orientation="h",
            name=f"{split.upper()} (margin {result.margin[split]:.1f})",
            marker_color=SPLIT_COLOURS[split],
            error_x=error_bars(means, thickness=1, width=2, color=INK),
            hovertemplate="%{y}: %{x:.2f}<extra></extra>",
        )
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(title="added to the right answer's logit, less the mean of the wrong ones", zerolinecolor=INK)
    figure.update_layout(
        barmode="group",
        bargap=0.25,
        height=150 + ROW_HEIGHT * len(result.parts),
        legend={"orientation": "h", "y": 1.01, "yanchor": "bottom", "traceorder": "normal"},
    )
    largest = [f"{split.upper()}: {result.largest(split)[0]} adds most" for split in result.attribution]
    return dress(figure, f"Bars of what each part adds to the logit margin of the right answer. {'; '.join(largest)}.")
