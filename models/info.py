"""What a checkpoint file says of itself: one JSON string in its metadata, readable without torch."""

import json
import struct
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from models.errors import CountLensError

METADATA_KEY = "countlens"
FORMAT_VERSION = 1
_MAX_HEADER = 100_000_000  # safetensors' own limit


@dataclass(frozen=True)
class CheckpointInfo:
    """Everything that is needed to rebuild a counter and to know where it comes from."""

    family: str  # key of FAMILIES
    model: dict[str, Any]  # fields of the family's config
    task: dict[str, Any] | None = None  # how the trainer rebuilds the task; opaque to this room
    policy: str | None = None  # position policy it was trained with
    seed: int | None = None
    step: int | None = None  # training step at which it was saved
    scores: dict[str, float] = field(default_factory=dict)  # percent: ind, ood, and aux where there is one
    training: dict[str, Any] = field(default_factory=dict)  # the whole training config
    transformer_lens: dict[str, Any] | None = None  # HookedTransformerConfig fields, where it loads there
    format_version: int = FORMAT_VERSION

    def to_metadata(self) -> dict[str, str]:
        """The safetensors metadata."""
        return {METADATA_KEY: json.dumps(asdict(self))}


def read_info(path: Path) -> CheckpointInfo:
    """The metadata of a checkpoint file, without reading a tensor."""
    return parse_info(path, _read_header(path).get("__metadata__", {}))


def parse_info(path: Path, metadata: dict[str, str]) -> CheckpointInfo:
    """The info in a file's metadata, or an error that says whose file it is instead."""
    if METADATA_KEY not in metadata:
        raise CountLensError(
            f"{path} is a safetensors file but no CountLens checkpoint: its metadata has no {METADATA_KEY!r}"
        )
    try:
        fields = json.loads(metadata[METADATA_KEY])
        version = fields["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise CountLensError(f"{path}: its {METADATA_KEY!r} metadata cannot be read ({error})") from error
    if version != FORMAT_VERSION:
        raise CountLensError(
            f"{path} has format version {version}, this CountLens reads {FORMAT_VERSION}: update CountLens"
        )
    try:
        return CheckpointInfo(**fields)
    except TypeError as error:
        raise CountLensError(f"{path}: its {METADATA_KEY!r} metadata does not fit ({error})") from error


def _read_header(path: Path) -> dict[str, Any]:
    """The JSON header of a safetensors file: 8 bytes of length, then that many bytes of JSON."""
    foreign = CountLensError(f"{path} is no safetensors file: CountLens reads only its own .safetensors checkpoints")
    try:
        with path.open("rb") as file:
            prefix = file.read(8)
            if len(prefix) < 8:
                raise CountLensError(f"{path} is truncated: {len(prefix)} bytes. Copy or train it again")
            (length,) = struct.unpack("<Q", prefix)
            if length > _MAX_HEADER:
                raise foreign
            text = file.read(length)
            size = path.stat().st_size
    except OSError as error:
        raise CountLensError(f"cannot read {path}: {error.strerror}") from error
    if len(text) < length and not text.startswith(b"{"):
        raise foreign
    truncated = CountLensError(f"{path} is truncated ({size} bytes): copy or train it again")
    if len(text) < length:
        raise truncated
    try:
        header: dict[str, Any] = json.loads(text)
        end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise foreign from error
    if size < 8 + length + end:
        raise truncated
    return header
