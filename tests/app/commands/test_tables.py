"""The paper's tables beside ours, as a user sees them."""

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import score_rows
from rich.console import Console

from app.cli import main
from app.commands.tables_text import MARKS, show
from training.config import ModelOptions, TrainConfig
from training.paper.comparison import compare
from training.paper.score_table import write_scores
from training.paper.tables import PAPER_TABLES

APE = replace(score_rows.APE, ood=60.04, last_ood=55.0)
NOPE = replace(APE, name="mod10/nope-2L/seed0", architecture="nope", ind=10.0, ood=11.7)
SPE = replace(APE, name="mod10/spe-2L/seed0", architecture="spe", ind=100.0, ood=8.2)


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    write_scores(tmp_path / "scores.csv", [APE, NOPE, SPE])
    return tmp_path / "scores.csv"


def printed(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    main(["tables", *(str(arg) for arg in args)])
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    with pytest.raises(SystemExit) as exit_:
        main(["tables", *(str(arg) for arg in args)])
    assert exit_.value.code == 2
    return capsys.readouterr().err


def test_a_cell_shows_ours_above_the_papers_with_a_mark_for_each_side(
    scores: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(capsys, "--scores", scores, "--table", "counting_results").splitlines()
    (at,) = [number for number, line in enumerate(out) if re.match(r"mod10 +2 +ours", line)]
    assert " ".join(out[at].split()) == "mod10 2 ours ·10.0 ·11.7 - - ✓ 100 ≠60.0 - - ✓ 100 · 8.2"
    assert " ".join(out[at + 1].split()) == "paper 12.0 11.8 100 100 100 100 11.8 11.8 100 8.2"
    text = "\n".join(out)
    assert "preset small, best of 1 seed, 3 of 90 cells trained" in text
    assert "IND 3 of 3 (100%), OOD 2 of 3 (67%), whole cells 2 of 3 (67%)" in text
    assert re.search(r"No reason known yet\n≠ mod10, ape, 2 layers +OOD 60.0, paper +100 +one seed$", text)


def test_a_known_reason_is_printed_above_its_cells(scores: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (scores.parent / "differences.toml").write_text("[[difference]]\ntask = 'mod10'\nreason = 'too short'\n")
    out = printed(capsys, "--scores", scores, "--table", "counting_results")
    assert "Too short\n≠ mod10, ape, 2 layers" in out
    assert "No reason known yet" not in out


def test_a_cell_that_differs_shows_every_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So a reason need not repeat them, and cannot lag behind when a seed is added."""
    seeds = [
        replace(APE, name=f"mod10/ape-2L/seed{seed}", seed=seed, ood=ood) for seed, ood in enumerate((40.0, 94.0, 7.0))
    ]
    write_scores(tmp_path / "scores.csv", seeds)
    out = printed(capsys, "--scores", tmp_path / "scores.csv", "--table", "counting_results")
    assert re.search(r"≠ mod10, ape, 2 layers +OOD 94.0, paper +100 +seeds 94 40 7\n", out)
    text = printed(capsys, "--scores", tmp_path / "scores.csv", "--table", "counting_results", "--csv", "-")
    (line,) = [line for line in csv.DictReader(io.StringIO(text)) if line["ours"] == "94.0"]
    assert (line["seeds"], line["by_seed"]) == ("3", "94.0 40.0 7.0")


def test_the_shipped_scores_are_the_default_and_all_tables_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys)
    for name, table in PAPER_TABLES.items():
        assert name in out
        assert table.title in out
    assert "Agreement over these tables" in out


def test_a_pipe_gets_plain_lines_of_at_most_100_columns(scores: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "--scores", scores)
    assert "\x1b" not in out
    assert "…" not in out  # nothing was cut off
    assert max(len(line) for line in out.splitlines()) <= 100


def test_a_terminal_gets_a_colour_for_each_kind_of_agreement() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=100, highlight=False)
    show(compare([APE, NOPE, SPE], tables=["counting_results"]), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    blue, orange = "38;2;43;140;222", "38;2;213;94;0"
    assert re.search(rf"\x1b\[{blue}m✓ 100", text)
    assert re.search(rf"\x1b\[1;{orange}m≠60.0", text)
    assert re.search(r"\x1b\[38;5;244m·10.0", text)


def test_an_ascii_terminal_gets_ascii() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    show(compare([APE, NOPE, SPE]), Console(file=file, width=100, highlight=False))
    file.flush()
    assert b"#60.0" in raw.getvalue()
    assert not any(mark.encode() in raw.getvalue() for mark in MARKS.values() if mark.strip())


def test_csv_goes_to_a_file_or_to_the_pipe(scores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--scores", scores, "--table", "counting_results", "--csv", "-")
    lines = list(csv.DictReader(io.StringIO(text)))
    assert len(lines) == 2 * 90
    (ape,) = [line for line in lines if line["ours"] == "60.04"]
    assert (ape["side"], ape["paper"], ape["agreement"], ape["seeds"], ape["heads"]) == (
        *("ood", "100.0", "differ", "1", "4"),
    )
    printed(capsys, "--scores", scores, "--table", "counting_results", "--csv", tmp_path / "cells.csv")
    assert (tmp_path / "cells.csv").read_text() == text


def test_json_has_the_shares_and_every_cell(scores: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(printed(capsys, "--scores", scores, "--json"))
    assert content["success"] == 95
    assert content["agreement"]["best"] == {
        "ind": {"agree": 3, "trained": 3},
        "ood": {"agree": 2, "trained": 3},
        "cells": {"agree": 2, "trained": 3},
    }
    assert sum(cell["ours"] is not None for cell in content["cells"]) == 2 * (3 + 3 + 1)
    assert "give one of them" in refused(capsys, "--scores", scores, "--json", "--csv", "-")


def test_runs_are_read_from_their_folders_and_win_over_a_table(
    scores: Path, tmp_path: Path, make_run: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    config = TrainConfig(model=ModelOptions(position="ape", d_model=8, n_heads=2))
    make_run(runs / "mod10/ape-2L/seed0", config, 100.0, 97.0)
    make_run(runs / "mod10/ape-2L/seed1", replace(config, seed=1), 100.0, 99.0, finished=False)
    alone = json.loads(printed(capsys, "--runs", runs, "--json"))
    assert {cell["run"] for cell in alone["cells"]} == {None, "mod10/ape-2L/seed0"}
    assert {cell["ours"] for cell in alone["cells"] if cell["side"] == "ood"} == {None, 97.0}
    both = json.loads(printed(capsys, "--runs", runs, "--scores", scores, "--json"))
    assert {cell["ours"] for cell in both["cells"] if cell["side"] == "ood"} == {None, 97.0, 11.7, 8.2}


def test_bad_input_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean bos" in refused(capsys, "--table", "boss")
    assert "is no folder" in refused(capsys, "--runs", tmp_path / "nowhere")
    assert "no finished run" in refused(capsys, "--runs", tmp_path)
    assert "No such file" in refused(capsys, "--scores", tmp_path / "nowhere.csv")
