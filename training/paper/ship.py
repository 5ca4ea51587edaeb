"""From a sweep to a zoo: a folder for the best seed of each cell, a table with the scores of all seeds, and a card.

A manifest is a JSONL file with one line per run, `{"index": 0, "name": "mod10/ape-2L/seed0", "config": {...}}`; the
run's folder has that name and lies beside the manifest. A zoo works even after a kill: a counter is copied whole before
the one that it replaces is removed, and the scores and the card are written last.

A cell may be shipped in several parts: seeds that were shipped before count on, as long as they have the same recipe.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from models.atomic import atomic_path, remove_unfinished, write_text
from models.errors import CountLensError
from models.find import CHECKPOINT, find_snapshots, named_counters
from training.paper.card import card
from training.paper.score_table import SCORES, ScoreRow, cell_of, merge_scores, read_scores, score_of_run, write_scores
from training.run.folder import RunFolder
from training.sweep.grid import SweepRun
from training.sweep.manifest import Manifest

CARD = "README.md"
FILES = ("config.json", "metrics.jsonl", CHECKPOINT)  # the checkpoint last: with it a folder becomes a counter
MB = 1e6


@dataclass(frozen=True)
class Shipment:
    """A plan: which runs of a manifest to ship, and which are left out."""

    manifest: Path
    out: Path
    rows: tuple[ScoreRow, ...]  # of every finished run
    earlier: tuple[ScoreRow, ...]  # those of the zoo that stay: of other cells, and of these with the same recipe
    best: tuple[ScoreRow, ...]  # of each cell whose weights are shipped now; others keep those that they have
    scores_only: tuple[str, ...]  # patterns of cells whose scores are shipped without weights
    left_out: dict[str, str]  # why, by the run's name
    size: int  # bytes of the zoo, once shipped

    def folder(self, name: str) -> Path:
        """The folder of a run."""
        return self.manifest.parent / name

    def has_weights(self, cell: str) -> bool:
        """Whether the weights of a cell are shipped, too."""
        return not any(fnmatchcase(cell, pattern) for pattern in self.scores_only)


def plan_shipment(manifest: Path, out: Path, scores_only: Sequence[str] = ()) -> Shipment:
    """Plans what `ship` will do; nothing is written. Of cells that match a pattern in `scores_only` no weights go."""
    if out.resolve() == manifest.parent.resolve():
        raise CountLensError(
            f"{out} holds the sweep's own runs, and shipping keeps one seed of each: name another --out"
        )
    in_zoo = read_scores(out / SCORES) if (out / SCORES).is_file() else []
    scored = {(row.name, row.recipe) for row in in_zoo}
    rows, left_out = [], {}
    for planned in Manifest.read(manifest).runs:
        try:
            rows.append(_score(planned, manifest.parent / planned.name))
        except CountLensError as error:
            if (planned.name, planned.config.recipe) not in scored:
                left_out[planned.name] = str(error)
    recipes = {row.cell: row.recipe for row in rows}
    earlier = [row for row in in_zoo if recipes.get(row.cell, row.recipe) == row.recipe]
    plan = Shipment(manifest, out, tuple(merge_scores(rows)), tuple(earlier), (), tuple(scores_only), left_out, 0)
    counters = {name: path.parent for name, path in named_counters((out,)) if plan.has_weights(cell_of(name))}
    candidates = merge_scores([row for row in earlier if row.name in counters], rows)
    best: dict[str, ScoreRow] = {}
    for row in candidates:
        if plan.has_weights(row.cell) and (row.cell not in best or row.rank > best[row.cell].rank):
            best[row.cell] = row
    shipped = [row for row in best.values() if row in rows]
    folders = [plan.folder(row.name) for row in shipped]
    folders += [folder for name, folder in counters.items() if cell_of(name) not in {row.cell for row in shipped}]
    size = sum(file.stat().st_size for folder in folders for file in _files(folder))
    return replace(plan, best=tuple(shipped), size=size)


def ship(shipment: Shipment, max_mb: float) -> None:
    """Copies the best seeds, removes those that they replace, and writes the scores and the card of the whole zoo."""
    if not shipment.rows:
        raise CountLensError(f"no run of {shipment.manifest} is finished: go on with the sweep, then ship")
    if shipment.size > max_mb * MB:
        raise CountLensError(
            f"the zoo would take {shipment.size / MB:.1f} MB, more than --max-mb {max_mb:g}: "
            "ship narrower counters or fewer snapshots, or allow more"
        )
    out = shipment.out
    if out.is_dir():
        remove_unfinished(out)
    for row in shipment.best:
        _copy(shipment.folder(row.name), out / row.name)
        _remove_other_seeds(out, row)
    for name, path in named_counters((out,)):
        if not shipment.has_weights(cell_of(name)):
            _remove(path.parent)
    cells = {cell_of(name) for name, _ in named_counters((out,))}
    kept = [row for row in shipment.earlier if row.cell in cells or not shipment.has_weights(row.cell)]
    rows = merge_scores(kept, shipment.rows)
    write_scores(out / SCORES, rows)
    write_text(out / CARD, card(out, rows))


def _score(planned: SweepRun, folder: Path) -> ScoreRow:
    """The scores of a planned run. Refuses a run that is not finished or was trained with another recipe."""
    if not (folder / "config.json").is_file():
        raise CountLensError("not begun")
    run = RunFolder.open(folder)
    if not run.finished:
        raise CountLensError("not finished")
    config = run.config()
    if (config.recipe, config.seed) != (planned.config.recipe, planned.config.seed):
        raise CountLensError("trained with another recipe than the manifest's")
    return score_of_run(run, planned.name)


def _files(folder: Path) -> list[Path]:
    """The files of a run that are shipped: snapshots first, the checkpoint last. Links out of it are skipped."""
    snapshots = find_snapshots(folder, follow_links=False).by_step.values()
    return [*snapshots, *(folder / name for name in FILES if (folder / name).is_file())]


def _copy(run: Path, target: Path) -> None:
    files = [file.relative_to(run) for file in _files(run)]
    for file in files:
        with atomic_path(target / file) as unfinished:
            shutil.copyfile(run / file, unfinished)
    for file in _files(target):
        if file.relative_to(target) not in files:  # left from what was shipped here before
            file.unlink()


def _remove_other_seeds(out: Path, row: ScoreRow) -> None:
    for folder in sorted((out / row.cell).glob("seed*")):
        name = folder.relative_to(out).as_posix()
        if folder.is_dir() and cell_of(name) == row.cell != row.name != name:
            _remove(folder)


def _remove(folder: Path) -> None:
    (folder / CHECKPOINT).unlink(missing_ok=True)  # first, so that a half-removed folder is not a counter
    shutil.rmtree(folder)
