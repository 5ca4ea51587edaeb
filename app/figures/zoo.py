"""The zoo's table as a picture, for whoever wants to take it away."""

from typing import Any

import plotly.graph_objects as go

from app.escape import for_plotly
from app.explorer.zoo import Grid, ZooCell
from app.figures.cells import ON_CELL
from app.figures.style import dress
from app.figures.zoo_table import LOOKS, describe_cell, describe_grid
from training.paper.tables import printed

ROW_HEIGHT = 46  # pixels


def zoo_figure(grid: Grid) -> go.Figure:
    """One rectangle per cell, with the accuracy at trained lengths and in longer rows on it."""
    figure = go.Figure()
    rows, columns = grid.experiments, grid.architectures
    labels = [for_plotly(row.label).replace(", ", "<br>", 1) for row in rows]
    for standing, (colour, sign) in LOOKS.items():
        cells = [cell for cell in grid.cells if cell.standing == standing]
        figure.add_scatter(
            x=[columns.index(cell.architecture) for cell in cells],
            y=[rows.index(cell.experiment) for cell in cells],
            text=[f"{printed(cell.ours.ind)} / {printed(cell.ours.ood)}<br>{sign}" for cell in cells],
            customdata=["<br>".join(map(for_plotly, describe_cell(cell).splitlines())) for cell in cells],
            hovertemplate="%{customdata}<extra></extra>",
            mode="markers+text",
            marker={"symbol": "square", "size": 14, "color": colour},  # of the legend; in a cell it is not to be seen
            textfont={"color": ON_CELL, "size": 12},
            name=f"{sign} {standing}",
        )
    return dress(
        figure,
        describe_grid(grid),
        shapes=[_rectangle(cell, rows.index(cell.experiment), columns.index(cell.architecture)) for cell in grid.cells],
        xaxis=_axis([for_plotly(name) for name in columns]) | {"side": "top", "range": [-0.5, len(columns) - 0.5]},
        yaxis=_axis(labels) | {"range": [len(rows) - 0.5, -0.5]},
        height=ROW_HEIGHT * len(rows) + 90,
        margin={"l": 10, "r": 10, "t": 30, "b": 40},
        legend={"orientation": "h", "y": 0, "yanchor": "top"},
        hoverdistance=40,
        dragmode=False,
    )


def _rectangle(cell: ZooCell, row: int, column: int) -> dict[str, Any]:
    sides: dict[str, Any] = {"x0": column - 0.48, "x1": column + 0.48, "y0": row - 0.46, "y1": row + 0.46}
    return {"type": "rect", "layer": "below", "fillcolor": LOOKS[cell.standing][0], "line": {"width": 0}} | sides


def _axis(names: list[str]) -> dict[str, Any]:
    ticks: dict[str, Any] = {"tickvals": list(range(len(names))), "ticktext": names, "automargin": True}
    return ticks | {"fixedrange": True, "showgrid": False, "zeroline": False}
