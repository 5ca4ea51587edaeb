"""Grids: what a small file stands for, and that nothing starts when a cell of it is bad."""

from dataclasses import replace
from pathlib import Path

import pytest

from models.errors import CountLensError
from models.find import SHIPPED, named_counters
from models.header import read_info
from training.config import RunConfig, TrainConfig, architecture_name
from training.paper.score_table import read_scores
from training.paper.tables import PAPER_POLICY, Experiment, paper_cells
from training.presets import resolve, run_name
from training.sweep.grid import expand, read_grid


def grid(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return path


def test_a_list_is_an_axis_and_seeds_lie_side_by_side(tmp_path: Path) -> None:
    runs = read_grid(
        grid(
            tmp_path,
            """
            seeds = 2
            [[cells]]
            task = "mod10"
            architecture = ["nope", "lstm"]
            bos = [false, true]
            [[cells]]
            task = "shifted_start"
            architecture = "rope"
            n_layers = 4
            lengths = [[25, 50], [50, 200]]
            seeds = [7]
            """,
        )
    )
    assert [run.name for run in runs] == [
        "mod10/nope-2L/seed0",
        "mod10/nope-2L/seed1",
        "mod10-bos/nope-2L/seed0",
        "mod10-bos/nope-2L/seed1",
        "mod10/lstm-1L/seed0",
        "mod10/lstm-1L/seed1",
        "mod10-bos/lstm-1L/seed0",
        "mod10-bos/lstm-1L/seed1",
        "shifted_start/rope-4L-25to50/seed7",
        "shifted_start/rope-4L-50to200/seed7",
    ]
    assert runs[0].config == resolve(runs[0].config)
    assert (runs[-1].config.data.train_length, runs[-1].config.data.ood_length) == (50, 200)


def test_a_file_without_cells_is_one_cell(tmp_path: Path) -> None:
    text = 'task = "mod10"\narchitecture = ["ape", "rnn"]\nlengths = [25, 50]\nsteps = 200\nseeds = 2\n'
    runs = read_grid(grid(tmp_path, text))
    assert runs == read_grid(grid(tmp_path, f"[[cells]]\n{text}"))
    assert [run.name for run in runs] == [
        f"mod10/{cell}-25to50-200steps/seed{seed}" for cell in ("ape-2L", "rnn-1L") for seed in (0, 1)
    ]


def test_family_position_and_seed_are_keys_too() -> None:
    runs = expand([{"position": ["nope", "spe"], "seed": [7, 9]}, {"family": "lstm", "seed": 3}])
    assert [run.name for run in runs] == [
        "mod10/nope-2L/seed7",
        "mod10/nope-2L/seed9",
        "mod10/spe-2L/seed7",
        "mod10/spe-2L/seed9",
        "mod10/lstm-1L/seed3",
    ]


def test_one_pair_of_lengths_is_one_value() -> None:
    (run,) = expand([{"task": "mod10", "lengths": [25, 50]}])
    assert (run.config.data.train_length, run.config.data.ood_length) == (25, 50)


def test_the_periods_of_one_run_are_one_value_and_reach_its_files() -> None:
    (run,) = expand([{"position": "rope", "periods": [10, 20.5]}])
    assert run.config.model.periods == (10, 20.5)
    assert RunConfig.from_dict(run.config.to_dict()) == run.config
    several = expand([{"position": "rope", "periods": [[10], [10.37, 20.74]]}])
    assert [run.config.model.periods for run in several] == [(10,), (10.37, 20.74)]


def test_any_option_can_be_an_axis_and_is_then_in_the_name() -> None:
    runs = expand([{"lr": [1e-3, 2e-3, 5], "steps": [1500, 10], "snapshots": 3}])
    assert [run.name for run in runs] == [
        "mod10/ape-2L-lr0.001/seed0",
        "mod10/ape-2L-10steps-lr0.001/seed0",
        "mod10/ape-2L/seed0",
        "mod10/ape-2L-10steps/seed0",
        "mod10/ape-2L-lr5/seed0",
        "mod10/ape-2L-10steps-lr5/seed0",
    ]
    assert runs[-1].config.optimiser.lr == 5.0
    assert all(run.config.record.snapshots == 3 for run in runs)


def test_the_same_run_in_two_cells_is_one_run() -> None:
    cell = {"task": "mod10", "architecture": "ape"}
    assert len(expand([cell, cell | {"architecture": ["ape", "spe"]}])) == 2


def test_two_different_runs_of_one_name_are_refused() -> None:
    with pytest.raises(CountLensError, match=r"cell 2 \(.*\) and cell 1 \(.*\) are different runs of the same name"):
        expand([{"snapshots": 0}, {"snapshots": 5}])


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            {"task": ["mod10", "mod_10"]},
            r"cell 2 \(task = mod_10, seed = 0\): unknown task 'mod_10': did you mean",
        ),
        ({"architecture": "rop"}, r"cell 2 \(architecture = rop.*unknown architecture 'rop': did you mean rope"),
        ({"layers": 2}, "cell 2: unknown key 'layers': did you mean n_layers"),
        ({"n_layers": "two"}, r"cell 2 \(n_layers = two.*n_layers = 'two': must be int"),
        ({"bos": 1}, "bos = 1: must be bool"),
        ({"schedule": "linear"}, "schedule = 'linear': must be 'cosine' or 'constant'"),
        ({"d_model": [64, 31]}, r"cell 2 \(d_model = 31, seed = 0\): .*not divisible"),
        ({"lengths": [[50]]}, r"lengths = \[50\]: give \[train_length, ood_length\]"),
        ({"max_position": 20}, "more than max_position=20"),
        ({"architecture": "ape", "periods": [10]}, "ape has no waves, so that periods cannot be set: use sine, rope"),
        ({"architecture": "lstm", "periods": [10]}, "--periods is not an option of the family lstm"),
        (
            {"architecture": "rope", "periods": [0.5]},
            r"periods = \[0.5\]: must be at least 1 and at most 1,000,000,000",
        ),
        ({"architecture": "rope", "periods": ["x"]}, r"periods = \['x'\]: must be float each"),
        ({"architecture": "rope", "periods": [float("nan")]}, r"periods = \[nan\]: must be"),
        ({"architecture": "lstm", "n_heads": 2}, "--n-heads is not an option of the family lstm"),
        ({"task": []}, r"cell 2: task = \[\] gives no run"),
        ({"seeds": 0}, "gives no run"),
        ({"seeds": ["a"]}, "seed = 'a': must be int"),
        ({"preset": "smal"}, "unknown preset"),
        ({"preset": [["small"]]}, r"preset = \['small'\]: must be str"),
        ({"lr": float("nan")}, "lr = nan: must be at least 0 and at most 100"),
        ({"lr": float("inf")}, "lr = inf: must be at least 0 and at most 100"),
        ({"beta2": 2}, "beta2 = 2: must be above 0 and below 1"),
        ({"eval_rows": -1}, "eval_rows = -1: must be at least 1"),
        ({"threads": 0}, "threads = 0: must be at least 1"),
        ({"snapshots": 10**12}, "snapshots = 1000000000000: must be at least 0 and at most 1,000"),
        ({"n_layers": 10**9}, "n_layers = 1000000000: must be at least 1 and at most 256"),
        ({"n_layers": [[1]]}, r"n_layers = \[1\]: must be int"),
        ({"lengths": [["a", "b"]]}, "train_length = 'a': must be int"),
        ({"task": "mod99999999999"}, "base=99999999999: must be at least 2 and at most 10,000"),
        ({"task": 10}, "task = 10: must be str"),
        ({"architecture": 10}, "unknown architecture 10: All: nope"),
        ({"architecture": {"name": "ape"}}, "unknown architecture {'name': 'ape'}"),
        ({"seeds": 10**9}, "seeds = 1000000000: must be at most 5,000"),
        ({"seeds": -3}, "gives no run"),
        ({"seeds": [-1]}, "seed = -1: must be at least 0"),
        ({"seeds": [2**32]}, "seed = 4294967296: must be at least 0"),
        ({"seeds": 100, "lr": [0.1] * 100}, "more than 5,000 runs: make several smaller ones"),
        ({"device": "tpu"}, "device = 'tpu': must be 'auto' or 'cpu' or 'cuda' or 'mps'"),
        ({"architecture": "ape", "position": "rope"}, "cell 2: architecture and position exclude each other"),
        ({"lengths": [25, 50], "ood_length": 40}, "cell 2: lengths and ood_length exclude each other: leave one out"),
        ({"seeds": 2, "seed": 1}, "cell 2: seeds and seed exclude each other"),
        ({"seed": []}, r"cell 2: seed = \[\] gives no run"),
        ({"seed": [0, -1]}, "seed = -1: must be at least 0"),
        ({"seed": True}, "seed = True: must be int"),
        ({"a\x1bkey": 1}, r"unknown key 'a\\x1bkey'"),
    ],
)
def test_a_bad_cell_is_named(cell: dict[str, object], message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        expand([{"task": "mod10"}, cell])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task = 3 =", "not a TOML file"),
        ("", "has no cells"),
        ("cells = []", "has no cells"),
        ("[cells]\ntask = 'mod10'", "has no cells: begin each with a line"),
        ("[[cell]]\ntask = 'mod10'", "has no cells: begin each with a line"),
        ("layers = 2", "cell 1: unknown key 'layers'"),
        ("cells = [1]", "has no cells"),
        ("cells = " + "[" * 100_000, "not a TOML file"),
        ("cells = " + "{a=" * 50_000, "not a TOML file"),
        ("seeds = " + "9" * 5000, "not a TOML file"),
        ("[[cells]]\nlr = nan", "lr = nan: must be at least 0"),
        ("[[cells]]\ntask = 2020-01-01", "must be str"),
        ("#" * (2**18 + 1), "has 262145 bytes, more than the 262144"),
        ("a" + ".a" * 30_000 + " = 1", "a line has more than 1000 dots"),
    ],
    ids=lambda value: value[:30],
)
def test_a_file_that_is_no_grid_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        read_grid(grid(tmp_path, text))


