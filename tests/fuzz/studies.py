"""Damaged folders of studies: what is left is judged, drawn and written again, or it is refused."""

import json
import random
import shutil
from pathlib import Path
from typing import Literal
from unittest.mock import patch

from app.report.study import write_study
from models.errors import CountLensError
from probes.studies.conduct import StudyFolder, conduct
from probes.studies.registry import STUDIES
from probes.studies.result import RESULT, list_results
from tests.fuzz.harness import Case, DifferentError
from tests.fuzz.mutate import damage_bytes, mutate_tree, put_odd_file, to_json
from tests.helpers.toy_study import toy_study
from training.sweep.engine import train_run

FILES = (RESULT, "measured.jsonl", "runs.jsonl")
TOY = {"toy": toy_study()}


def prepare(folder: Path) -> None:
    with patch.dict(STUDIES, TOY):
        study = StudyFolder.below(folder, "toy", quick=True)
        for run in study.manifest.runs:
            train_run(study.manifest.folder(run).path, run.config)
        for _ in conduct(study):
            raise DifferentError("a run was left to train")
        write_study(study.result(), study.path)


def open_border(folder: Path) -> Case:
    def case(chance: random.Random, place: Path) -> Literal["accepted", "refused"]:
        shutil.copytree(folder / "toy-quick", place / "toy-quick")
        damage_file(place / "toy-quick" / chance.choice(FILES), chance)
        # The results as the explorer shows them; then the study as the command goes on with it.
        (found,) = list_results(place) or [None]
        if found is not None and found.result is not None:
            write_study(found.result, place / "copy")
        with patch.dict(STUDIES, TOY), patch("probes.studies.conduct.sweep", lambda *args: iter(())):
            study = StudyFolder.below(place, "toy", quick=True)
            for _ in conduct(study):
                pass
            result = study.result()
        if len(result.rows) != result.n_runs or result.missing:
            raise DifferentError(f"runs are missing: {result.missing}")
        if found is not None and found.result is None:
            raise CountLensError(str(found.error))
        return "accepted"

    return case


def damage_file(path: Path, chance: random.Random) -> None:
    """Changes values of the file's JSON or its bytes, or puts something else in its place."""
    kind = chance.random()
    if kind < 0.05:
        put_odd_file(path, chance)
    elif kind < 0.25:
        path.write_bytes(damage_bytes(path.read_bytes(), chance))
    elif path.name == RESULT:
        path.write_bytes(to_json(mutate_tree(json.loads(path.read_text()), chance), chance))
    else:
        lines = path.read_text().splitlines()
        number = chance.randrange(len(lines))
        changed = to_json(mutate_tree(json.loads(lines[number]), chance), chance).decode(errors="surrogateescape")
        path.write_text("\n".join([*lines[:number], changed, *lines[number + 1 :], ""]), errors="surrogateescape")
