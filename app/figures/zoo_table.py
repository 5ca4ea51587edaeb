"""The zoo as a table: tasks down, architectures across, IND and OOD in each cell, coloured against the paper.

Plain HTML, for it is what people see first: a picture would have to wait for a megabyte of plotly.
"""

from collections import Counter
from collections.abc import Mapping
from html import escape
from urllib.parse import quote

from app.escape import printable
from app.explorer.zoo import Grid, Standing, ZooCell
from app.figures.cells import ON_CELL, RIGHT_COLOUR, UNSCORED_COLOUR, WRONG_COLOUR
from training.paper.score_table import cell_of
from training.paper.tables import printed

LOOKS: dict[Standing, tuple[str, str]] = {  # colour and sign: not everyone sees the colour
    "goes on, as in the paper": (RIGHT_COLOUR, "✓"),
    "ends, as in the paper": (UNSCORED_COLOUR, "·"),
    "differs from the paper": (WRONG_COLOUR, "≠"),
    "not in the paper": ("#F3EFD2", "new"),
}
STYLE = f"""<style>
.zoo {{ overflow-x: auto }}
.zoo table {{ border-collapse: separate; border-spacing: 3px; font-size: 0.75rem; line-height: 1.35; width: 100% }}
.zoo th {{ font-weight: normal; text-align: right; padding: 0 0.4rem 0 0 }}
.zoo thead th {{ text-align: center }}
.zoo td {{ padding: 0; min-width: 4.3rem; text-align: center; vertical-align: top }}
.zoo a {{ display: block; padding: 0.3rem 0.2rem; border-radius: 3px; color: {ON_CELL}; text-decoration: none }}
.zoo a:hover, .zoo a:focus {{ outline: 2px solid #0072B2 }}
.zoo a.alone, .zoo span.alone {{ background-clip: padding-box; border: 2px dotted {ON_CELL}66 }}
.zoo a.seeds {{ display: inline; padding: 0; color: inherit; text-decoration: underline; opacity: 0.8 }}
.zoo p {{ font-size: 0.8rem; margin: 0.5rem 0 0 }}
.zoo span {{ color: {ON_CELL}; padding: 0.1rem 0.5rem; border-radius: 3px; margin-right: 0.8rem }}
.zoo span {{ display: inline-block }}
</style>"""


def zoo_table(grid: Grid, seeds: Mapping[str, int] | None = None) -> str:
    """HTML in which every counter is a link to what it does, and the number of its cell's seeds one to all of them.

    Where only scores are here, the link leads to the seeds and to the command that trains them.

    `seeds` says how many were scored, by cell.
    """
    rows, columns = grid.experiments, grid.architectures
    cells = {(cell.experiment, cell.architecture): _cell(cell, seeds or {}) for cell in grid.cells}
    head = "".join(f"<th scope='col'>{_html(name)}</th>" for name in columns)
    body = "".join(
        f"<tr><th scope='row'>{_html(row.label).replace(', ', '<br>', 1)}</th>"
        + "".join(cells.get((row, name), "<td></td>") for name in columns)
        + "</tr>"
        for row in rows
    )
    present = {cell.standing for cell in grid.cells}
    legend = "".join(
        f"<span style='background: {colour}'>{sign} {standing}</span>"
        for standing, (colour, sign) in LOOKS.items()
        if standing in present
    )
    if not all(cell.here for cell in grid.cells):
        legend += "<span class='alone' style='background: #fff'>scores alone; a click tells how to train it</span>"
    table = f"<table aria-label='{escape(describe_grid(grid))}'><thead><tr><th></th>{head}</tr></thead>{body}</table>"
    return f"{STYLE}<div class='zoo'>{table}<p>{legend}</p></div>"


def describe_grid(grid: Grid) -> str:
    """The grid in one sentence."""
    standings = Counter(cell.standing for cell in grid.cells)
    counted = ", ".join(f"{number} {standing}" for standing, number in standings.items())
    size = f"{len(grid.experiments)} tasks and {len(grid.architectures)} architectures"
    return f"Grid of {size} with percent right, IND / OOD: {counted}."


def describe_cell(cell: ZooCell) -> str:
    """What there is to know of a cell, in lines."""
    paper = "nothing" if cell.paper is None else " / ".join(map(printed, cell.paper))
    more = f"\nthe best of {cell.others + 1} counters" if cell.others else ""
    weights = "" if cell.here else "\nscores alone: its weights are not here"
    return f"{printable(cell.counter)}\nIND / OOD: {_numbers(cell)}; the paper has {paper}{more}{weights}"


def _cell(cell: ZooCell, seeds: Mapping[str, int]) -> str:
    colour, sign = LOOKS[cell.standing]
    name = cell_of(cell.counter)
    seeds_link = f"./?cell={quote(name, safe='')}"
    link = f"behaviour?counter={quote(cell.counter, safe='')}" if cell.here else seeds_link
    look = f'class="{"here" if cell.here else "alone"}" style="background: {colour}"'
    told = escape(describe_cell(cell))
    counter = f'<a href="{link}" target="_self" title="{told}" {look}>{_numbers(cell)}<br>{sign}</a>'
    number = max(seeds.get(name, 0), cell.others + 1)
    if number < 2:
        return f"<td>{counter}</td>"
    all_seeds = f'<a class="seeds" href="{seeds_link}" target="_self">{number} seeds</a>'
    return f"<td>{counter}{all_seeds}</td>"


def _html(text: str) -> str:
    return escape(printable(text))


def _numbers(cell: ZooCell) -> str:
    return " / ".join(map(printed, cell.ours))
