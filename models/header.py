"""The header of a checkpoint file: its metadata, one JSON string that is readable without torch."""

import json
import os
import struct
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from models.border import build, convert, decode_json, open_regular
from models.errors import CountLensError, shown
from models.families import config_from_dict, config_to_dict
from models.ranges import Length, Name, Percent, Seed, Step

METADATA_KEY = "countlens"
FORMAT_VERSION = 1
MAX_HEADER = 8 * 2**20  # bytes; a counter of 256 layers needs less than one million
# Settings that every task has. They are shown without loading the task's class, so they are checked here.
TASK_SETTINGS: dict[str, Any] = {
    "name": Name,
    "bos": bool,
    "train_length": Length | None,
    "ood_length": Length | None,
}


@dataclass(frozen=True)
class CheckpointInfo:
    """The metadata of a checkpoint: everything that rebuilds the counter, and how it was trained."""

    family: str  # key of FAMILIES
    model: dict[str, Any]  # fields of the family's config
    task: dict[str, Any] | None = None  # how the trainer rebuilds the task; opaque to this room
    policy: Name | None = None  # position policy it was trained with
    seed: Seed | None = None
    step: Step | None = None  # training step at which it was saved
    scores: dict[str, Percent] = field(default_factory=dict)  # percent: ind, ood, and aux where there is one
    last_scores: dict[str, Percent] = field(default_factory=dict)  # of the last checkpoint of the same run
    training: dict[str, Any] = field(default_factory=dict)  # the whole training config
    transformer_lens: dict[str, Any] | None = None  # HookedTransformerConfig fields, where it loads there
    format_version: int = FORMAT_VERSION

    @property
    def architecture(self) -> str:
        """The architecture's name in the paper's tables: the positional scheme of a transformer, else the family."""
        return str(self.model.get("position", self.family))

    def to_metadata(self) -> dict[str, str]:
        """This info as the metadata dict of a safetensors file."""
        return {METADATA_KEY: json.dumps(asdict(self))}


def read_info(path: Path) -> CheckpointInfo:
    """The metadata of a checkpoint file, checked; no tensor is read."""
    metadata = read_metadata(path)
    if METADATA_KEY not in metadata:
        raise CountLensError(
            f"{path} is a safetensors file but not a CountLens checkpoint: its metadata has no {METADATA_KEY!r}"
        )
    what = f"{path}: its {METADATA_KEY!r} metadata"
    values = decode_json(metadata[METADATA_KEY], what)
    if not isinstance(values, dict) or "format_version" not in values:
        raise CountLensError(f"{what} cannot be read (it has no format_version)")
    if values["format_version"] != FORMAT_VERSION:
        raise CountLensError(
            f"{path} has format version {shown(values['format_version'])}, this CountLens reads {FORMAT_VERSION}: "
            "update CountLens"
        )
    try:
        return _build_info(values)
    except CountLensError as error:
        raise CountLensError(f"{what} does not fit ({error})") from error


def _build_info(values: dict[str, Any]) -> CheckpointInfo:
    """The info with these values. Refuses one whose model config is invalid or whose task has no name."""
    info = build(CheckpointInfo, values, "it")
    for key, hint in TASK_SETTINGS.items():
        if info.task is not None and (key in info.task or key == "name"):
            convert(f"task.{key}", info.task.get(key), hint)
    return replace(info, model=config_to_dict(config_from_dict(info.family, info.model)))


class _Tensor(msgspec.Struct):
    """The one field that is needed of a tensor's entry in a safetensors header."""

    data_offsets: tuple[int, int]


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a safetensors file; refuses a file that is truncated or too long.

    The format is 8 bytes that hold a length, a JSON header of that length, and then the tensors.
    """
    foreign = CountLensError(f"{path} is not a safetensors file: CountLens reads only its own .safetensors checkpoints")
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            raise CountLensError(f"{path} is truncated: {size} bytes. Copy or train it again")
        (length,) = struct.unpack("<Q", file.read(8))
        if length > MAX_HEADER:
            raise foreign
        text = file.read(length)
    if len(text) < length and not text.startswith(b"{"):
        raise foreign
    truncated = CountLensError(f"{path} is truncated ({size} bytes): copy or train it again")
    if len(text) < length:
        raise truncated
    try:
        header = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        metadata = msgspec.json.decode(header.pop("__metadata__", b"{}"), type=dict[str, str])
        end = max((msgspec.json.decode(entry, type=_Tensor).data_offsets[1] for entry in header.values()), default=0)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise foreign from error
    if size < 8 + length + end:
        raise truncated
    if size > 8 + length + end:
        raise CountLensError(
            f"{path} is damaged: it has {size - 8 - length - end} bytes too many. Copy or train it again"
        )
    return metadata
