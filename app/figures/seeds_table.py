"""The seeds of a cell as a table: scores, and a link to those whose weights are here. Plain HTML, as the zoo's."""

from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from app.escape import printable
from app.explorer.seeds import SeedScores, median_of
from training.paper.agreement import Accuracy
from training.paper.tables import printed

STYLE = """<style>
.seeds { overflow-x: auto }
.seeds table { border-collapse: collapse; font-size: 0.85rem }
.seeds th, .seeds td { padding: 0.2rem 0.8rem 0.2rem 0; text-align: left; vertical-align: top }
.seeds td { white-space: nowrap }
.seeds td.number { text-align: right; font-variant-numeric: tabular-nums }
.seeds a { color: inherit }
</style>"""
HEAD = ("seed", "best: trained lengths / longer rows", "last step", "weights")


def seeds_table(seeds: Sequence[SeedScores], paper: Sequence[tuple[str, Accuracy]] = ()) -> str:
    """HTML with a line for each seed, our median, and what the paper has for the cell, by name."""
    lines = [_line(seed.name.rpartition("/")[2] or seed.name, seed.best, seed.last, _weights(seed)) for seed in seeds]
    middle = median_of(seeds)
    if middle is not None and len(seeds) > 1:
        lines.append(_line(f"median of {len(seeds)}", middle, None, ""))
    lines += [_line(name, accuracy, None, "") for name, accuracy in paper]
    head = "".join(f"<th scope='col'>{name}</th>" for name in HEAD)
    table = f"<table><thead><tr>{head}</tr></thead>{''.join(lines)}</table>"
    return f"{STYLE}<div class='seeds'>{table}{_commands(seeds)}</div>"


def _commands(seeds: Sequence[SeedScores]) -> str:
    """How seeds that are not here are made: one command for each set of options."""
    by_options: dict[str, list[str]] = {}
    for seed in seeds:
        if seed.command is not None:
            options, _, number = seed.command.rpartition(" --seed ")
            by_options.setdefault(options, []).append(number)
    return "".join(
        f"<p>To make seed {', '.join(numbers)}: <code>{escape(printable(options))} --seed {numbers[0]}</code></p>"
        for options, numbers in by_options.items()
    )


def _line(name: str, best: Accuracy | None, last: Accuracy | None, weights: str) -> str:
    numbers = "".join(f"<td class='number'>{_numbers(accuracy)}</td>" for accuracy in (best, last))
    return f"<tr><td>{escape(printable(name))}</td>{numbers}<td>{weights}</td></tr>"


def _weights(seed: SeedScores) -> str:
    if seed.entry is not None:
        return f'<a href="behaviour?counter={quote(seed.entry.name, safe="")}" target="_self">here: look at it</a>'
    return "not here"


def _numbers(accuracy: Accuracy | None) -> str:
    return "" if accuracy is None else " / ".join(map(printed, accuracy))
