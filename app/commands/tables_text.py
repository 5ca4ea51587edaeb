"""The comparison as text: every table of the paper, with two lines per row, ours above the paper's.

Colour shows how a number compares, and so does the mark before it: a pipe has no colours, and not everyone sees them.
"""

import math
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.escape import printable
from training.paper.agreement import SUCCESS, Agreement
from training.paper.closeness import Closeness
from training.paper.comparison import FAR, ComparedCell, ComparedTable, Comparison, Share, Shares
from training.paper.summary import summarise
from training.paper.tables import PAPER_TABLES, STATISTICS, PaperCell, paper_cells, printed

Marks = dict[Agreement | None, str]

STYLES: dict[Agreement | None, str] = {
    "both succeed": "#2b8cde",
    "both fail": "grey50",
    "differ": "bold #d55e00",
    None: "",
}
MARKS: Marks = {"both succeed": "✓", "both fail": "·", "differ": "≠", None: " "}
ASCII_MARKS: Marks = {"both succeed": "+", "both fail": ".", "differ": "#", None: " "}
NUMBER = 4  # columns of a number
NO_REASON = "no reason known yet"


def show(comparison: Comparison, console: Console) -> None:
    """Prints every table, how far they agree, and the cells that differ, with reasons."""
    marks = ASCII_MARKS if console.options.ascii_only else MARKS
    console.print(_legend(marks))
    for table in comparison.tables:
        about = PAPER_TABLES[table.name]
        console.print()
        console.print(Text(about.title, "bold").append(f"  {table.name}, {about.section}", "grey50 not bold"))
        console.print(about.shows)
        console.print()
        console.print(_grid(table, marks))
        console.print(_origin(table))
    console.print()
    _show_agreement(comparison, console)
    console.print()
    console.print(Text("How near we are to the paper", style="bold"))
    console.print(CLOSENESS_LEGEND)
    _show_closeness(comparison, console)
    if comparison.odd_cells:
        console.print(Text("\nWhere we differ from the paper", style="bold"))
        console.print(f"On the other side of success ({marks['differ']}), or more than {FAR:.0f} points off.")
        _show_differences(comparison, marks, console)


