"""A run on disk: a folder that a kill at any moment leaves whole, and from which training goes on.

config.json              everything the run was told
metrics.jsonl            a line an evaluation
model.safetensors        the best checkpoint so far
last.safetensors         the last one, once the run is finished
state.safetensors        weights, optimiser and random state for --resume, until the run is finished
snapshots/step-*.safetensors
error.txt                why the run failed, if it did when it was last tried
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import safe_open

from models.border import decode_json, read_text
from models.checkpoint import load_tensors, save_tensors
from models.errors import CountLensError
from models.files import remove_unfinished, write_text, writing_failed
from models.find import CHECKPOINT
from training.config import TrainConfig
from training.presets import resolve

MAX_CONFIG = 2**20  # bytes of config.json


@dataclass(frozen=True)
class TrainState:
    """What the next step depends on, and the best scores so far."""

    step: int
    seconds: float  # spent on training up to here
    best: dict[str, Any] | None  # step and scores of the best checkpoint
    tensors: dict[str, torch.Tensor]  # model.*, optimiser.*, generator


class BusyError(CountLensError):
    """Another process holds the run."""


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def best(self) -> Path:
        return self.path / CHECKPOINT

    @property
    def last(self) -> Path:
        return self.path / "last.safetensors"

    @property
    def exists(self) -> bool:
        return self._config.is_file()

    @property
    def finished(self) -> bool:
        return self.last.is_file() and not self._state.is_file()

    @property
    def _config(self) -> Path:
        return self.path / "config.json"

    @property
    def _state(self) -> Path:
        return self.path / "state.safetensors"

    @property
    def _metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def _lock(self) -> Path:
        return self.path / ".lock"

    @property
    def _failure(self) -> Path:
        return self.path / "error.txt"

    def snapshot(self, step: int) -> Path:
        """The checkpoint kept at a step."""
        return self.path / "snapshots" / f"step-{step:07d}.safetensors"

    @classmethod
    def create(cls, path: Path, config: TrainConfig) -> "RunFolder":
        """A folder for a new run; refuses one that holds anything else."""
        run = cls(path)
        if run.exists:
            same = run.config() == config
            hint = f"countlens train --resume {path}" if same else "another --out or --seed, or remove it"
            raise CountLensError(f"{path} already holds {'this' if same else 'another'} run: use {hint}")
        if path.is_dir():
            remove_unfinished(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise CountLensError(f"{path} is not empty and no run: choose another --out")
        write_text(run._config, json.dumps(config.to_dict(), indent=2) + "\n")
        return run

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The run in a folder."""
        if not (path / "config.json").is_file():
            raise CountLensError(f"{path} holds no run: it has no config.json")
        return cls(path)

    def config(self) -> TrainConfig:
        """The resolved config that the run was started with."""
        try:
            config = TrainConfig.from_dict(decode_json(read_text(self._config, MAX_CONFIG), "the text"))
            if resolve(config) != config:
                raise CountLensError("it is not resolved, so it was not written by a training run")
        except CountLensError as error:
            raise CountLensError(f"cannot read {self._config}: {error}") from error
        return config

    @property
    def failure(self) -> str | None:
        """The error that ended the run when it was last tried; None when there was none."""
        return self._failure.read_text() if self._failure.is_file() else None

    def record_failure(self, text: str | None) -> None:
        """Writes down why the run could not go on; None: it could."""
        if text is None:
            self._failure.unlink(missing_ok=True)
        else:
            write_text(self._failure, text)

    def held_at(self) -> int | None:
        """When a process last took hold of the run, in nanoseconds; None: never."""
        try:
            return self._lock.stat().st_mtime_ns
        except OSError:
            return None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the run: two processes never train into one folder. A killed one lets go of it."""
        lock = FileLock(self._lock)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise BusyError(f"{self.path} is being trained by another process") from error
        self._lock.touch()  # for `held_at`
        try:
            remove_unfinished(self.path)
            yield
        finally:
            lock.release()

    def save_state(self, state: TrainState) -> None:
        """Replaces the state to resume from."""
        scalars = {"step": state.step, "seconds": state.seconds, "best": state.best}
        save_tensors(self._state, state.tensors, {"state": json.dumps(scalars)})

    def load_state(self) -> TrainState | None:
        """The state to resume from; None when the run was stopped before its first one."""
        if not self._state.is_file():
            return None
        tensors = load_tensors(self._state)
        with safe_open(self._state, "pt") as file:
            return TrainState(**json.loads(file.metadata()["state"]), tensors=tensors)

    def finish(self) -> None:
        """Removes the state: what is left is the result."""
        self._state.unlink(missing_ok=True)

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Adds one line to metrics.jsonl."""
        try:
            with self._metrics.open("a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise writing_failed(self._metrics, error) from error

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; a last line that a kill cut short is left out."""
        lines = []
        if self._metrics.is_file():
            for text in self._metrics.read_text().splitlines():
                try:
                    lines.append(json.loads(text))
                except ValueError:
                    break
        return lines

    def forget_metrics_after(self, step: int) -> None:
        """Drops lines of steps that a resumed run will do again."""
        kept = [json.dumps(line) + "\n" for line in self.metrics() if line["step"] <= step]
        write_text(self._metrics, "".join(kept))
