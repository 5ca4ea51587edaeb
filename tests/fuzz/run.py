"""`make fuzz`: sends hostile input to every border and prints the outcomes. Exit code 1 if anything is wrong.

python -m tests.fuzz.run --scale 0.01                      a hundredth of the cases
python -m tests.fuzz.run --only checkpoints grids          some of the borders
python -m tests.fuzz.run --only checkpoints --case 4711    one case, with what it says
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from tests.fuzz.harness import MB, MOST_BYTES, MOST_SECONDS, Border, Job, Outcome, Tally, do_cases, load_registry

REGISTRY = "tests.fuzz.borders:BORDERS"
HEADINGS = (
    "border",
    "cases",
    "accepted",
    "refused",
    "foreign",
    f"hangs > {MOST_SECONDS:g} s",
    "largest MB",
    "different",
)


def plan(borders: dict[str, Border], only: Sequence[str], scale: float, case: int | None) -> list[Job]:
    """The jobs of a run: all cases of the borders, or some of them."""
    names = only or list(borders)
    counts = {name: max(1, round(borders[name].cases * scale)) for name in names}
    return [Job(name, number) for name in names for number in (range(counts[name]) if case is None else [case])]


def table(tallies: dict[str, Tally]) -> list[str]:
    """The lines of the table that is printed at the end."""
    lines: list[tuple[str, ...]] = [HEADINGS]
    for name, tally in tallies.items():
        counts = [tally.verdicts[key] for key in ("accepted", "refused", "foreign", "hang")]
        numbers = [tally.verdicts.total(), *counts, round(tally.largest / MB), tally.verdicts["different"]]
        lines.append((name, *(f"{number:,}" for number in numbers)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines]


def replay_command(job: Job, seed: int) -> str:
    return f"python -m tests.fuzz.run --seed {seed} --only {job.border} --case {job.case}"


def group(wrong: list[Outcome]) -> list[list[Outcome]]:
    """The wrong outcomes in groups of the same cause, judged by their last lines."""
    alike: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in wrong:
        cause = re.sub(r"/\S+|[0-9]+", "", (outcome.text.strip() or "?").splitlines()[-1])[:100]
        alike.setdefault((outcome.job.border, outcome.verdict, cause), []).append(outcome)
    return list(alike.values())


def describe(outcome: Outcome, seed: int) -> str:
    """A text about a failing case: what went wrong, where its files are, and how to repeat it."""
    excess = f", {outcome.extra / MB:.0f} MB of memory" if outcome.extra > MOST_BYTES else ""
    return (
        f"\n{outcome.job.border}, case {outcome.job.case}: {outcome.verdict}{excess}\n{outcome.text.strip()}\n"
        f"  its files: {outcome.folder}\n  again: {replay_command(outcome.job, seed)}"
    )


def fuzz(
    jobs: list[Job], seed: int, workers: int, folder: Path, registry: str = REGISTRY
) -> tuple[dict[str, Tally], list[Outcome]]:
    """Runs the cases with a progress bar. Returns the tally of each border, and the wrong outcomes."""
    tallies = {job.border: Tally() for job in jobs}
    wrong: list[Outcome] = []
    with tqdm(total=len(jobs), unit="case", dynamic_ncols=True) as bar:
        for outcome in do_cases(jobs, folder, seed, workers, registry):
            tallies[outcome.job.border].add(outcome)
            if outcome.is_wrong:
                wrong.append(outcome)
                bar.write(f"{outcome.verdict}: {replay_command(outcome.job, seed)}")
            if len(jobs) == 1 and not outcome.is_wrong:
                bar.write(f"{outcome.verdict}: {outcome.text}")
            bar.set_postfix_str(f"{outcome.job.border}, {len(wrong)} wrong", refresh=False)
            bar.update()
    return tallies, wrong


def main(arguments: Sequence[str] | None = None, registry: str = REGISTRY) -> int:
    borders = load_registry(registry)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], choices=list(borders), help="borders to try (all)")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full number of cases (1)")
    parser.add_argument("--case", type=int, help="run only this case of each border")
    parser.add_argument("--seed", type=int, default=0, help="seed of all randomness (0)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one per core)")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="countlens-fuzz-"))
    jobs = plan(borders, options.only, options.scale, options.case)
    tallies, wrong = fuzz(jobs, options.seed, options.workers, folder, registry)
    for alike in group(wrong):
        print(describe(alike[0], options.seed))
        if len(alike) > 1:
            print(f"  and like it: case {', '.join(str(outcome.job.case) for outcome in alike[1:])}")
    print("\n".join(table(tallies)))
    if wrong:
        print(f"{len(wrong)} cases are wrong; their files are kept in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