def _grid(table: ComparedTable, marks: Marks) -> Table:
    architectures = list(dict.fromkeys(cell.paper.architecture for cell in table.cells))
    grid = Table("task", "L", "", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for architecture in architectures:
        grid.add_column(f"{architecture}\n{'IND':>{NUMBER + 1}} {'OOD':>{NUMBER + 1}}", no_wrap=True)
    previous = ""
    for cells in _rows(table):
        paper = next(iter(cells.values())).paper
        task = _label(paper).partition("\n")[0]
        if previous not in ("", task):
            grid.add_section()
        previous = task
        trained = any(cell.ours is not None for cell in cells.values())
        entries = [_entry(cells.get(architecture), trained, marks) for architecture in architectures]
        grid.add_row(_label(paper), str(paper.layers), "ours\npaper" if trained else "paper", *entries)
    return grid


def _rows(table: ComparedTable) -> list[dict[str, ComparedCell]]:
    """The cells of each row by architecture; rows of the same task follow each other."""
    rows: dict[str, dict[int, dict[str, ComparedCell]]] = {}
    for cell in table.cells:
        layers = rows.setdefault(_label(cell.paper), {})
        layers.setdefault(cell.paper.layers, {})[cell.paper.architecture] = cell
    return [row for layers in rows.values() for row in layers.values()]


def _label(paper: PaperCell) -> str:
    """The task, and on a second line the settings in which this row differs from others of its table."""
    others = [cell for cell in paper_cells(paper.table) if cell.task == paper.task]
    settings = [f"{paper.width} wide"] * (paper.width is not None)
    if len({other.causal for other in others}) > 1:
        settings.append("causal" if paper.causal else "not causal")
    if len({(other.train_length, other.ood_length) for other in others}) > 1:
        settings.append(f"{paper.train_length} to {paper.ood_length} tokens")
    return f"{paper.task}{' + bos' * paper.bos}" + (f"\n{', '.join(settings)}" if settings else "")


def _entry(cell: ComparedCell | None, trained: bool, marks: Marks) -> Text:
    """Our numbers above the paper's; only the paper's if the row has none of ours."""
    if cell is None:
        return Text()
    papers = Text(" ".join(f" {printed(value):>{NUMBER}}" for value in (cell.paper.ind, cell.paper.ood)))
    if not trained:
        return papers
    ours = ("-", "-") if cell.numbers is None else tuple(printed(value) for value in cell.numbers)
    sides = [
        Text(f"{marks[agreement]}{value:>{NUMBER}}", STYLES[agreement])
        for value, agreement in zip(ours, (cell.ind, cell.ood), strict=True)
    ]
    return Text("\n").join([Text(" ").join(sides), papers])


def _origin(table: ComparedTable) -> str:
    """The presets and seeds of our numbers in a table, and how many of them agree with the paper's."""
    ours = [cell.ours for cell in table.cells if cell.ours is not None]
    if not ours:
        return f"None of its {len(table.cells)} cells is trained: these are the paper's numbers alone."
    presets = " and ".join(sorted({cell.preset for cell in ours}))
    seeds = _range(cell.seeds for cell in ours)
    statistic = PAPER_TABLES[table.name].statistic
    return (
        f"Ours: preset {presets}, {statistic} of {seeds}, {len(ours)} of {len(table.cells)} cells trained. "
        f"Paper: {statistic} of 5 seeds.\nAgree: {_agreement(table.shares)}."
    )


def _range(counts: Iterable[int]) -> str:
    low, *_, high = sorted([*counts] * 2)
    return f"{low} seed{'s' * (low != 1)}" if low == high else f"{low} to {high} seeds"


def _agreement(shares: Shares) -> str:
    return f"IND {_share(shares.ind)}, OOD {_share(shares.ood)}, whole cells {_share(shares.cells)}"


def _share(share: Share) -> str:
    return f"{share.agree} of {share.trained}" + (f" ({share.agree / share.trained:.0%})" if share.trained else "")


def _legend(marks: Marks) -> Text:
    legend = Text("Accuracy in percent; success is at least ").append(f"{SUCCESS:.0f}. ")
    for agreement in ("both succeed", "both fail", "differ"):
        legend.append(f"{marks[agreement]} {agreement}", STYLES[agreement]).append("   ")
    return legend.append("- not trained")


def _show_agreement(comparison: Comparison, console: Console) -> None:
    console.print(Text("Agreement over these tables, every cell that we trained counted once", style="bold"))
    for statistic in STATISTICS:
        cells = sum(cell.paper.statistic == statistic for cell in comparison.cells)
        if cells:
            console.print(f"  {statistic:6} {_agreement(comparison.shares(statistic))}; {cells} cells in all")


CLOSENESS_LEGEND = (
    "Points of accuracy between ours and the paper's (mean, median); the share of cells within 5 and 10 points; the "
    "rank correlation of architectures within a row; the share on the same side of success, beside that of whoever "
    "gives the paper's more frequent answer everywhere; Cohen's kappa; and, of cells with three seeds or more, the "
    "share whose seeds enclose the paper's value. `last`: at the last step instead of the best checkpoint. "
    "Below a table of best seeds, how near the paper's own medians are to them: a yardstick, as both are of the same "
    "runs."
)


NEAR_COLUMNS = ("trained", "mean", "median", "in 5", "in 10", "rank", "same", "base", "kappa", "range")


def _show_closeness(comparison: Comparison, console: Console) -> None:
    """Prints every line of the summary below the name of its table; a dash stands for what cannot be computed."""
    console.print(Text(" " * 12 + _aligned(NEAR_COLUMNS), "bold"))
    previous = ""
    for line in summarise(comparison):
        if line.table != previous:
            console.print(Text(line.table))
        previous = line.table
        side = f"{line.side.upper()}{', last' * (line.checkpoint == 'last')}"
        console.print(Text(f"  {side:<10}{_aligned(_near(line.closeness))}"))


def _aligned(words: Sequence[str]) -> str:
    """The words in columns; the first is wider, as it holds the longest ("93 of 220")."""
    return f"{words[0]:>10}" + "".join(f"{word:>7}" for word in words[1:])


def _near(near: Closeness) -> list[str]:
    points = [near.mean_difference, near.median_difference]
    shares = [near.within_5, near.within_10]
    return [
        f"{near.trained} of {near.cells}",
        *(_number(value, "{:.1f}") for value in points),
        *(_number(value, "{:.0%}") for value in shares),
        _number(near.rank_correlation, "{:.2f}"),
        *(_number(value, "{:.0%}") for value in (near.same_side, near.base_rate)),
        _number(near.kappa, "{:.2f}"),
        _number(near.in_range, "{:.0%}"),
    ]


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else form.format(value)


def _show_differences(comparison: Comparison, marks: Marks, console: Console) -> None:
    """Prints each reason once, with the cells that differ for it below; those without one are last."""
    by_reason: dict[str, list[ComparedCell]] = {}
    for cell in sorted(comparison.odd_cells, key=lambda cell: not cell.reason):
        by_reason.setdefault(cell.reason or NO_REASON, []).append(cell)
    for reason, cells in by_reason.items():
        console.print()
        console.print(Text(printable(reason[0].upper() + reason[1:]), "bold"))
        console.print(_odd_cells(cells, marks))


def _odd_cells(cells: Iterable[ComparedCell], marks: Marks) -> Table:
    """One line per odd side of each cell: our number, the paper's, and those of all our seeds."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column()
    for cell in cells:
        paper, numbers = cell.paper, cell.numbers
        assert numbers is not None
        layers = f"{paper.layers} layer{'s' * (paper.layers != 1)}"
        what = [*_label(paper).split("\n"), paper.architecture, layers, *["median"] * (paper.statistic == "median")]
        mark = Text(f"{marks['differ' if cell.differs else None]} ", STYLES["differ"])
        name = mark.append(", ".join(what), "default not bold")
        for side in cell.odd_sides:
            ours, theirs = (printed(getattr(values, side)) for values in (numbers, paper))
            scores = " ".join(f"{score:.0f}" for score in cell.by_seed(side))
            seeds = f"seeds {scores}" if " " in scores else "one seed"
            grid.add_row(name, f"{side.upper()} {ours:>{NUMBER}}, paper {theirs:>{NUMBER}}", seeds)
            name = Text()
    return grid
