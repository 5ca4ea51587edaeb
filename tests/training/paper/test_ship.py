"""From a sweep to a zoo."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import training.paper.ship
from app.cli import main
from models.checkpoint import load_counter
from models.errors import CountLensError
from models.find import named_counters
from training.config import ModelOptions, OptimiserOptions, TaskOptions, TrainConfig
from training.paper.score_table import read_scores
from training.paper.ship import plan_shipment, ship
from training.presets import resolve
from training.run.folder import RunFolder
from training.sweep.manifest import Manifest

APE = TrainConfig(
    model=ModelOptions(position="ape", n_layers=2, d_model=8, n_heads=2),
    optimiser=OptimiserOptions(steps=1500, batch_size=16, lr=2e-3, weight_decay=0.3, clip=10.0),
)
LSTM = TrainConfig(data=TaskOptions(task="selective"), model=ModelOptions(family="lstm", n_layers=1, d_model=8))
Scores = dict[int, tuple[float, float]]  # by seed


class Sweep:
    """A sweep whose scores a test chooses."""

    def __init__(self, folder: Path, make_run: Callable[..., RunFolder]) -> None:
        self.folder, self.make_run = folder, make_run
        self.manifest = folder / "runs/zoo.jsonl"
        self.out = folder / "zoo"
        self.lines: list[dict[str, Any]] = []

    def another(self, name: str) -> "Sweep":
        """A second sweep, with runs of its own, for the same zoo."""
        other = Sweep(self.folder / name, self.make_run)
        other.folder.mkdir()
        other.out = self.out
        return other

    def plan(self, cell: str, config: TrainConfig, seed: int) -> TrainConfig:
        config = replace(config, seed=seed)
        line = {"index": len(self.lines), "name": f"{cell}/seed{seed}", "config": resolve(config).to_dict()}
        self.lines.append(line)
        self.manifest.parent.mkdir(exist_ok=True)
        self.manifest.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return config

    def train(self, cell: str, config: TrainConfig, scores: Scores, finished: bool = True) -> None:
        for seed, (ind, ood) in scores.items():
            planned = self.plan(cell, config, seed)
            self.make_run(self.manifest.parent / cell / f"seed{seed}", planned, ind, ood, finished)

    def ship(self, max_mb: float = 60.0) -> None:
        ship(plan_shipment(self.manifest, self.out), max_mb)

    @property
    def shipped(self) -> list[str]:
        return [name for name, _ in named_counters((self.out,))]

    @property
    def card(self) -> str:
        return (self.out / "README.md").read_text()


@pytest.fixture
def sweep(tmp_path: Path, make_run: Callable[..., RunFolder]) -> Sweep:
    return Sweep(tmp_path, make_run)


def test_the_best_seed_of_each_cell_is_shipped_with_the_scores_of_all(sweep: Sweep) -> None:
    sweep.train("mod10/ape-2L", APE, {0: (100.0, 60.0), 1: (90.0, 98.0), 2: (100.0, 70.0)})
    sweep.train("selective/lstm-1L", LSTM, {0: (99.0, 70.0), 1: (98.0, 60.0)})
    sweep.ship()
    assert sweep.shipped == ["mod10/ape-2L/seed1", "selective/lstm-1L/seed0"]
    rows = read_scores(sweep.out / "scores.csv")
    assert [(row.name, row.ood) for row in rows] == [
        ("mod10/ape-2L/seed0", 60.0),
        ("mod10/ape-2L/seed1", 98.0),
        ("mod10/ape-2L/seed2", 70.0),
        ("selective/lstm-1L/seed0", 70.0),
        ("selective/lstm-1L/seed1", 60.0),
    ]
    folder = sweep.out / "mod10/ape-2L/seed1"
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "metrics.jsonl", "model.safetensors"]
    for path in folder.iterdir():
        assert path.read_bytes() == (sweep.manifest.parent / "mod10/ape-2L/seed1" / path.name).read_bytes()
    assert load_counter(folder).info.scores == {"ind": 90.0, "ood": 98.0}  # type: ignore[union-attr]


def test_of_equal_seeds_the_lower_is_shipped(sweep: Sweep) -> None:
    sweep.train("mod10/ape-2L", APE, {10: (100.0, 98.0), 9: (98.0, 100.0), 11: (100.0, 98.0)})
    sweep.ship()
    assert sweep.shipped == ["mod10/ape-2L/seed9"]


def test_a_seed_that_is_no_longer_the_best_goes(sweep: Sweep) -> None:
    sweep.train("mod10/ape-2L", APE, {0: (100.0, 60.0)})
    sweep.train("mod10/ape-2L-16d", replace(APE, model=replace(APE.model, d_model=16)), {0: (100.0, 60.0)})
    sweep.ship()
    sweep.train("mod10/ape-2L", APE, {1: (100.0, 99.0)})
    sweep.ship()
    assert sweep.shipped == ["mod10/ape-2L/seed1", "mod10/ape-2L-16d/seed0"]
    assert not (sweep.out / "mod10/ape-2L/seed0").exists()


def test_seeds_that_are_shipped_later_join_those_of_the_same_recipe(
    sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.train("mod10/ape-2L", APE, {0: (100.0, 60.0), 1: (100.0, 70.0)})
    sweep.ship()
    later = sweep.another("later")
    later.plan("mod10/ape-2L", APE, 0)  # has its scores already, and is not missed
    later.train("mod10/ape-2L", APE, {2: (100.0, 65.0)})
    size = plan_shipment(sweep.manifest, sweep.out).size
    assert plan_shipment(later.manifest, later.out).size == size
    main(["ship", str(later.manifest), "--out", str(later.out)])
    assert "left out" not in capsys.readouterr().out
    assert sweep.shipped == ["mod10/ape-2L/seed1"]  # still the best
    assert [row.seed for row in read_scores(sweep.out / "scores.csv")] == [0, 1, 2]
    later.train("mod10/ape-2L", APE, {3: (100.0, 80.0)})
    later.ship()
    assert sweep.shipped == ["mod10/ape-2L/seed3"]
    assert [row.seed for row in read_scores(sweep.out / "scores.csv")] == [0, 1, 2, 3]


def test_seeds_of_another_recipe_are_replaced_even_if_they_were_better(sweep: Sweep) -> None:
    sweep.train("mod10/ape-2L", APE, {0: (100.0, 60.0), 1: (100.0, 70.0)})
    sweep.ship()
    later = sweep.another("later")
    changed = replace(APE, optimiser=replace(APE.optimiser, lr=1e-3))
    later.train("mod10/ape-2L", changed, {0: (100.0, 50.0)})
    later.ship()
    assert sweep.shipped == ["mod10/ape-2L/seed0"]
    assert [(row.seed, row.ood) for row in read_scores(sweep.out / "scores.csv")] == [(0, 50.0)]


def test_snapshots_come_along_and_go(sweep: Sweep) -> None:
    sweep.train("mod10/ape-2L", APE, {0: (100.0, 60.0)})
    run = RunFolder(sweep.manifest.parent / "mod10/ape-2L/seed0")
    for step in (0, 3):
        run.snapshot(step).parent.mkdir(exist_ok=True)
        run.snapshot(step).write_bytes(run.best.read_bytes())
    sweep.ship()
    shipped = sweep.out / "mod10/ape-2L/seed0/snapshots"
    assert [path.name for path in sorted(shipped.iterdir())] == ["step-0000000.safetensors", "step-0000003.safetensors"]
    run.snapshot(0).unlink()
    sweep.ship()
    assert [path.name for path in shipped.iterdir()] == ["step-0000003.safetensors"]


def test_odd_files_among_the_snapshots_are_not_shipped(sweep: Sweep, tmp_path: Path) -> None:
    sweep.train("mod10/ape-2L", APE, {0: (100.0, 60.0)})
    run = RunFolder(sweep.manifest.parent / "mod10/ape-2L/seed0")
    run.snapshot(3).parent.mkdir()
    run.snapshot(3).write_bytes(run.best.read_bytes())
    (tmp_path / "secret.safetensors").write_bytes(b"of somebody else")
    run.snapshot(5).symlink_to(tmp_path / "secret.safetensors")
    run.snapshot(6).mkdir()
    run.snapshot(0).with_name("step-final.safetensors").touch()
    sweep.ship()
    shipped = sweep.out / "mod10/ape-2L/seed0/snapshots"
    assert [path.name for path in shipped.iterdir()] == ["step-0000003.safetensors"]


def test_what_is_not_finished_is_named_and_left_out(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    sweep.train("mod10/ape-2L", APE, {0: (100.0, 60.0)})
    sweep.train("mod10/ape-2L", APE, {1: (100.0, 99.0)}, finished=False)
    sweep.plan("mod10/ape-2L", APE, 2)
    sweep.train("mod10/ape-2L", APE, {3: (100.0, 99.0), 4: (100.0, 99.0)})
    sweep.lines[3]["config"]["optimiser"]["lr"] = 0.5
    sweep.plan("mod10/ape-2L", APE, 5)
    (sweep.manifest.parent / "mod10/ape-2L/seed4/model.safetensors").write_bytes(b"oops")
    assert set(plan_shipment(sweep.manifest, sweep.out).left_out) == {f"mod10/ape-2L/seed{n}" for n in range(1, 6)}
    main(["ship", str(sweep.manifest), "--out", str(sweep.out)])
    out = capsys.readouterr().out
    for line in (
        "left out: mod10/ape-2L/seed1: not finished",
        "left out: mod10/ape-2L/seed2: not begun",
        "left out: mod10/ape-2L/seed3: trained with another recipe than the manifest's",
        "seed4/model.safetensors is truncated",
        "shipped 1 counters, the best of 1 finished runs (5 left out)",
        "0.0 MB",
    ):
        assert line in out
    assert sweep.shipped == ["mod10/ape-2L/seed0"]
    assert [row.seed for row in read_scores(sweep.out / "scores.csv")] == [0]


def test_nothing_finished_is_refused_and_writes_nothing(sweep: Sweep) -> None:
    sweep.train("mod10/ape-2L", APE, {0: (100.0, 60.0)}, finished=False)
    with pytest.raises(CountLensError, match=r"no run of .* is finished"):
        sweep.ship()
    assert not sweep.out.exists()


def test_a_zoo_that_is_too_large_is_refused_and_writes_nothing(sweep: Sweep) -> None:
    sweep.train("mod10/ape-2L", APE, {0: (100.0, 60.0), 1: (100.0, 50.0)})
    size = plan_shipment(sweep.manifest, sweep.out).size
    run = sweep.manifest.parent / "mod10/ape-2L/seed0"
    assert size == sum((run / name).stat().st_size for name in ("model.safetensors", "config.json", "metrics.jsonl"))
    with pytest.raises(CountLensError, match="more than --max-mb"):
        sweep.ship(max_mb=(size - 1) / 1e6)
    assert not sweep.out.exists()
    sweep.ship(max_mb=size / 1e6)


def test_counters_of_another_sweep_stay_with_their_scores(sweep: Sweep) -> None:
    other = sweep.another("other")
    other.train("selective/lstm-1L", LSTM, {0: (99.0, 70.0), 1: (99.0, 71.0)})
    other.ship()
    alone = plan_shipment(other.manifest, sweep.out).size
    sweep.train("mod10/ape-2L", APE, {0: (100.0, 60.0)})
    own = plan_shipment(sweep.manifest, sweep.folder / "elsewhere").size
    assert plan_shipment(sweep.manifest, sweep.out).size == own + alone
    sweep.ship()
    assert sweep.shipped == ["mod10/ape-2L/seed0", "selective/lstm-1L/seed1"]
    assert len(read_scores(sweep.out / "scores.csv")) == 3
    assert "selective/lstm-1L/seed1" in sweep.card
    (sweep.out / "selective/lstm-1L/seed1/model.safetensors").unlink()
    sweep.ship()
    assert len(read_scores(sweep.out / "scores.csv")) == 1  # scores of what was thrown away go with it


def test_weights_may_stay_behind_and_scores_go_on_all_the_same(sweep: Sweep) -> None:
    sweep.train("mod10/ape-2L", APE, {0: (100.0, 60.0)})
    sweep.train("selective/lstm-1L", LSTM, {0: (99.0, 70.0), 1: (98.0, 60.0)})
    sweep.ship()
    assert sweep.shipped == ["mod10/ape-2L/seed0", "selective/lstm-1L/seed0"]
    without = plan_shipment(sweep.manifest, sweep.out, ["*/lstm-1L"])
    assert without.size < plan_shipment(sweep.manifest, sweep.out).size
    for _ in range(2):  # the second time, its scores are those of an earlier shipment
        ship(without, max_mb=1.0)
        assert sweep.shipped == ["mod10/ape-2L/seed0"]
        assert not (sweep.out / "selective/lstm-1L/seed0").exists()
        assert len(read_scores(sweep.out / "scores.csv")) == 3
        assert "there are scores and no weights, to keep this folder small: `selective/lstm-1L`." in sweep.card


def test_a_kill_while_shipping_leaves_the_old_counter_or_the_new(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep.train("mod10/ape-2L", APE, {0: (100.0, 60.0)})
    sweep.ship()
    sweep.train("mod10/ape-2L", APE, {1: (100.0, 99.0)})
    copy = training.paper.ship.shutil.copyfile
    for survived in range(4):
        copied: list[object] = []

        def dying(source: Path, target: Path, copied: list[object] = copied, survived: int = survived) -> None:
            if len(copied) == survived:
                raise KeyboardInterrupt
            copied.append(copy(source, target))

        monkeypatch.setattr(training.paper.ship.shutil, "copyfile", dying)
        if survived < 3:  # three files make a counter
            with pytest.raises(KeyboardInterrupt):
                sweep.ship()
            assert sweep.shipped == ["mod10/ape-2L/seed0"]
        else:
            sweep.ship()
    assert sweep.shipped == ["mod10/ape-2L/seed1"]
    assert not list(sweep.out.rglob("*.unfinished"))


def test_shipping_twice_changes_nothing(sweep: Sweep) -> None:
    sweep.train("mod10/ape-2L", APE, {0: (100.0, 60.0)})
    sweep.ship()
    before = {path: path.read_bytes() for path in sweep.out.rglob("*") if path.is_file()}
    sweep.ship()
    assert {path: path.read_bytes() for path in sweep.out.rglob("*") if path.is_file()} == before


def test_the_sweeps_own_folder_is_no_zoo(sweep: Sweep) -> None:
    sweep.train("mod10/ape-2L", APE, {0: (100.0, 60.0), 1: (100.0, 50.0)})
    with pytest.raises(CountLensError, match="name another --out"):
        plan_shipment(sweep.manifest, sweep.manifest.parent)


def test_the_card_says_what_each_counter_is(sweep: Sweep) -> None:
    sweep.train("mod10/ape-2L", APE, {0: (100.0, 60.0), 1: (100.0, 98.62)})
    bos = replace(LSTM, data=TaskOptions(task="selective", bos=True))
    sweep.train("selective-bos/lstm-1L", bos, {0: (99.0, 70.0)})
    sweep.ship()
    counter = load_counter(sweep.out / "mod10/ape-2L/seed1")
    parameters = sum(parameter.numel() for parameter in counter.parameters())
    size = (sweep.out / "mod10/ape-2L/seed1/model.safetensors").stat().st_size
    lines = [line for line in sweep.card.splitlines() if line.startswith("| [")]
    assert lines[0] == (
        f"| [mod10/ape-2L/seed1](mod10/ape-2L/seed1) | 2 x 8, 2h | {parameters:,} | {size / 1e3:,.0f} kB | 100 / 98.6 "
        "| 100 / 97.6 | 2: 60.0, 98.6 | 100 / 100 (99.5) | 12 s | 1,500 x 16, lr 0.002, wd 0.3, clip 10 |"
    )
    assert len(lines) == 2
    assert "| 1: 70.0 |  | 12 s |" in lines[1]  # the paper has no lstm with bos
    assert [line for line in sweep.card.splitlines() if line.startswith("## ")] == ["## mod10", "## selective + bos"]
    assert 'load_counter("mod10/ape-2L/seed1")' in sweep.card
    assert "in 1 of 1 cells IND, 1 of 1 OOD, 1 of 1 both" in sweep.card
    for command in ("sweep checkpoints/zoo.toml", "ship runs/zoo.jsonl", "train --like mod10/ape-2L/seed1"):
        assert f"countlens {command}" in sweep.card


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("oops\n", "line 1 is not a run of a sweep"),
        ('{"name": "a/seed0"}\n', "line 1 is not a run of a sweep"),
        ('{"name": "a/seed0", "config": {"colour": 1}}\n', "line 1 is not a run of a sweep"),
        ('{"name": "../a/seed0", "config": {}}\n', "must lie beside the manifest"),
        ('{"name": "/a/seed0", "config": {}}\n', "must lie beside the manifest"),
        ('{"name": "a/seed0", "config": {}}\n' * 2, "more than once"),
    ],
)
def test_a_file_that_is_no_manifest_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "zoo.jsonl").write_text(text)
    with pytest.raises(CountLensError, match=message):
        Manifest.read(tmp_path / "zoo.jsonl")


def test_a_manifest_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CountLensError, match="No such file"):
        Manifest.read(tmp_path / "nowhere.jsonl")
