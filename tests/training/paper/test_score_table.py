"""Scores of many runs as one file."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
from score_rows import APE as ROW

from models.errors import CountLensError
from models.find import SHIPPED
from training.config import ModelOptions, OptimiserOptions, TaskOptions, TrainConfig
from training.paper.score_table import ScoreRow, cell_of, merge_scores, read_scores, score_of_run, write_scores
from training.paper.tables import Experiment
from training.presets import resolve
from training.run.folder import RunFolder

LSTM = replace(ROW, name="mod10-bos/lstm-1L/seed0", bos=True, architecture="lstm", heads=None)


def seeds(*numbers: int) -> list[ScoreRow]:
    return [replace(ROW, name=f"mod10/ape-2L/seed{seed}", seed=seed) for seed in numbers]


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    write_scores(tmp_path / "scores.csv", [ROW, LSTM])
    assert read_scores(tmp_path / "scores.csv") == [ROW, LSTM]


def test_the_file_is_the_same_whatever_the_order_of_the_runs(tmp_path: Path) -> None:
    rows = [*seeds(10, 9, 0, 2), LSTM]
    write_scores(tmp_path / "one.csv", rows)
    write_scores(tmp_path / "two.csv", rows[::-1])
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
    assert [row.seed for row in read_scores(tmp_path / "one.csv") if not row.bos] == [0, 2, 9, 10]


def test_scores_keep_four_digits(tmp_path: Path) -> None:
    write_scores(tmp_path / "scores.csv", [replace(ROW, ood=100 / 3)])
    assert read_scores(tmp_path / "scores.csv")[0].ood == 33.3333
    assert ",33.3333," in (tmp_path / "scores.csv").read_text()


def test_of_two_runs_with_one_name_the_later_is_taken() -> None:
    assert merge_scores([ROW, LSTM], [replace(ROW, ood=5.0)]) == [replace(ROW, ood=5.0), LSTM]


def test_a_cell_is_a_name_without_its_seed() -> None:
    assert ROW.cell == "mod10/ape-2L"
    assert cell_of("seed0") == "seed0"
    assert cell_of("mod10/seedling") == "mod10/seedling"
    assert cell_of("mod10/ape-2L/seed12") == "mod10/ape-2L"


def test_better_is_a_larger_mean_and_then_a_lower_seed() -> None:
    worse, better = replace(ROW, ind=100.0, ood=90.0), replace(ROW, ind=96.0, ood=95.0)
    assert better.rank > worse.rank
    first, second = seeds(0, 1)
    assert first.rank > second.rank


def test_a_finished_run_becomes_a_line(tmp_path: Path, make_run: Callable[..., RunFolder]) -> None:
    config = TrainConfig(
        seed=3,
        data=TaskOptions(task="selective", bos=True),
        model=ModelOptions(position="nope", n_layers=1, d_model=8, n_heads=2, causal=False),
        optimiser=OptimiserOptions(steps=1234),
    )
    row = score_of_run(make_run(tmp_path / "run", config, 99.123456, 70.0), "a/name")
    assert row == ScoreRow(
        name="a/name",
        task="selective",
        bos=True,
        architecture="nope",
        layers=1,
        width=8,
        heads=2,
        causal=False,
        train_length=50,
        ood_length=100,
        policy="shifted",
        preset="small",
        seed=3,
        ind=99.1235,
        ood=70.0,
        last_ind=99.1235,
        last_ood=69.0,
        best_step=3,
        steps=1234,
        seconds=12.3,
        recipe=resolve(config).recipe,
    )
    assert row.experiment == Experiment("selective", True, "nope", 1, False, 50, 100)


def test_a_recurrent_run_has_no_heads(tmp_path: Path, make_run: Callable[..., RunFolder]) -> None:
    run = make_run(tmp_path / "run", TrainConfig(model=ModelOptions(family="lstm", d_model=8)), 100.0, 100.0)
    row = score_of_run(run, "mod10/lstm-1L-8d/seed0")
    assert (row.architecture, row.heads, row.causal) == ("lstm", None, True)


def test_a_run_that_is_not_finished_has_no_line(tmp_path: Path, make_run: Callable[..., RunFolder]) -> None:
    run = make_run(tmp_path / "run", TrainConfig(), 100.0, 100.0, finished=False)
    with pytest.raises(CountLensError, match=r"not finished.*--resume"):
        score_of_run(run, "run")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bos,", "", r"lacks the column bos: "),
        ("bos,architecture,", "", r"lacks the columns bos, architecture: "),
        ("98.3764", "many", r"line 2: ood = 'many': must be float"),
        ("98.3764", "nan", r"line 2: ood = nan: must be finite"),
        ("mod10,0,", "mod10,no,", r"line 2: bos = 'no': must be bool"),
        (",mod10,", ",,", r"line 2: task = None: must be str"),
        (",35.2,", ",,", r"line 2: seconds = None: must be float"),
        (",0123456789ab", "", r"line 2: recipe = None: must be str"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_the_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "scores.csv"
    write_scores(path, [ROW])
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(CountLensError, match=message):
        read_scores(path)


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CountLensError, match="No such file"):
        read_scores(tmp_path / "nowhere.csv")
    (tmp_path / "weights").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CountLensError, match="cannot read"):
        read_scores(tmp_path / "weights")


def test_the_shipped_table_is_whole_and_in_order(tmp_path: Path) -> None:
    rows = read_scores(SHIPPED / "scores.csv")
    assert rows
    write_scores(tmp_path / "again.csv", rows)
    assert (tmp_path / "again.csv").read_bytes() == (SHIPPED / "scores.csv").read_bytes()
    for row in rows:
        assert all(isinstance(getattr(row, field.name), str) for field in fields(row) if field.type is str)
        assert row.name == f"{row.cell}/seed{row.seed}"
        assert row.name.startswith(f"{row.task}{'-bos' * row.bos}/{row.architecture}-{row.layers}L")
