"""Prints the docs' tables of verdicts by seed, and measures what is missing from docs/by_seed.csv first.

    python docs/by_seed.py                                      the tables
    python docs/by_seed.py runs/mod10/ape-2L runs/mod10/rnn-1L  asks every seed in these folders, then the tables
    python docs/by_seed.py runs/mod10/ape-2L --probes mod_pca   asks other probes than mechanism and anchor

A folder holds the runs of one cell, seed by seed, as `countlens sweep` leaves them. Each run's last step is asked, so
that no step is chosen; runs that have not ended are left out.
"""

import argparse
import csv
from collections import Counter, defaultdict
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from probes.ablation.bos_ablation import BosAblation
from probes.ablation.mask_as_finder import MaskAsFinder
from probes.ablation.period_shift import PeriodShift
from probes.ablation.position_free import PositionFree
from probes.cells import find_cell
from probes.mechanism.anchors import Anchors
from probes.mechanism.examination import AS_IT_IS
from probes.mechanism.grades import GRADES
from probes.mechanism.memory_verdict import MemoryMechanisms
from probes.mechanism.start_distance import StartDistance
from probes.mechanism.swap_pairs import BEYOND
from probes.mechanism.verdict import Mechanisms
from probes.reading.behaviour import Behaviour
from probes.reading.mod_pca import ModPca
from probes.reading.periods import USUAL_MODULUS
from probes.registry import PROBES, load_subject
from probes.result import NotApplicable, Result
from probes.stats import mean_interval
from training.run.folder import RunFolder
from training.tasks.base import MAIN_SPLITS

TABLE = Path(__file__).with_name("by_seed.csv")
COLUMNS = ("cell", "seed", "probe", "label", "grade", "value", "low", "high", "numbers")
MECHANISM = ("mechanism", "anchor")  # these stand in docs/mechanism.md, the others in docs/results.md
POINTS = ("bos", "behaviour")  # these have points of accuracy; the table has shares only


def grade_of(result: Result) -> str:
    """The grade of what a result says, as the verdict words it."""
    if isinstance(result, Mechanisms):
        return result.winner.grade if result.winner is not None else GRADES[0]
    if isinstance(result, MemoryMechanisms):
        return result.supported[0].grade if result.supported else GRADES[0]
    return str(getattr(result, "grade", ""))


@singledispatch
def numbers_of(result: Result) -> dict[str, float]:
    """The numbers that a verdict rests on, by what was done; none if its headline says it all."""
    return {}


@numbers_of.register
def _(result: Mechanisms) -> dict[str, float]:
    claims = [claim for claim in (result.winner.claims if result.winner else ()) if claim.variable != AS_IT_IS]
    beyond = {
        f"{claim.variable} beyond": claim.outside[BEYOND].value
        for claim in claims
        if claim.outside and claim.beyond_surplus is not None
    }
    return {claim.variable: claim.accuracy.value for claim in claims} | beyond


@numbers_of.register
def _(result: Anchors) -> dict[str, float]:
    moves = {move.tokens: move.follows.value for move in result.moves}
    return {f"{tokens} moved": moves[tokens] for tokens in ("token 1", "first 5") if tokens in moves}


@numbers_of.register
def _(result: PeriodShift) -> dict[str, float]:
    own, others = result.best("own"), result.best("others")
    control = {} if own.control is None else {"control": own.control.value}
    return {"own": own.share.value} | control | {"others": others.share.value}


@numbers_of.register
def _(result: PositionFree) -> dict[str, float]:
    clean = {f"clean {split}": share.value for split, share in result.clean.items()}
    return clean | {f"without {split}": result.accuracy(result.blind, split).share.value for split in result.clean}


@numbers_of.register
def _(result: MaskAsFinder) -> dict[str, float]:
    return {outcome.done: outcome.share.value for outcome in result.outcomes}


@numbers_of.register
def _(result: StartDistance) -> dict[str, float]:
    swaps = {outcome.done: outcome.share.value for outcome in result.outcomes if not outcome.way}
    return {way: score.value for way, score in result.scores.items()} | swaps


@numbers_of.register
def _(result: BosAblation) -> dict[str, float]:
    kinds = {effect.kind for effect in result.effects}
    cuts = {kind: result.effect(kind).ind.value for kind in ("cut", "cut second") if kind in kinds}
    return {"clean ind": result.clean_ind} | cuts


