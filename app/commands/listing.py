"""`countlens list`: reads only the headers of checkpoints, so that listing many is quick."""

import json
from pathlib import Path
from typing import Any

from app.escape import printable, say
from models.errors import CountLensError
from models.find import RUNS, SHIPPED, named_counters, shipped_hint
from models.header import read_info


def print_counters(folders: tuple[Path, ...], as_json: bool) -> None:
    """Prints every counter below the folders; one that cannot be read has the reason beside its name."""
    missing = [folder for folder in folders if not folder.is_dir()]
    if missing:
        raise CountLensError(f"{missing[0]} is no folder")
    counters = [describe_counter(name, path) for name, path in named_counters(folders or (SHIPPED, RUNS))]
    if as_json:
        print(json.dumps(counters, indent=2))
        return
    if counters:
        _print_table(counters)
    else:
        print("no counters yet: train one with `countlens train`")
    if not folders and not SHIPPED.is_dir():
        say(f"{shipped_hint()}: give their folder, as `countlens list FOLDER` or `countlens explore --folder FOLDER`")


def describe_counter(name: str, path: Path) -> dict[str, Any]:
    """The fields of a checkpoint's header as JSON values; of a broken file, the error."""
    try:
        info = read_info(path)
    except CountLensError as error:
        return {"name": name, "path": str(path), "error": str(error)}
    task = info.task or {}
    return {
        "name": name,
        "path": str(path),
        "task": task.get("name"),
        "bos": task.get("bos", False),
        "scheme": info.architecture,
        "family": info.family,
        "layers": info.model.get("n_layers"),
        "width": info.model.get("d_model"),
        "seed": info.seed,
        "step": info.step,
        "ind": info.scores.get("ind"),
        "ood": info.scores.get("ood"),
        "scores": info.scores,
        "last_scores": info.last_scores,
    }


def _print_table(counters: list[dict[str, Any]]) -> None:
    width = max(len(printable(counter["name"])) for counter in counters)
    titles = f"{'layers':>6}  {'width':>5}  {'step':>7}  {'IND %':>6}  {'OOD %':>6}  {'last IND / OOD':>14}"
    print(f"{'name':{width}}  {titles}")
    for counter in counters:
        name = printable(counter["name"])
        if "error" in counter:
            say(f"{name:{width}}  broken: {counter['error']}")
            continue
        ind, ood = (_percent(counter["scores"], split) for split in ("ind", "ood"))
        last = " / ".join(_percent(counter["last_scores"], split) for split in ("ind", "ood"))
        print(
            f"{name:{width}}  {counter['layers']!s:>6}  {counter['width']!s:>5}  "
            f"{counter['step']!s:>7}  {ind:>6}  {ood:>6}  {last:>14}"
        )


def _percent(scores: dict[str, float], split: str) -> str:
    return f"{scores[split]:.1f}" if split in scores else "?"
