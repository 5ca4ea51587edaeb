"""Prints docs/results.md's tables of scores, ours beside the paper's, from checkpoints/scores.csv.

python docs/tables.py
"""

from collections import defaultdict

from models.find import SHIPPED
from training.paper.score_table import ScoreRow, merge_scores, read_scores
from training.paper.tables import paper_cells, printed

TABLES = {
    "counting_results": ("nope", "sine", "ape", "rope", "spe"),
    "selective_bos": ("nope", "sine", "ape", "rope", "spe"),
    "bos": ("nope", "rope"),
    "first_tok_homogeneous_results": ("nope", "sine", "ape", "rope", "spe"),
    "counting_results_other_architectures": ("rnn", "lstm", "s4", "mamba", "rwkv6"),
}


def accuracy(ind: float, ood: float) -> str:
    return f"{printed(ind)} / {printed(ood)}"


def print_table(table: str, architectures: tuple[str, ...], rows: list[ScoreRow]) -> None:
    """Every experiment of a table of which we have a seed: best seed, its last checkpoint, and the paper's."""
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
    print(f"| task | layers | | {' | '.join(architectures)} |\n|---|---|---|{'---|' * len(architectures)}")
    for (task, layers, width), cells in lines.items():
        name = task if width is None else f"{task}, {width} wide"
        for index, what in enumerate(("best seed (seeds)", "its last step", "paper")):
            values = [cells[architecture][index] if architecture in cells else "" for architecture in architectures]
            head = f"{name} | {layers}" if index == 0 else " | "
            print(f"| {head} | {what} | {' | '.join(values)} |")
    print()


def main() -> None:
    rows = merge_scores(read_scores(SHIPPED / "scores.csv"))
    for table, architectures in TABLES.items():
        print_table(table, architectures, rows)


if __name__ == "__main__":
    main()
