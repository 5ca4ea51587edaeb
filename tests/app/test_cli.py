"""The command line, as a user calls it."""

import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli import COMMANDS, main
from training.config import OptimiserOptions, TrainConfig
from training.presets import resolve
from training.run.folder import RunFolder
from training.tasks import TASKS

TINY = [
    *("train", "--task", "mod10", "--train-length", "5", "--ood-length", "10", "--quiet"),
    *("--n-layers", "1", "--d-model", "8", "--n-heads", "1"),
    *("--steps", "6", "--eval-every", "3", "--eval-rows", "8"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    main([*TINY, "--out", str(folder)])
    return folder


def printed(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    main([str(arg) for arg in args])
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """The one line that a command which cannot be carried out prints."""
    with pytest.raises(SystemExit) as exit_:
        main([str(arg) for arg in args])
    assert exit_.value.code == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("countlens: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_training_says_how_well_it_counts_and_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, *TINY, "--out", tmp_path / "run")
    assert "mod10: ape, 1 layer, 8 wide, 1 head, seed 0" in out
    assert "in distribution" in out
    assert "out of distribution" in out
    assert str(tmp_path / "run/model.safetensors") in out


def test_a_run_goes_into_runs_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main(TINY)
    assert (tmp_path / "runs/mod10/ape-1L-8d-1h-5to10-6steps/seed0/model.safetensors").is_file()


def test_eval_prints_one_object_for_scripts(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for target in (run, run / "model.safetensors", run / "last.safetensors"):
        scores = json.loads(printed(capsys, "eval", target, "--json", "--rows", 16))
        assert set(scores) == {"ind", "ood"}
        assert all(0 <= value <= 100 for value in scores.values())
    assert "ind" in printed(capsys, "eval", run)


def test_eval_scores_a_data_file(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('[["a", "a"], ["1", "2"]]\n[["a"], ["1"]]\n')
    scores = json.loads(printed(capsys, "eval", run, "--data", data, "--json"))
    assert set(scores) == {"accuracy", "scored", "lines", "extrapolation", "extrapolation_scored"}
    assert (scores["scored"], scores["lines"]) == (3, 2)
    assert (scores["extrapolation"], scores["extrapolation_scored"]) == (None, 0)
    assert "3 scored tokens in 2 lines" in printed(capsys, "eval", run, "--data", data)


def test_the_score_in_the_file_is_the_score_that_eval_gives(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (listed,) = json.loads(printed(capsys, "list", run.parent, "--json"))
    scores = json.loads(printed(capsys, "eval", run, "--json"))
    assert (listed["ind"], listed["ood"]) == (scores["ind"], scores["ood"])


def test_list_names_every_counter_and_says_which_is_broken(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "good/model.safetensors").write_bytes((run / "model.safetensors").read_bytes())
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/model.safetensors").write_bytes(b"oops")
    listed = {counter["name"]: counter for counter in json.loads(printed(capsys, "list", tmp_path, "--json"))}
    assert listed["good"]["task"] == "mod10"
    assert listed["good"]["scheme"] == "ape"
    assert "truncated" in listed["bad"]["error"]
    text = printed(capsys, "list", tmp_path)
    assert "good" in text
    assert "broken" in text


def test_odd_metadata_is_the_error_of_its_own_file_alone(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    source = run / "model.safetensors"
    with safe_open(source, "pt") as file:
        values = json.loads(file.metadata()["countlens"])
    odd = {
        "scores": values | {"scores": None},
        "task": values | {"task": {}},
        "layers": values | {"model": values["model"] | {"n_layers": "x"}},
        "deep": values | {"training": "DEEP"},
    }
    for name, changed in {**odd, "sound": values}.items():
        (tmp_path / name).mkdir()
        text = json.dumps(changed).replace('"DEEP"', "[" * 20_000 + "]" * 20_000)
        save_file(load_file(source), tmp_path / name / "model.safetensors", {"countlens": text})
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe/model.safetensors")
    listed = {counter["name"]: counter for counter in json.loads(printed(capsys, "list", tmp_path, "--json"))}
    assert {name for name, counter in listed.items() if "error" in counter} == {*odd, "pipe"}
    assert "scores = None: must be dict" in listed["scores"]["error"]
    assert listed["sound"]["ood"] is not None
    assert printed(capsys, "list", tmp_path).count("broken: ") == 5


def test_list_obeys_no_name_and_fails_for_no_file(hostile_counters: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "list", hostile_counters).splitlines()
    counters = json.loads(printed(capsys, "list", hostile_counters, "--json"))
    assert len(lines) == len(counters) + 1  # the first names the columns
    assert all(line.isprintable() for line in lines)
    assert any(line.startswith("\\x1b[2Jescape\\nline\\u202e") for line in lines)
    assert any(line.startswith("no-utf8-\\udcff") for line in lines)
    broken = {line.split()[0] for line in lines if "broken: " in line}
    assert {"scores", "no-scores", "no-task", "layers", "folder", "pipe"} <= broken
    assert "run" not in broken


def test_an_error_is_one_line_whatever_it_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no\\x1b[2J\\nsuch" in refused(capsys, "eval", "no\x1b[2J\nsuch")


def test_list_says_so_when_there_is_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no counters yet" in printed(capsys, "list", tmp_path)
    assert "is no folder" in refused(capsys, "list", tmp_path / "nowhere")


def test_tasks_shows_all_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    described = {task["name"]: task for task in json.loads(printed(capsys, "tasks", "--json"))}
    assert list(described) == list(TASKS)
    assert described["mod10"]["examples"][0][1][:3] == ["1", "2", "3"]
    assert "selective_mod4" in printed(capsys, "tasks")


def test_how_often_kinds_occur_is_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "counts.html"
    assert str(page) in printed(capsys, "tasks", "--figure", page)
    text = page.read_text()
    assert all(title in text for title in ("selective, training rows", "selective + bos, OOD rows"))
    assert "http" not in text.partition("plotly.js")[0]
    assert ".html" in refused(capsys, "tasks", "--figure", tmp_path / "counts.png")


def test_export_writes_both_formats(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for format in ("hooked-transformer", "bridge"):
        printed(capsys, "export", run, tmp_path / format, "--format", format)
        assert {path.name for path in (tmp_path / format).iterdir()} == {"model.safetensors", "config.json"}
    assert "already holds a model" in refused(capsys, "export", run, tmp_path / "bridge")


def test_resume_of_a_finished_run_says_so(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "model.safetensors").read_bytes()
    assert "is finished already" in printed(capsys, "train", "--resume", run, "--quiet")
    assert (run / "model.safetensors").read_bytes() == before
    assert "brings the run's own options" in refused(capsys, "train", "--resume", run, "--seed", 1)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("train --task mod_10", "did you mean mod10"),
        ("train --position rop", "did you mean rope"),
        ("train --d-model 30 --n-heads 4", "not divisible"),
        ("train --max-position 20", "more than max_position=20"),
        ("train --device cuda", "device 'cuda' does not exist"),
        ("train --device cpu --bf16", "--bf16 is for CUDA"),
        ("eval no/such/counter", "unknown checkpoint"),
        ("train --resume /nowhere", "holds no run"),
        ("train --lr nan", "lr=nan: must be at least 0 and at most 100"),
        ("train --lr inf", "lr=inf: must be at least 0 and at most 100"),
        ("train --beta2 2", "beta2=2.0: must be above 0 and below 1"),
        ("train --eval-rows -1", "eval_rows=-1: must be at least 1"),
        ("train --threads 0", "threads=0: must be at least 1"),
        ("train --seed -1", "seed=-1: must be at least 0"),
        ("train --task mod99999999999", "base=99999999999: must be at least 2 and at most 10,000"),
        ("train --snapshots 1000000000000", "snapshots=1000000000000: must be at least 0 and at most 1,000"),
        ("train --n-layers 1000000000", "n_layers=1000000000: must be at least 1 and at most 256"),
        ("sweep --task mod10 --seeds 1000000000", "--seeds 1000000000: must be at least 1 and at most 5,000"),
        ("sweep --task mod10 --n-layers 0 2", "--n-layers (0, 2): must be at least 1 and at most 256 each"),
        (f"sweep --task mod10 --lengths {'9' * 5000}to100", "write the train and the OOD length as 50to100"),
        ("sweep --task mod10 --workers 0", "--workers 0: must be at least 1"),
        ("sweep --task mod10 --gpus nan", "--gpus nan: must be at least 0"),
        ("sweep /dev/zero", "not a regular file"),
        ("eval mod10/ape-2L --rows 0", "--rows 0: must be at least 1"),
        ("eval mod10/ape-2L --data /dev/zero", "not a regular file"),
        ("eval /dev/zero", "unknown checkpoint"),
        ("tables --scores /dev/zero", "not a regular file"),
        ("ship /dev/zero", "not a regular file"),
        ("ship x.jsonl --max-mb 0", "--max-mb 0.0: must be above 0"),
        ("probe mod_pca mod10/ape-2L --seed -1", "--seed -1: must be at least 0"),
        ("patch mod10/ape-2L --batch 0", "--batch 0: must be at least 1"),
        ("explore --port 0", "--port 0: must be at least 1 and at most 65,535"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], args: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, *args.split())
    assert not list(tmp_path.iterdir())


def test_an_out_folder_with_another_run_is_left_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert "already holds another run" in refused(capsys, *TINY, "--seed", 9, "--out", run)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.fixture
def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a new run, on a disk that can only be read: also for root, whom modes do not stop."""
    folder = tmp_path / "disk"
    RunFolder.create(folder / "run", resolve(TrainConfig(optimiser=OptimiserOptions(steps=3))))

    def refuse(real: Callable[..., Any], is_writing: Callable[[Any], bool] = lambda mode: True) -> Callable[..., Any]:
        def operation(path: Any, *args: Any, **options: Any) -> Any:
            if str(path).startswith(str(folder)) and is_writing(args[0] if args else "r"):
                raise OSError(errno.EROFS, "Read-only file system", str(path))
            return real(path, *args, **options)

        return operation

    monkeypatch.setattr(os, "open", refuse(os.open, lambda flags: flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) != 0))
    monkeypatch.setattr(io, "open", refuse(io.open, lambda mode: bool(set(mode) & set("wax+"))))
    for name in ("mkdir", "unlink", "replace", "utime"):
        monkeypatch.setattr(os, name, refuse(getattr(os, name)))
    return folder


@pytest.mark.parametrize(
    "args",
    [
        "train --resume {disk}/run --quiet",
        "train --out {disk}/new",
        "sweep --task mod10 --out {disk}",
        "tables --csv {disk}/t.csv",
        "study rope_periods --quick --quiet --out {disk}",
        "export mod10/ape-1L {disk}/new",
        "tasks --figure {disk}/t.html",
    ],
)
def test_a_read_only_folder_is_one_line_with_the_way_out(
    read_only: Path, capsys: pytest.CaptureFixture[str], args: str
) -> None:
    error = refused(capsys, *args.format(disk=read_only).split())
    assert f"cannot write {read_only}" in error
    assert "Read-only file system (choose a folder that you may write to)" in error


def test_a_file_operation_that_fails_anywhere_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise OSError(errno.EIO, "Input/output error", str(tmp_path / "x"))

    monkeypatch.setattr("app.commands.listing.print_counters", fail)
    assert f"at {tmp_path / 'x'}: Input/output error. Mend that" in refused(capsys, "list")


@pytest.mark.parametrize("args", [["\x1b[2J"], ["list", "--\x1b[2J"], ["eval", "a\nb"], ["list", "\udcff"]], ids=repr)
def test_arguments_that_a_terminal_would_obey_are_refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, *args)
    assert "holds characters that cannot be printed: leave them out" in error
    assert error.rstrip("\n").isprintable()


def test_an_out_folder_that_is_refused_keeps_its_unfinished_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "chapter1.unfinished").write_text("somebody's own")
    assert "is neither empty nor a run" in refused(capsys, *TINY, "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["chapter1.unfinished"]


def test_help_needs_neither_torch_nor_transformer_lens() -> None:
    """One process for all commands: what `--help` of one imports counts against the next as well."""
    code = f"""import sys
from app.cli import main
for args in {[["--help"], *([command, "--help"] for command in COMMANDS)]}:
    print(*args)
    try: main(args)
    except SystemExit as end: assert end.code == 0, (args, end.code)
    slow = {{'torch', 'transformer_lens', 'numpy', 'streamlit'}} & set(sys.modules)
    assert not slow, (args, slow)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: countlens") == len(COMMANDS) + 1
