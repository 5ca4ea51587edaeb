"""Principal components of equal tokens in which one token is marked, and every token can be clicked on."""

import plotly.graph_objects as go

from app.figures.mod_pca import pca_figure
from app.figures.style import INK
from probes.reading.mod_pca import ModPca
from probes.sites import Site

RING = {"size": 18, "color": "rgba(0, 0, 0, 0)", "line": {"color": INK, "width": 3}, "symbol": "circle"}


def marked_pca_figure(
    result: ModPca, site: Site, modulus: int | None = None, dimensions: int = 2, pid: int | None = None
) -> go.Figure:
    """The principal components at a site; a ring stands around the token at a position id, if one is given."""
    figure = pca_figure(result, site, modulus, dimensions)
    pids = result.pids.tolist()
    for trace in figure.data:
        if trace.mode == "markers":
            trace.customdata = pids
    if pid not in pids:
        return figure
    at = pids.index(pid)
    x, y, *rest = result.at(site).coordinates[at]
    hint = {"text": [f"position id {pid}"], "hovertemplate": "%{text}<extra></extra>", "mode": "markers"}
    if any(trace.type == "scatter3d" for trace in figure.data):
        marker = RING | {"symbol": "circle-open", "color": INK}
        figure.add_scatter3d(x=[x], y=[y], z=[rest[0]], marker=marker, **hint)
    else:
        figure.add_scatter(x=[x], y=[y], marker=RING, **hint)
    figure.layout.meta = {"alt": f"{figure.layout.meta['alt']} The token at PID {pid} is marked."}
    return figure
