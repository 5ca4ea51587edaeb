"""`make fuzz`, in short: some cases of every border, and planted faults that must be noticed."""

import re
import shutil
import struct
from pathlib import Path
from unittest.mock import patch

import pytest

import app.explorer
from tests.fuzz import harness, run_folders, urls
from tests.fuzz.borders import BORDERS
from tests.fuzz.harness import DifferentError, Job, Tally, chance_of, do_cases
from tests.fuzz.mutate import damage_bytes
from tests.fuzz.planted import EXTRA, FAULTS
from tests.fuzz.run import REGISTRY, fuzz, group, main, plan, table
from training.run.folder import RunFolder

PLANTED = "tests.fuzz.planted:BORDERS"
SHARE = {"checkpoints": 120, "grids": 80, "data-files": 60, "command-lines": 30, "run-folders": 20, "studies": 30}
SEED = 1  # another than that of `make fuzz`


def assert_sound(jobs: list[Job], folder: Path) -> None:
    tallies, wrong = fuzz(jobs, SEED, 1, folder, REGISTRY)
    assert not wrong, "\n".join(f"{outcome.job}: {outcome.verdict}, {outcome.text}" for outcome in wrong)
    for border, tally in tallies.items():
        assert tally.verdicts["accepted"] > 0, border
        assert tally.verdicts["refused"] > 0, border


def test_hostile_input_is_accepted_rightly_or_refused(tmp_path: Path) -> None:
    assert_sound([Job(border, number) for border, cases in SHARE.items() for number in range(cases)], tmp_path)


@pytest.mark.slow  # the pages take long to import; tests/app/explorer/test_hostile.py is the quick sibling
def test_hostile_urls_are_accepted_rightly_or_refused(tmp_path: Path) -> None:
    assert_sound([Job("urls", number) for number in range(20)], tmp_path)


def test_urls_have_every_parameter_of_every_page() -> None:
    """The names of widgets, from the source: a new one must be fuzzed, too."""
    source = "".join(path.read_text() for path in Path(app.explorer.__file__).parent.rglob("*.py"))
    names = set(re.findall(r'state\.(?:select|slider|in_order|text|toggle)\(\s*"(\w+)"', source))
    assert len(names) > 30
    assert names <= set(urls.PARAMETERS)


def test_planted_faults_are_noticed(tmp_path: Path) -> None:
    jobs = [Job("planted", number) for number, fault in enumerate(FAULTS) if fault != "hang"]
    tallies, wrong = fuzz(jobs, SEED, 1, tmp_path, PLANTED)
    verdicts = {FAULTS[outcome.job.case]: outcome.verdict for outcome in wrong}
    assert verdicts == {
        "foreign": "foreign",
        "different": "different",
        "allocation": "accepted",
        "death": "foreign",
    }
    by_fault = {FAULTS[outcome.job.case]: outcome for outcome in wrong}
    assert by_fault["allocation"].extra > 0.9 * EXTRA
    assert "KeyError: 'x'" in by_fault["foreign"].text
    assert "code -11" in by_fault["death"].text
    assert all((outcome.folder / "input.txt").is_file() for outcome in wrong)
    assert tallies["planted"].verdicts == {"accepted": 2, "refused": 1, "foreign": 2, "different": 1}


def test_a_planted_hang_is_noticed_and_the_next_case_is_done(tmp_path: Path) -> None:
    jobs = [Job("planted", FAULTS.index(fault)) for fault in ("hang", "none")]
    with patch.object(harness, "MOST_SECONDS", 1.0):
        tallies, wrong = fuzz(jobs, SEED, 1, tmp_path, PLANTED)
    assert [outcome.verdict for outcome in wrong] == ["hang"]
    assert tallies["planted"].verdicts == {"hang": 1, "accepted": 1}


def test_anything_wrong_is_told_with_the_command_that_does_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.fuzz.run.tempfile.mkdtemp", lambda prefix: str(tmp_path))
    assert main(["--only", "planted", "--case", "2", "--workers", "1", "--seed", "7"], PLANTED) == 1
    output = capsys.readouterr().out
    assert "again: python -m tests.fuzz.run --seed 7 --only planted --case 2" in output
    assert f"its files: {tmp_path}/worker0/planted-2" in output
    assert output.splitlines()[-2].split() == ["planted", "1", "0", "0", "1", "0", "0", "0"]


def test_nothing_wrong_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.run.tempfile.mkdtemp", lambda prefix: str(tmp_path / "made"))
    (tmp_path / "made").mkdir()
    assert main(["--only", "planted", "--case", "0", "--workers", "1"], PLANTED) == 0
    assert not list(tmp_path.iterdir())


def test_a_case_is_the_same_whenever_it_is_done(tmp_path: Path) -> None:
    contents = []
    for name in ("first", "second"):
        jobs = [Job("planted", number) for number in (2, 9)]
        outcomes = list(do_cases(jobs, tmp_path / name, SEED, 1, PLANTED))
        contents.append([(outcome.folder / "input.txt").read_text() for outcome in outcomes])
    assert contents[0] == contents[1]
    assert contents[0][0] != contents[0][1]
    assert damage_bytes(b"x" * 99, chance_of(0, jobs[0])) == damage_bytes(b"x" * 99, chance_of(0, jobs[0]))


def test_a_full_run_has_the_promised_number_of_cases() -> None:
    counts = {border: sum(job.border == border for job in plan(BORDERS, [], 1.0, None)) for border in BORDERS}
    assert counts == {
        "checkpoints": 8000,
        "grids": 3000,
        "data-files": 2000,
        "command-lines": 700,
        "run-folders": 1300,
        "studies": 1000,
        "urls": 1000,
    }
    assert len(plan(BORDERS, ["urls"], 0.01, None)) == 10
    assert plan(BORDERS, ["urls"], 1.0, 5) == [Job("urls", 5)]


def test_a_run_that_ends_with_one_other_bit_is_noticed(tmp_path: Path) -> None:
    """The comparison of run folders on a planted falsehood: a weight of the last checkpoint differs in one bit."""
    run_folders.prepare(tmp_path / "source")
    whole = tmp_path / "source/sine/whole"
    shutil.copytree(whole, tmp_path / "run")
    run_folders.compare(run_folders.contents(tmp_path / "run"), run_folders.contents(whole))
    last = RunFolder(tmp_path / "run").last
    content = bytearray(last.read_bytes())
    content[8 + struct.unpack("<Q", content[:8])[0]] ^= 1
    last.write_bytes(content)
    with pytest.raises(DifferentError, match=r"last\.safetensors"):
        run_folders.compare(run_folders.contents(tmp_path / "run"), run_folders.contents(whole))


def test_outcomes_of_one_cause_are_told_together() -> None:
    wrong = [
        harness.Outcome(Job("grids", number), "foreign", f"Traceback\nKeyError: /tmp/{number}/x", 0, Path("x"))
        for number in range(3)
    ]
    assert [len(alike) for alike in group(wrong)] == [3]
    tally = Tally()
    tally.add(wrong[0])
    assert table({"grids": tally})[1].split() == ["grids", "1", "0", "0", "1", "0", "0", "0"]