def test_a_device_is_refused_at_once() -> None:
    with pytest.raises(CountLensError, match="not a regular file"):
        read_grid(Path("/dev/zero"))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CountLensError, match="cannot read"):
        read_grid(tmp_path / "none.toml")


def test_the_papers_grid_has_every_cell_of_its_tables_with_five_seeds_and_nothing_else() -> None:
    runs = read_grid(Path(__file__).parents[3] / "checkpoints" / "paper.toml")
    seeds: dict[tuple[Experiment, int | None, int | None], list[int]] = {}
    for run in runs:
        data, model = run.config.data, run.config.model
        assert (run.config.preset, data.policy) == ("paper", PAPER_POLICY)
        experiment = Experiment(
            data.task,
            data.bos,
            architecture_name(model),
            model.n_layers,
            model.causal,
            data.train_length,
            data.ood_length,
        )
        seeds.setdefault((experiment, model.d_model, model.n_heads), []).append(run.config.seed)
    assert all(of_cell == [1234, 12, 123, 42, 319] for of_cell in seeds.values())
    answers = [[cell.is_about(*trained) for trained in seeds] for cell in paper_cells()]
    assert [cell for cell, row in zip(paper_cells(), answers, strict=True) if not any(row)] == []
    assert all(any(column) for column in zip(*answers, strict=True))


