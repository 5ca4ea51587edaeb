"""What the first token is good for: edits of it in a trained counter."""

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from app.figures.style import INK, SHARES_SCALE, dress, error_bars
from probes.ablation.bos_ablation import BosAblation, Effect

CHANGE_SCALE = "RdBu"  # red: lost, blue: gained, white: as before
CHANGE_AXIS = {"colorscale": CHANGE_SCALE, "cmin": -100, "cmid": 0, "cmax": 100}
SPLITS = ("ind", "ood")


def ablation_bars(result: BosAblation) -> go.Figure:
    """The change in IND and OOD accuracy by every edit of whole layers or of all of them, with 95 % intervals."""
    effects = _without_heads(result)
    labels = [result.describe(effect) for effect in effects]
    figure = make_subplots(1, 2, subplot_titles=_split_titles(result), shared_yaxes=True, horizontal_spacing=0.04)
    for column, split in enumerate(SPLITS, start=1):
        changes = [getattr(effect, split) for effect in effects]
        points = np.array([change.value for change in changes])
        figure.add_bar(
            x=points,
            y=labels,
            orientation="h",
            marker={"color": _change_colours(points), "line": {"color": "#888888", "width": 0.5}},
            error_x=error_bars(changes, width=3, color=INK),
            hovertemplate="%{y}: %{x:+.1f} points<extra></extra>",
            row=1,
            col=column,
        )
    figure.update_xaxes(title="change in accuracy (points)", range=[-105, _right_end(effects)], zerolinecolor="#333333")
    figure.update_yaxes(autorange="reversed", automargin=True, ticklabelstandoff=6)
    figure.update_layout(showlegend=False, height=140 + 26 * len(effects), bargap=0.25)
    worst = min(effects, key=lambda effect: effect.ind.value + effect.ood.value)
    alt = (
        f"Bars of the change in accuracy when {result.first} is edited in the {result.architecture} counter on "
        f"{result.task}; the largest is with {result.describe(worst)}: {worst.short}."
    )
    return dress(figure, alt)


def head_maps(result: BosAblation) -> go.Figure:
    """The change in IND and OOD accuracy by cutting one head's attention to the first token, layer by head."""
    heads = [effect for effect in result.effects if effect.kind == "cut" and effect.head is not None]
    if not heads:
        figure = go.Figure().add_annotation(
            text="no heads to tell apart", showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper"
        )
        return dress(figure.update_layout(xaxis_visible=False, yaxis_visible=False, height=200), "No heads to show.")
    n_layers, n_heads = (1 + max(getattr(effect, axis) for effect in heads) for axis in ("layer", "head"))
    figure = make_subplots(1, 2, subplot_titles=_split_titles(result), shared_yaxes=True, horizontal_spacing=0.04)
    for column, split in enumerate(SPLITS, start=1):
        points = np.full((n_layers, n_heads), np.nan)
        for effect in heads:
            points[effect.layer, effect.head] = getattr(effect, split).value
        figure.add_heatmap(
            x=[f"head {head}" for head in range(n_heads)],
            y=[f"layer {layer}" for layer in range(n_layers)],
            z=points,
            coloraxis="coloraxis",
            texttemplate="%{z:+.1f}",
            hovertemplate="%{y}, %{x}: %{z:+.1f} points<extra></extra>",
            xgap=2,
            ygap=2,
            row=1,
            col=column,
        )
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    bar = {"title": "points", "thickness": 14}
    figure.update_layout(coloraxis=CHANGE_AXIS | {"colorbar": bar}, height=150 + 50 * n_layers)
    found = ", ".join(f"{effect.place} {effect.short}" for effect in result.heads_that_matter) or "none matters"
    alt = f"Heat maps of the change in accuracy when one head's attention to {result.first} is cut: {found}."
    return dress(figure, alt)


def changed_positions(result: BosAblation) -> go.Figure:
    """The share of predictions that each edit changes at each position of extrapolation rows."""
    chosen = [index for index, effect in enumerate(result.effects) if effect.head is None]
    labels = [result.describe(result.effects[index]) for index in chosen]
    shares = 100 * result.changed[chosen]
    figure = go.Figure()
    figure.add_heatmap(
        x=np.arange(shares.shape[1]),
        y=labels,
        z=shares,
        coloraxis="coloraxis",
        ygap=2,
        hovertemplate="%{y}, position %{x}: %{z:.0f} % changed<extra></extra>",
    )
    border = result.trained_up_to - 0.5
    figure.add_vline(x=border, line={"color": "#D55E00", "width": 2, "dash": "dash"})
    for text, anchor in (("trained ", "right"), (" extrapolated", "left")):
        figure.add_annotation(x=border, y=1, yref="paper", yanchor="bottom", xanchor=anchor, text=text, showarrow=False)
    figure.update_xaxes(title="position in the row", showgrid=False)
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False, ticklabelstandoff=6)
    bar = {"title": "% changed", "thickness": 14}
    figure.update_layout(
        coloraxis={"colorscale": SHARES_SCALE, "cmin": 0, "cmax": 100, "colorbar": bar}, height=150 + 24 * len(chosen)
    )
    means = ", ".join(
        f"{label} {np.nanmean(row):.0f} %" for label, row in zip(labels, shares, strict=True) if not np.isnan(row).all()
    )
    alt = f"Heat map of the share of predictions that change at each position; means over positions: {means}."
    return dress(figure, alt)


def _change_colours(points: np.ndarray) -> list[str]:
    """Colours of CHANGE_SCALE as plain ones: bars with a numeric colour make plotly complain in the console."""
    return list(sample_colorscale(CHANGE_SCALE, ((points + 100) / 200).clip(0, 1)))


def _without_heads(result: BosAblation) -> list[Effect]:
    return [effect for effect in result.effects if effect.head is None]


def _split_titles(result: BosAblation) -> list[str]:
    return [
        f"trained lengths, from {result.clean_ind:.1f} %",
        f"longer rows, from {result.clean_ood:.1f} %",
    ]


def _right_end(effects: list[Effect]) -> float:
    """Room for what an edit may gain."""
    return max(5.0, *(change.high + 5 for effect in effects for change in (effect.ind, effect.ood)))
