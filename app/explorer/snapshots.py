"""A counter over its training: the files that its run kept, and the counters in them."""

from pathlib import Path, PurePosixPath

from app.explorer.cache import SharedCounter, open_file
from app.explorer.catalogue import read_snapshots
from models.find import SNAPSHOTS
from probes.over_training.dynamics import LEAST_SNAPSHOTS
from probes.result import NotApplicable


def snapshot_files(subject: SharedCounter) -> dict[int, Path]:
    """The sound snapshots of the counter's run by step, none of them outside of its folder."""
    by_step, _ = read_snapshots(subject.path.parents[_depth(subject)])
    if len(by_step) < LEAST_SNAPSHOTS:
        raise NotApplicable(
            f"{subject.name} kept fewer than {LEAST_SNAPSHOTS} snapshots, too few for a look over training: train one "
            "with `--snapshots 12`, or look at mod10/ape-2L and mod10/spe-2L"
        )
    return by_step


def open_snapshots(subject: SharedCounter) -> dict[int, SharedCounter]:
    """The counter at each step that its training kept."""
    run = PurePosixPath(subject.reference)
    run = run.parents[1] if _depth(subject) else run
    return {
        step: open_file(subject, path, f"{run}/{SNAPSHOTS}/{path.name}")
        for step, path in snapshot_files(subject).items()
    }


def _depth(subject: SharedCounter) -> int:
    """How many folders lie between the counter's file and its run: 1 for a snapshot, else 0."""
    return int(subject.path.parent.name == SNAPSHOTS)