def test_seeds_cost_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand seeds are resolved once."""
    calls: list[object] = []
    monkeypatch.setattr("training.sweep.grid.resolve", lambda config: calls.append(config) or resolve(config))
    runs = expand([{"task": "mod10", "architecture": ["nope", "ape"], "seeds": 500}])
    assert len(runs) == len({run.name for run in runs}) == 1000
    assert len(calls) == 2
    assert {run.config.seed for run in runs} == set(range(500))
    assert all(run.name.endswith(f"/seed{run.config.seed}") for run in runs)


def test_every_run_keeps_its_name_when_it_is_resolved() -> None:
    """`countlens train --like` names a run from its resolved config."""
    for run in expand([{"task": ["mod10", "selective"], "architecture": ["spe", "mamba"], "d_model": [32]}]):
        assert run_name(run.config) == run.name


def test_every_shipped_counter_is_one_that_the_zoo_would_train_today() -> None:
    """A recipe that changes makes its counters old: they are trained again, or the recipe stays."""
    planned = {run.name.rpartition("/")[0]: run.config for run in read_grid(SHIPPED / "zoo.toml")}
    for name, path in named_counters((SHIPPED,)):
        trained = resolve(TrainConfig.from_dict(read_info(path).training))
        today = replace(planned[name.rpartition("/")[0]], seed=trained.seed, record=trained.record)
        assert trained == today, name


def test_every_score_is_of_a_run_that_the_zoo_trains_with_the_recipe_of_today() -> None:
    """So the best seed of a cell is among those that `make zoo` trains again."""
    planned = {(run.name, run.config.recipe) for run in read_grid(SHIPPED / "zoo.toml")}
    assert {(row.name, row.recipe) for row in read_scores(SHIPPED / "scores.csv")} <= planned


def test_the_seeds_that_tuned_are_not_among_those_that_are_reported() -> None:
    tuning = [run.config.seed for path in (SHIPPED / "tuning").glob("*.toml") for run in read_grid(path)]
    reported = [run.config.seed for run in read_grid(SHIPPED / "zoo.toml")]
    reported += [row.seed for row in read_scores(SHIPPED / "scores.csv")]
    assert min(tuning) >= 100 > max(reported)
