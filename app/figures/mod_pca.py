"""Principal components of equal tokens, coloured by PID mod m, and the cluster score of every modulus."""

from math import ceil

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures.style import FAINT, HALO, INK, SEQUENTIAL, cyclic_colours, dress
from probes.reading.mod_pca import ModPca
from probes.reading.periods import USUAL_MODULUS
from probes.reading.site_periods import SitePeriods
from probes.sites import Site
from probes.stats import ALPHA, say_p

PANELS_PER_ROW = 4
PATH = "rgba(90, 90, 90, 0.25)"


def pca_figure(result: ModPca, site: Site, modulus: int | None = None, dimensions: int = 2) -> go.Figure:
    """One site's first two or three principal components; equal colours are equal PID mod m.

    By default m is the site's period, or else the task's base.
    """
    found = result.at(site)
    base = colouring(result, found) if modulus is None else modulus
    figure = go.Figure()
    if dimensions == 3 and found.coordinates.shape[1] > 2:
        _draw_3d(figure, result, found, base)
    else:
        for trace in _flat_traces(result, found, base):
            figure.add_trace(trace)
        figure.update_xaxes(title=_axis(found, 0), zeroline=False)
        figure.update_yaxes(title=_axis(found, 1), zeroline=False)
    alt = f"Principal components of {len(result.pids)} equal tokens at {site.label}, coloured by PID mod {base}: "
    return dress(figure, alt + sentence(found) + ".", showlegend=False)