@numbers_of.register
def _(result: Behaviour) -> dict[str, float]:
    return {split: result.total[split].value for split in MAIN_SPLITS}


@numbers_of.register
def _(result: ModPca) -> dict[str, float]:
    n_sites = len(result.sites)
    lasting = [site for site in result.sites if site.period == USUAL_MODULUS]
    fading = [site for site in result.sites if site.fading == USUAL_MODULUS]
    return {"sites with period 10": len(lasting) / n_sites, "sites where it may fade": len(fading) / n_sites}


def measure(folder: str, probes: list[str], known: set[tuple[str, str, str]]) -> None:
    """Asks every seed of a folder that is not in the table yet, and adds it to what is known."""
    cell = find_cell(folder)
    name = "/".join(Path(cell.name).parts[-2:])
    runs = {seed: RunFolder(path.parent) for seed, path in cell.files.items()}
    questions = [
        (seed, probe)
        for seed, run in runs.items()
        for probe in probes
        if run.finished and (name, str(seed), probe) not in known
    ]
    for seed, probe in tqdm(questions, desc=name, unit="question", dynamic_ncols=True):
        try:
            result = PROBES[probe].run(load_subject(runs[seed].last), 0)
        except NotApplicable:
            continue
        headline = result.headline
        scale = 0.01 if probe in POINTS else 1.0
        values = (f"{scale * value:.4f}" for value in (headline.value, headline.low, headline.high))
        numbers = "; ".join(f"{what} {scale * value:.4f}" for what, value in numbers_of(result).items())
        with TABLE.open("a", newline="") as file:
            line = (name, seed, probe, headline.label, grade_of(result), *values, numbers)
            csv.writer(file, lineterminator="\n").writerow(line)
        known.add((name, str(seed), probe))


def read_table() -> list[dict[str, Any]]:
    if not TABLE.is_file():
        TABLE.write_text(",".join(COLUMNS) + "\n")
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def table_text(rows: list[dict[str, Any]], mechanism: bool) -> str:
    """One line per cell and probe: how many seeds say what, and the means of their numbers with an interval."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if (row["probe"] in MECHANISM) == mechanism:
            cells[row["cell"], row["probe"]].append(row)
    heads = ("cell", "probe", "seeds", "verdicts", "number, mean over seeds", "what it rests on")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for (cell, probe), seeds in sorted(cells.items()):
        labels = Counter(_verdict(row) for row in seeds)
        verdicts = "; ".join(f"{label}: {number}" for label, number in labels.most_common())
        values = [float(row["value"]) for row in seeds]
        lines.append(f"| `{cell}` | {probe} | {len(seeds)} | {verdicts} | {_mean(values)} | {_numbers(seeds)} |")
    return "\n".join(lines)


def _verdict(row: dict[str, Any]) -> str:
    return row["label"] if row["grade"] in ("none", "") else f"{row['label']}, {row['grade']}"


def _mean(values: list[float]) -> str:
    """The mean of shares with Student's interval, in percent; empty if there is none."""
    mean = mean_interval(np.array(values))
    if np.isnan(mean.value):
        return ""
    lowest = 0.0 if min(values) >= 0 else -1.0  # changes of accuracy may be negative
    low, high = (100 * min(max(bound, lowest), 1.0) for bound in (mean.low, mean.high))
    interval = f" ({low:.0f} to {high:.0f})" if np.isfinite(low) else ""
    return f"{100 * mean.value:.0f} %{interval}"


def _numbers(seeds: list[dict[str, Any]]) -> str:
    """The means of the numbers behind the most frequent label, over the seeds that have it."""
    label = Counter(row["label"] for row in seeds).most_common(1)[0][0]
    by_name: dict[str, list[float]] = defaultdict(list)
    for row in seeds:
        for number in (row["numbers"] or "").split("; ") if row["label"] == label else ():
            if number:
                name, value = number.rsplit(" ", 1)
                by_name[name].append(float(value))
    return ", ".join(f"{name} {_mean(values)}" for name, values in by_name.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="the runs of one cell, a folder per seed")
    parser.add_argument("--probes", nargs="+", choices=list(PROBES), default=list(MECHANISM), help="what is asked")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = {(row["cell"], row["seed"], row["probe"]) for row in read_table()}
    for folder in options.folders:
        measure(folder, options.probes, known)
    for mechanism in (True, False):
        print(table_text(read_table(), mechanism), end="\n\n")


if __name__ == "__main__":
    main()
