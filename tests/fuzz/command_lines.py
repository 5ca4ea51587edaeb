"""Command lines of `countlens`: exit code 0, 1 or 2, and never a traceback.

What a sound command line asks for is not done where it is training, a server or a probe: that takes long, and is
tested elsewhere.
"""

import contextlib
import io
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_type_hints
from unittest.mock import patch

from app import cli
from app.axes import Axes
from probes.registry import PROBES
from tests.fuzz.harness import Case, DifferentError
from tests.fuzz.mutate import NUMBERS, TEXTS, plain_types, put_odd_file
from tests.fuzz.sources import tiny_config, write_counter
from training.evaluate import Scores
from training.run.folder import RunFolder
from training.run.loop import train
from training.sweep.engine import AttemptEnd
from training.sweep.grid import SweepRun
from training.sweep.manifest import Manifest
from training.sweep.timing import Timing

WORDS = (
    *("mod10", "selective", "helper", "ape", "rope", "lstm", "small", "paper", "shifted", "contiguous", "both", "cpu"),
    *("local", "4to8", "50to100", "h100", "a100", "counting_results", "bos", "mod_pca", "behaviour", "shift", "swap"),
    *("resid_post,head_z", "state_step", "logit_diff", "kl", "denoise", "noise", "bridge", "-"),
)
FILES = (
    *(
        "counter",
        "counter/model.safetensors",
        "lstm",
        "runs",
        "runs/mine",
        "runs/sweep.jsonl",
        "grid.toml",
        "rows.jsonl",
    ),
    *("nothing", "odd", "new", "new/folder", "text.txt", "scores.csv", ".", "..", "counter/.."),
)
COUNTERS = ("counter", "lstm", "runs/mine", "counter/model.safetensors")
POSITIONAL: dict[str, tuple[tuple[str, ...], ...]] = {
    "eval": (COUNTERS,),
    "list": ((".", "runs"),),
    "export": (COUNTERS, ("new", "new/folder")),
    "sweep": (("grid.toml", "runs/sweep.jsonl"),),
    "ship": (("runs/sweep.jsonl",),),
    "probe": (("behaviour", "mod_pca"), COUNTERS),
    "patch": (COUNTERS,),
    "report": (COUNTERS,),
    "study": (("rope_periods", "row_beginning", "predicting_ood"),),
}
QUICK_PROBES = ("behaviour", "patching")
SMALL = ("0", "1", "2", "3", "4", "8", "16", "0.5", "1e-3")


def prepare(folder: Path) -> None:
    write_counter(folder / "counter/model.safetensors", tiny_config("ape"))
    write_counter(folder / "lstm/model.safetensors", tiny_config("lstm"))
    config = tiny_config("nope", snapshots=2)
    train(RunFolder.create(folder / "runs/mine", config), progress=False)
    Manifest(folder / "runs/sweep.jsonl", (SweepRun("mine", config),)).write()
    (folder / "grid.toml").write_text('seeds = 2\n[[cells]]\ntask = "mod10"\narchitecture = ["ape", "lstm"]\n')
    (folder / "rows.jsonl").write_text('[["a", "a"], ["1", "2"]]\n')
    (folder / "text.txt").write_text("no table\n")
    (folder / "scores.csv").write_text("name,ind,ood\nx,1,2\n")


def open_border(folder: Path) -> Case:
    flags = {name: list_flags(command) for name, command in cli.COMMANDS.items()}

    def case(chance: random.Random, place: Path) -> Literal["accepted", "refused"]:
        # Two folders deep: a path with .. stays in the folder of the case.
        here = place / "a/b"
        shutil.copytree(folder, here)
        put_odd_file(here / "odd", chance)
        arguments = make_arguments(flags, chance)
        (place / "arguments.txt").write_text(f"{arguments!r}\n", errors="backslashreplace")
        with working_in(here):
            return run(arguments)

    return case


def run(arguments: list[str]) -> Literal["accepted", "refused"]:
    """Runs a command line; whether it is accepted or refused with an error."""
    output, errors, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors), stubs():
        try:
            cli.main(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    text = output.getvalue() + errors.getvalue()
    if code not in (0, 1, 2) or "Traceback (most recent call last)" in text or "\x1b" in text:
        raise DifferentError(f"exit code {code}: {text[-3000:]}")
    if code and not errors.getvalue().strip() and not output.getvalue().strip():
        raise DifferentError(f"exit code {code} without a word")
    return "refused" if code else "accepted"


@contextlib.contextmanager
def stubs() -> Iterator[None]:
    """Stands in for work that would take long after a command line is accepted."""
    server = SimpleNamespace(run=lambda *args, **more: SimpleNamespace(returncode=0))
    with (
        patch("app.commands.train.train", lambda *args: Scores({"ind": 100.0, "ood": 50.0}, {})),
        patch("app.commands.sweep.sweep", lambda *args: (event for event in ())),
        patch("probes.studies.conduct.sweep", lambda *args: iter(())),
        patch("app.commands.sweep.train_run", lambda *args, **more: AttemptEnd("finished")),
        patch("training.sweep.estimate.time_run", lambda *args, **more: Timing(1e-3, 1e-3, 1e-3)),
        patch("app.commands.explore.subprocess", server),
        patch.dict(PROBES, {name: PROBES[name] for name in QUICK_PROBES}, clear=True),
    ):
        yield


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def list_flags(command: Any) -> dict[str, Any]:
    """The flags of a command with the types of their values, from its signature, so that new flags are included."""
    hints: dict[str, Any] = {}
    for name, hint in get_type_hints(command).items():
        if is_dataclass(hint):
            hints |= flatten(hint)
        elif name == "axes":
            hints |= get_type_hints(Axes)
        elif name != "return":
            hints[name] = hint
    return {f"--{name.replace('_', '-')}": hint for name, hint in hints.items()}


def flatten(options: Any) -> dict[str, Any]:
    """The fields of a dataclass and of those nested in it, with their types."""
    hints = get_type_hints(options)
    nested = [flatten(hint) for hint in hints.values() if is_dataclass(hint)]
    return {name: hint for name, hint in hints.items() if not is_dataclass(hint)} | {
        name: hint for group in nested for name, hint in group.items()
    }


def make_arguments(flags: dict[str, dict[str, Any]], chance: random.Random) -> list[str]:
    """A command with positional values and flags, of which most fit and some do not."""
    command = chance.choice(list(flags)) if chance.random() < 0.97 else chance.choice(TEXTS)
    positional = [chance.choice(choices) for choices in POSITIONAL.get(command, ())]
    if chance.random() < 0.3:
        positional = [_odd_value(chance) for _ in range(chance.choice((0, 1, 2)))]
    arguments = [command, *positional]
    hints = flags.get(command) or {"--x": str}
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        flag = chance.choice(list(hints))
        arguments.append(flag if chance.random() < 0.97 else chance.choice(TEXTS))
        if hints[flag] is not bool or chance.random() < 0.1:
            arguments.append(_value(hints[flag], chance))
    return arguments


def _value(hint: Any, chance: random.Random) -> str:
    """A value of the flag's type, or any other."""
    if chance.random() < 0.25:
        return _odd_value(chance)
    kinds = set(plain_types(hint))
    choices = [kind for kind in kinds if isinstance(kind, str)]
    if choices:
        return chance.choice(sorted(choices))
    return chance.choice(FILES if Path in kinds else SMALL if kinds & {int, float} else (*WORDS, *FILES))


def _odd_value(chance: random.Random) -> str:
    kind = chance.randrange(4)
    return chance.choice((FILES, WORDS, TEXTS, [str(number) for number in NUMBERS if number != 10**400])[kind])
