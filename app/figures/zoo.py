"""The zoo as a grid: tasks down, architectures across, IND and OOD in each cell, coloured against the paper."""

from collections import Counter
from typing import Any

import plotly.graph_objects as go

from app.explorer.zoo import Cell, Grid, Standing
from app.figures.style import ON_CELL, RIGHT_COLOUR, UNSCORED_COLOUR, WRONG_COLOUR, dress
from training.paper import printed

ROW_HEIGHT = 46  # pixels
LOOKS: dict[Standing, tuple[str, str]] = {  # colour and sign: not everyone sees the colour
    "goes on, as in the paper": (RIGHT_COLOUR, "✓"),
    "ends, as in the paper": (UNSCORED_COLOUR, "·"),
    "differs from the paper": (WRONG_COLOUR, "≠"),
    "not in the paper": ("#F3EFD2", "new"),
}


def zoo_figure(grid: Grid) -> go.Figure:
    """A rectangle a cell. The points on them carry the counters' names, so that a page can tell which was clicked."""
    figure = go.Figure()
    rows, columns = grid.experiments, grid.architectures
    for standing, (colour, sign) in LOOKS.items():
        cells = [cell for cell in grid.cells if cell.standing == standing]
        figure.add_scatter(
            x=[columns.index(cell.architecture) for cell in cells],
            y=[rows.index(cell.experiment) for cell in cells],
            text=[f"{printed(cell.ours.ind)} / {printed(cell.ours.ood)}<br>{sign}" for cell in cells],
            customdata=[[cell.entry.name, _hover(cell)] for cell in cells],
            hovertemplate="%{customdata[1]}<extra></extra>",
            mode="markers+text",
            marker={"symbol": "square", "size": 14, "color": colour},  # of the legend; in a cell it is not to be seen
            textfont={"color": ON_CELL, "size": 12},
            selected_marker_opacity=1,
            unselected={"marker_opacity": 1, "textfont_color": ON_CELL},
            name=f"{sign} {standing}",
        )
    standings = Counter(cell.standing for cell in grid.cells)
    counted = ", ".join(f"{number} {standing}" for standing, number in standings.items())
    size = f"{len(rows)} tasks and {len(columns)} architectures"
    return dress(
        figure,
        f"Grid of {size} with percent right, IND / OOD: {counted}.",
        shapes=[_rectangle(cell, rows.index(cell.experiment), columns.index(cell.architecture)) for cell in grid.cells],
        xaxis=_axis(columns) | {"side": "top", "range": [-0.5, len(columns) - 0.5]},
        yaxis=_axis([row.label.replace(", ", "<br>", 1) for row in rows]) | {"range": [len(rows) - 0.5, -0.5]},
        height=ROW_HEIGHT * len(rows) + 90,
        margin={"l": 10, "r": 10, "t": 30, "b": 40},
        legend={"orientation": "h", "y": 0, "yanchor": "top"},
        hoverdistance=40,
        dragmode=False,
    )


def _rectangle(cell: Cell, row: int, column: int) -> dict[str, Any]:
    sides: dict[str, Any] = {"x0": column - 0.48, "x1": column + 0.48, "y0": row - 0.46, "y1": row + 0.46}
    return {"type": "rect", "layer": "below", "fillcolor": LOOKS[cell.standing][0], "line": {"width": 0}} | sides


def _axis(names: list[str]) -> dict[str, Any]:
    ticks: dict[str, Any] = {"tickvals": list(range(len(names))), "ticktext": names, "automargin": True}
    return ticks | {"fixedrange": True, "showgrid": False, "zeroline": False}


def _hover(cell: Cell) -> str:
    paper = "nothing" if cell.paper is None else " / ".join(map(printed, cell.paper))
    ours = " / ".join(map(printed, cell.ours))
    more = f"<br>the best of {cell.others + 1} counters" if cell.others else ""
    return f"{cell.entry.name}<br>IND / OOD: {ours}; the paper has {paper}{more}<br>click to open"
