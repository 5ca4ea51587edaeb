"""Writing a run's numbers while it trains: always to metrics.jsonl, on request also to TensorBoard."""

from typing import Any

from models.errors import CountLensError
from training.run.folder import RunFolder


class MetricsWriter:
    """Writes one line per evaluation."""

    def __init__(self, run: RunFolder, tensorboard: bool, purge_step: int) -> None:
        self._run = run
        self._events: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise CountLensError("TensorBoard is not installed: pip install 'countlens[tensorboard]'") from error
            self._events = SummaryWriter(str(run.path / "tensorboard"), purge_step=purge_step)

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._events is not None:
            self._events.close()

    def write(self, numbers: dict[str, float | int], by_position: dict[str, list[float | None]]) -> None:
        """Writes an evaluation: its numbers, and the accuracy at each position of each split."""
        self._run.append_metrics({**numbers, "by_position": by_position})
        if self._events is not None:
            for name in numbers.keys() - {"step"}:
                self._events.add_scalar(name, numbers[name], numbers["step"])
