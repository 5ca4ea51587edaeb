"""A run on disk: a folder from which training can go on after a kill at any moment.

config.json                  all settings of the run
metrics.jsonl                one line per evaluation
model.safetensors            the best checkpoint so far
last.safetensors             the last checkpoint; it is written after everything else
state.safetensors            weights, optimiser and random state for --resume, until the run is finished
state.previous.safetensors   the state before that, in case the newest is damaged
snapshots/step-*.safetensors
error.txt                    why the last attempt failed, if it did
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from torch import Tensor

from models.atomic import remove_unfinished, unfinished_target, write_text, writing
from models.border import decode_json, read_text
from models.errors import CountLensError
from models.find import CHECKPOINT
from models.header import read_info
from training.config import RunConfig, TrainConfig
from training.presets import resolve
from training.run.state import TrainState, fingerprint, read_state, write_state

MAX_CONFIG = 2**20  # bytes of config.json


class BusyError(CountLensError):
    """Another process is training the run."""


class _File:
    """An attribute of `RunFolder` that is the path of one of its files."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: "RunFolder", owner: type) -> Path:
        return run.path / self.name


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    best = _File(CHECKPOINT)
    last = _File("last.safetensors")
    _config = _File("config.json")
    _state = _File("state.safetensors")
    _previous = _File("state.previous.safetensors")
    _metrics = _File("metrics.jsonl")
    _lock = _File(".lock")
    _failure = _File("error.txt")

    @property
    def exists(self) -> bool:
        return self._config.is_file()

    @property
    def finished(self) -> bool:
        return self.last.is_file() and not self._state.is_file() and not self._previous.is_file()

    def snapshot(self, step: int) -> Path:
        """The file of the snapshot of a step."""
        return self.path / "snapshots" / f"step-{step:07d}.safetensors"

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> "RunFolder":
        """Makes a folder for a new run. Refuses a folder that holds anything else."""
        run = cls(path)
        if not run._begin(config):
            same = run.config() == config
            hint = f"countlens train --resume {path}" if same else "another --out or --seed, or remove it"
            raise CountLensError(f"{path} already holds {'this' if same else 'another'} run: use {hint}")
        return run

    @classmethod
    def open_or_create(cls, path: Path, config: RunConfig) -> "RunFolder":
        """Opens the run of a sweep or, if its folder has no run, makes it. Refuses a folder with another run."""
        run = cls(path)
        run._begin(config)
        if run.config() != config:
            raise CountLensError(f"{path} holds another run than the sweep's: move it away")
        return run

    def _begin(self, config: RunConfig) -> bool:
        """Writes config.json unless the folder has one; returns whether it did. Refuses a folder with foreign files."""
        if self.exists:
            return False
        self._refuse_foreign_files()
        with self._held():
            if self.exists:  # another process has made it in the meantime
                return False
            with writing(self._lock):
                os.utime(self._lock, (0, 0))  # for `held_at`: no process has trained it yet
            remove_unfinished(self.path)
            write_text(self._config, json.dumps(config.to_dict(), indent=2) + "\n")
        return True

    def _refuse_foreign_files(self) -> None:
        """Refuses a folder with files, except those of a run that was stopped before it had a config.json."""
        own = {self._lock.name, self._failure.name, self._config.name}
        with writing(self.path):
            if not self.path.exists():
                return
            if self.path.is_dir() and all(
                {path.name, unfinished_target(path.name)} & own for path in self.path.iterdir()
            ):
                return
        raise CountLensError(f"{self.path} is neither empty nor a run: choose another --out")

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The run in a folder. Refuses a folder without config.json."""
        run = cls(path)
        if not run.exists:
            raise CountLensError(f"{path} holds no run: it has no config.json")
        return run

    def config(self) -> RunConfig:
        """The settings with which the run was started, from config.json."""
        try:
            config = TrainConfig.from_dict(decode_json(read_text(self._config, MAX_CONFIG), "the text"))
            resolved = resolve(config)
            if resolved.to_dict() != config.to_dict():
                raise CountLensError("it is not resolved, so it was not written by a training run")
        except CountLensError as error:
            reason = str(error).removeprefix(f"cannot read {self._config}: ")
            raise CountLensError(
                f"cannot read {self._config}: {reason}. Restore the file, or start a new run in another folder"
            ) from error
        return resolved

    @property
    def failure(self) -> str | None:
        """The error that ended the last attempt; None if there was none."""
        return self._failure.read_text(errors="replace") if self._failure.is_file() else None

    def record_failure(self, text: str) -> None:
        """Writes the error that ended the run. Raises BusyError if another process is training the run by now."""
        with self._held():
            if not self.finished:
                write_text(self._failure, text)

    def held_at(self) -> int | None:
        """The time at which a process last began to train the run, in nanoseconds; None if none ever did."""
        try:
            return (self._lock.stat().st_mtime_ns or None) if self.exists else None
        except OSError:
            return None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the run for training, so that two processes never train in one folder. A kill releases the lock."""
        with self._held():
            with writing(self._lock):
                self._lock.touch()  # for `held_at`
            remove_unfinished(self.path)
            yield

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Holds the run's lock for the block; raises BusyError if another process holds it."""
        lock = FileLock(self._lock)
        with writing(self._lock):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except Timeout as error:
                raise BusyError(f"{self.path} is being trained by another process") from error
        try:
            yield
        finally:
            lock.release()

    def save_state(self, state: TrainState) -> None:
        """Writes a new state to resume from; the one before it is kept."""
        with writing(self._previous):
            if self._state.is_file():
                os.replace(self._state, self._previous)
        digests = state.digests | {self._metrics.name: self._metrics_digest(state.step)}
        write_state(self._state, replace(state, digests=digests), self.config())

    def load_state(self, template: Mapping[str, Tensor] | None = None) -> TrainState | None:
        """The state to resume from; None if the run was stopped before it saved one.

        If the newest state is damaged, the previous one is used, with a notice: the run then repeats some steps and
        ends with the same files. `template` has the names, shapes and dtypes that the tensors must have.
        """
        faults: list[str] = []
        for path in (self._state, self._previous):
            if not path.is_file():
                continue
            try:
                state = read_state(path, self.config(), template)
                self._check_files(state)
            except CountLensError as error:
                faults.append(str(error))
                continue
            if faults:
                with writing(self._state):
                    os.replace(path, self._state)
                print(f"{faults[0]}; going on from the previous state, of step {state.step}", file=sys.stderr)
            return state
        if faults:
            raise CountLensError(f"{'; '.join(faults)}; there is no other state: {self._way_out()}")
        return None

    def finish(self) -> None:
        """Removes the files that only an unfinished run needs."""
        # The newest state is removed last: until then the run can resume.
        for path in (self._failure, self._previous, self._state):
            with writing(path):
                path.unlink(missing_ok=True)

    def check_best(self, digest: str) -> None:
        """Refuses the best checkpoint if its digest is not this one."""
        if fingerprint(self.best) != digest:
            raise CountLensError(f"{self.best} is damaged or was replaced: {self._way_out()}")

    def _check_files(self, state: TrainState) -> None:
        """Refuses a state if one of the files that it relies on has changed since it was saved."""
        for name, digest in state.digests.items():
            path = self.path / name
            if path == self._metrics:
                same = self._metrics_digest(state.step) == digest
            else:
                same = fingerprint(path) == digest
            # A best checkpoint of a later step was saved just before a stop: the run will write it again at that step.
            if not same and not (path == self.best and (read_info(path).step or 0) > state.step):
                raise CountLensError(f"{path} was damaged or replaced since the state of step {state.step} was saved")

    def _way_out(self) -> str:
        return (
            f"to train it again from step 0, which ends with the same files, remove everything in {self.path} "
            f"but config.json, then: countlens train --resume {self.path}"
        )

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Adds one line to metrics.jsonl."""
        with writing(self._metrics), self._metrics.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file)  # the next state relies on it

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl. A last line that a kill cut short is left out; any other bad line is an error."""
        if not self._metrics.is_file():
            return []
        *texts, rest = self._metrics.read_bytes().split(b"\n")
        lines = []
        for number, text in enumerate(texts, 1):
            line = _parse_metrics(text)
            if line is None:
                raise CountLensError(
                    f"{self._metrics}, line {number} is not an evaluation but {text[:40]!r}: restore the line; "
                    f"or, {self._way_out()}"
                )
            lines.append(line)
        line = _parse_metrics(rest)  # a last line without a line end: cut short, unless only the line end is missing
        return lines if line is None else [*lines, line]

    def forget_metrics_after(self, step: int) -> None:
        """Removes the lines of later steps, which a resumed run will do again."""
        write_text(self._metrics, self._metrics_until(step))

    def _metrics_until(self, step: int) -> str:
        return "".join(json.dumps(line) + "\n" for line in self.metrics() if line["step"] <= step)

    def _metrics_digest(self, step: int) -> str:
        return hashlib.sha256(self._metrics_until(step).encode()).hexdigest()


def _parse_metrics(text: bytes) -> dict[str, Any] | None:
    """The values of one line of metrics.jsonl; None if the line is incomplete."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_evaluation = isinstance(line, dict) and isinstance(line.get("step"), int)
    return line if is_evaluation and isinstance(line.get("seconds"), int | float) else None
