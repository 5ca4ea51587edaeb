"""Writes docs/results.md's tables of scores, ours beside the paper's, from checkpoints/scores.csv.

python docs/tables.py
"""

import re
from collections import defaultdict
from pathlib import Path

from models.find import SHIPPED
from training.paper.score_table import ScoreRow, read_scores
from training.paper.tables import paper_cells, printed

PAGE = Path(__file__).with_name("results.md")
TABLES = {
    "counting_results": ("nope", "sine", "ape", "rope", "spe"),
    "selective_bos": ("nope", "sine", "ape", "rope", "spe"),
    "bos": ("nope", "rope"),
    "first_tok_homogeneous_results": ("nope", "sine", "ape", "rope", "spe"),
    "counting_results_other_architectures": ("rnn", "lstm", "s4", "mamba", "rwkv6"),
}

MANY_SEEDS = 5


def accuracy(ind: float, ood: float) -> str:
    return f"{printed(ind)} / {printed(ood)}"


def table_text(table: str, rows: list[ScoreRow]) -> str:
    """Every experiment of a table of which we have a seed: best seed, its last checkpoint, and the paper's."""
    architectures = TABLES[table]
    lines: dict[tuple[str, int, int | None], dict[str, tuple[str, str, str]]] = defaultdict(dict)
    for cell in paper_cells(table):
        seeds = [row for row in rows if cell.is_about(row.experiment, row.width, row.heads)]
        seeds = [row for row in seeds if row.policy == "shifted" and row.preset == "small"]
        if seeds:
            best = max(seeds, key=lambda row: row.rank)
            task = f"`{cell.task}`{' + bos' * cell.bos}"
            lines[task, cell.layers, cell.width][cell.architecture] = (
                f"{accuracy(best.ind, best.ood)} ({len(seeds)})",
                accuracy(best.last_ind, best.last_ood),
                accuracy(cell.ind, cell.ood),
            )
    text = [f"| task | layers | | {' | '.join(architectures)} |", f"|---|---|---|{'---|' * len(architectures)}"]
    for (task, layers, width), cells in lines.items():
        name = task if width is None else f"{task}, {width} wide"
        for index, what in enumerate(("best seed (seeds)", "its last step", "paper")):
            values = [cells[architecture][index] if architecture in cells else "" for architecture in architectures]
            head = f"{name} | {layers}" if index == 0 else " | "
            text.append(f"| {head} | {what} | {' | '.join(values)} |")
    return "\n".join(text)


def by_seed_text(rows: list[ScoreRow]) -> str:
    """The last OOD of every seed of the cells that have many."""
    cells: dict[str, list[ScoreRow]] = defaultdict(list)
    for row in rows:
        cells[row.cell].append(row)
    text = ["| counter | seeds | last OOD of each |", "|---|---|---|"]
    for cell, seeds in sorted(cells.items()):
        if len(seeds) >= MANY_SEEDS:
            seeds.sort(key=lambda row: row.seed)
            names = f"{seeds[0].seed} to {seeds[-1].seed}"
            text.append(f"| `{cell}` | {names} | {', '.join(printed(row.last_ood) for row in seeds)} |")
    return "\n".join(text)


def with_tables(page: str) -> str:
    """The page with the table of that name between each pair of markers."""
    rows = read_scores(SHIPPED / "scores.csv")
    texts = {table: table_text(table, rows) for table in TABLES} | {"by seed": by_seed_text(rows)}
    for table, text in texts.items():
        first, last = f"<!-- {table} -->", f"<!-- end of {table} -->"
        pattern = re.compile(f"{re.escape(first)}.*?{re.escape(last)}", re.DOTALL)
        page, found = pattern.subn(f"{first}\n\n{text}\n\n{last}", page)
        assert found == 1, f"{PAGE} has no place for the table {table}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
