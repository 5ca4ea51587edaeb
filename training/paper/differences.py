"""Known reasons why we differ from the paper, from a file beside a score table, `differences.toml`.

    [[difference]]
    task = "mod10"
    architecture = ["s4", "mamba"]  # one value, or several
    layers = 1
    reason = "one layer was trained too briefly to find a period of ten"

A difference applies to the cells that have all of the values it gives; a key that it leaves out may have any value. If
several apply to a cell, the first is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.border import IN_FILE, convert, read_toml
from models.errors import CountLensError, unknown
from training.paper.tables import PaperCell

FILE = "differences.toml"
KEYS = (
    *("task", "bos", "architecture", "layers", "width", "heads", "causal", "train_length", "ood_length"),
    "statistic",
)


@dataclass(frozen=True)
class Difference:
    """A reason, and the cells that it applies to."""

    reason: str
    values: dict[str, tuple[Any, ...]]  # by field of PaperCell: its allowed values

    def is_for(self, cell: PaperCell) -> bool:
        """Whether the reason applies to a cell."""
        return all(getattr(cell, key) in allowed for key, allowed in self.values.items())


def read_differences(path: Path) -> list[Difference]:
    """The reasons in a file; an empty list if there is no such file."""
    if not path.is_file():
        return []
    content = read_toml(path)
    entries = content.pop("difference", [])
    if content or not isinstance(entries, list):
        raise CountLensError(f"{path} holds {', '.join(content) or 'no list'}: it takes only [[difference]] tables")
    return [_parse(entry, f"{path}, difference {number}") for number, entry in enumerate(entries, 1)]


def reason_for(cell: PaperCell, differences: Sequence[Difference]) -> str | None:
    """The first reason that applies to a cell; None if none does."""
    return next((difference.reason for difference in differences if difference.is_for(cell)), None)


def _parse(entry: object, where: str) -> Difference:
    values: dict[str, Any] = dict(entry) if isinstance(entry, dict) else {}
    reason = values.pop("reason", None)
    if not isinstance(reason, str) or not reason.strip() or not values:
        raise CountLensError(f"{where}: give a reason, and at least one of {', '.join(KEYS)}")
    for key in values:
        if key not in KEYS:
            raise CountLensError(f"{where}: {unknown('key', key, KEYS)}")
    lists = {key: value if isinstance(value, list) else [value] for key, value in values.items()}
    hint = tuple[str | bool | int, ...]
    return Difference(reason, {key: convert(key, value, hint, IN_FILE) for key, value in lists.items()})