def pca_grid_figure(result: ModPca) -> go.Figure:
    """Small multiples: of each kind of site and layer the head that clusters best."""
    chosen = clearest_heads(result)
    base = result.expected or USUAL_MODULUS
    columns = min(PANELS_PER_ROW, len(chosen))
    rows = ceil(len(chosen) / columns)
    titles = [f"{found.site.label}<br><sup>{sentence(found)}</sup>" for found in chosen]
    figure = make_subplots(rows, columns, subplot_titles=titles, horizontal_spacing=0.03, vertical_spacing=0.26 / rows)
    for number, found in enumerate(chosen):
        for trace in _flat_traces(result, found, base, size=4, named=False):
            figure.add_trace(trace, row=number // columns + 1, col=number % columns + 1)
    figure.update_xaxes(showticklabels=False, zeroline=False, showline=True, linecolor=FAINT, mirror=True)
    figure.update_yaxes(showticklabels=False, zeroline=False, showline=True, linecolor=FAINT, mirror=True)
    figure.update_annotations(font_size=12)
    with_period = sum(found.period == base for found in chosen)
    alt = (
        f"First two principal components at {len(chosen)} sites, coloured by PID mod {base}; "
        f"{with_period} of them have period {base}."
    )
    return dress(figure, alt, showlegend=False, height=80 + 230 * rows, margin={"l": 20, "r": 20, "t": 60, "b": 20})


def score_figure(result: ModPca, site: Site) -> go.Figure:
    """One site's cluster score of every modulus, above the band in which 95 % of displaced periods lie."""
    found = result.at(site)
    periods = found.periods
    figure = go.Figure()
    figure.add_scatter(
        x=[*periods.moduli, *reversed(periods.moduli)],
        y=[*periods.null95, *[min(0.0, float(periods.scores.min()))] * len(periods.moduli)],
        fill="toself",
        fillcolor=FAINT,
        line={"width": 0},
        hoverinfo="skip",
        name="95 % of displaced periods",
    )
    significant = (periods.p <= ALPHA) & (found.q <= ALPHA)
    for chosen, name, symbol in ((significant, f"p ≤ {ALPHA}", "circle"), (~significant, "chance", "circle-open")):
        figure.add_scatter(
            x=np.array(periods.moduli)[chosen],
            y=periods.scores[chosen],
            mode="markers",
            marker={"symbol": symbol, "size": 9, "color": INK},
            customdata=[say_p(p) for p in periods.p[chosen]],
            hovertemplate="mod %{x}: score %{y:.2f}, %{customdata}<extra></extra>",
            name=name,
        )
    if found.period is not None:
        figure.add_annotation(x=found.period, y=found.score, text=f"period {found.period}", ax=0, ay=-28)
    elif found.fading is not None:
        figure.add_annotation(x=found.fading, y=found.score, text=f"period {found.fading}, may fade", ax=0, ay=-28)
    figure.update_xaxes(title="modulus", dtick=1, range=[periods.moduli[0] - 0.7, periods.moduli[-1] + 0.7])
    figure.update_yaxes(title="cluster score", range=[min(-0.1, float(periods.scores.min()) - 0.03), 1.12])
    alt = f"Cluster score of moduli {periods.moduli[0]} to {periods.moduli[-1]} at {site.label}: {sentence(found)}."
    return dress(figure, alt, legend={"orientation": "h", "y": -0.25})


def score_map_figure(result: ModPca) -> go.Figure:
    """The cluster score of every modulus at every site; a site's period is marked, hollow where it may fade."""
    labels = [found.site.label for found in result.sites]
    scores = np.array([found.periods.scores for found in result.sites])
    figure = go.Figure(
        go.Heatmap(
            z=np.clip(scores, 0, 1),
            x=result.sites[0].periods.moduli,
            y=labels,
            zmin=0,
            zmax=1,
            colorscale=SEQUENTIAL,
            colorbar={"title": "score", "lenmode": "pixels", "len": 260, "y": 1, "yanchor": "top"},
            hovertemplate="%{y}, mod %{x}: %{z:.2f}<extra></extra>",
        )
    )
    for name, fill in (("period", "white"), ("fading", "rgba(0, 0, 0, 0)")):
        marked = [found for found in result.sites if getattr(found, name) is not None]
        figure.add_scatter(
            x=[getattr(found, name) for found in marked],
            y=[found.site.label for found in marked],
            mode="markers",
            marker={"symbol": "diamond", "color": fill, "size": 7, "line": {"color": INK, "width": 1.5}},
            hoverinfo="skip",
        )
    figure.update_xaxes(title="modulus (diamond: the site's period; hollow: it may fade)", dtick=1, showgrid=False)
    figure.update_yaxes(range=[len(labels) - 0.5, -0.5], showgrid=False, dtick=1, ticksuffix=" ")
    alt = f"Cluster score of every modulus at every site: {result.verdict.sentence}."
    return dress(figure, alt, showlegend=False, height=140 + 17 * len(labels))


def sentence(found: SitePeriods) -> str:
    """What was found at a site, in a few words."""
    if not found.periods.varies:
        return "nothing but drift" if found.variance.any() else "the same at every position"
    modulus = found.period or found.fading
    if modulus is None:
        return "no period"
    fades = " that may fade" if found.period is None else ""
    follows = "" if found.follows is None else f"; over shifts: {found.follows.held}"
    return f"period {modulus}{fades} (score {found.score:.2f}, {say_p(found.p)}{follows})"


def colouring(result: ModPca, found: SitePeriods) -> int:
    """The modulus that colours a picture."""
    return found.period or found.fading or result.expected or USUAL_MODULUS


def clearest_heads(result: ModPca) -> list[SitePeriods]:
    """One site of each kind and layer: the head with the highest score."""
    best: dict[tuple[str, int | None], SitePeriods] = {}
    for found in result.sites:
        key = (found.site.kind, found.site.layer)
        if key not in best or found.score > best[key].score:
            best[key] = found
    return list(best.values())


def _flat_traces(result: ModPca, found: SitePeriods, base: int, size: int = 8, named: bool = True) -> list[go.Scatter]:
    """A faint path through consecutive positions, the tokens, and the residue's number in each cluster's middle."""
    x, y = found.coordinates[:, 0], found.coordinates[:, 1] if found.coordinates.shape[1] > 1 else 0 * result.pids
    residues = result.pids % base
    traces = [
        go.Scatter(x=x, y=y, mode="lines", line={"color": PATH, "width": 1}, hoverinfo="skip"),
        go.Scatter(x=x, y=y, mode="markers", marker=_marker(residues, base, size), **_hover(result, base)),
    ]
    if named and base in (found.period, found.fading):
        middles = [(np.median(x[residues == residue]), np.median(y[residues == residue])) for residue in range(base)]
        traces.append(
            go.Scatter(
                x=[middle[0] for middle in middles],
                y=[middle[1] for middle in middles],
                mode="text",
                text=[f"<b>{residue}</b>" for residue in range(base)],
                textfont={"size": 17, "color": INK, "shadow": HALO},
                hoverinfo="skip",
            )
        )
    return traces


def _draw_3d(figure: go.Figure, result: ModPca, found: SitePeriods, base: int) -> None:
    x, y, z = found.coordinates[:, :3].T
    figure.add_scatter3d(x=x, y=y, z=z, mode="lines", line={"color": "#CCCCCC", "width": 2}, hoverinfo="skip")
    marker = _marker(result.pids % base, base, 4)
    figure.add_scatter3d(x=x, y=y, z=z, mode="markers", marker=marker, **_hover(result, base))
    walls = {"showbackground": False, "gridcolor": PATH, "zerolinecolor": PATH}  # for a dark page too
    axes = {f"{name}axis": walls | {"title": _axis(found, number, short=True)} for number, name in enumerate("xyz")}
    camera = {"eye": {"x": 1.7, "y": 1.7, "z": 1.1}}
    figure.update_layout(scene=axes | {"camera": camera, "aspectmode": "cube"}, height=600)


def _marker(residues: np.ndarray, base: int, size: int) -> dict[str, object]:
    colours = np.array(cyclic_colours(base))
    return {"color": colours[residues], "size": size, "line": {"color": "white", "width": 0.5}}


def _hover(result: ModPca, base: int) -> dict[str, object]:
    texts = [f"position id {pid} (mod {base}: {pid % base})" for pid in result.pids]
    return {"text": texts, "hovertemplate": "%{text}<extra></extra>"}


def _axis(found: SitePeriods, number: int, short: bool = False) -> str:
    share = found.variance[number] if number < len(found.variance) else 0.0
    return f"{number + 1} ({share:.0%})" if short else f"component {number + 1} ({share:.0%} of variance)"
