"""`countlens probe` and `countlens report` on all seeds of a cell."""

import json
from pathlib import Path

import pandas as pd
import pytest

from app.cli import main
from probes.registry import PROBES
from training.config import ModelOptions, OptimiserOptions, RecordOptions, TaskOptions, TrainConfig
from training.presets import resolve, run_name
from training.run.folder import RunFolder
from training.run.loop import train

CELL = "mod10/ape-1L-16d-20to40-12steps-batch4"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a cell that were trained for a moment."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 3):
        config = TrainConfig(
            seed=seed,
            data=TaskOptions(task="mod10", train_length=20, ood_length=40),
            model=ModelOptions(n_layers=1, d_model=16, n_heads=2, position="ape"),
            optimiser=OptimiserOptions(steps=12, batch_size=4),
            record=RecordOptions(eval_every=6, eval_rows=8),
        )
        resolved = resolve(config)
        assert run_name(resolved) == f"{CELL}/seed{seed}"
        train(RunFolder.create(folder / run_name(resolved), resolved), progress=False)
    return folder


def test_a_probe_is_asked_of_all_seeds(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["probe", "behaviour", CELL, "--seeds", "all", "--runs", str(runs), "--quiet"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["seed 0", "seed 3"]
    assert f"2 seeds of {CELL}: does not fit 2" in lines[2]
    assert "Not there" not in lines[2]


def test_named_seeds_that_are_missing_come_with_the_command(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["probe", "behaviour", str(runs / CELL), "--seeds", "3", "5", "--quiet", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [one["seed"] for one in found["seeds"]] == [3]
    assert found["missing"] == [5]
    assert found["command"].endswith("--steps 12 --batch-size 4 --seed 5")
    main(["probe", "attention", str(runs / CELL), "--seeds", "0", "3", "--quiet", "--csv"])
    assert capsys.readouterr().out.splitlines()[0].startswith("seed,found,label,value,low,high")


def test_a_report_over_seeds_has_a_section_per_probe(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report"
    main(["report", CELL, "--seeds", "all", "--runs", str(runs), "--out", str(out), "--quiet"])
    said = capsys.readouterr().out
    assert f"{CELL}: 2 seeds of {CELL}: does not fit 2" in said
    report = json.loads((out / "report.json").read_text())
    assert [counter["seed"] for counter in report["checkpoints"]] == [0, 3]
    assert list(report["probes"]) == list(PROBES)
    assert pd.read_csv(out / "behaviour.csv").seed.tolist() == [0, 3]
    assert (out / "report.html").read_text().count("Seed by seed") >= 2


def test_words_that_are_no_seeds_are_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["some"], ["-1"], ["all", "1"], ["1.5"]):
        with pytest.raises(SystemExit):
            main(["probe", "behaviour", CELL, "--runs", str(runs), "--seeds", *words])
        assert "--seeds" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["report", "--seeds", "all"])
    assert "Name at least one" in capsys.readouterr().err
