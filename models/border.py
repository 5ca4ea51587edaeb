"""Where values from outside come in: files, JSON, configs, the command line. Everything is checked here once.

Types and ranges stand at the fields (`models.ranges`, as `Annotated[int, msgspec.Meta(ge=1, le=256)]`). This module
checks values against them, and says what was received and what is allowed. What is behind it can be trusted.
"""

import math
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, BinaryIO, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from models.errors import CountLensError, shown

T = TypeVar("T")
# How a setting is written where it comes from.
IN_PYTHON, IN_FILE, AS_FLAG = "{}={}", "{} = {}", "--{} {}"
MAX_TOML = 2**18  # bytes
MAX_DOTS = 1000  # in a line of TOML


def convert(name: str, value: Any, hint: Any, style: str = IN_PYTHON, as_text: bool = False) -> Any:
    """The value, if the hint allows it. A whole number is a float too; nothing else changes its type.

    `as_text`: numbers and truth values come as text, as in a CSV file.
    """
    try:
        converted = msgspec.convert(value, hint, strict=not as_text)
    except (msgspec.ValidationError, RecursionError) as error:
        label = style.format(name, shown(value))
        raise CountLensError(f"{label}: must be {_requirement(hint, value)}") from error
    numbers = converted if isinstance(converted, tuple) else (converted,)
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        raise CountLensError(f"{style.format(name, value)}: must be finite")
    return converted


def build(cls: type[T], values: object, what: str, style: str = IN_FILE) -> T:
    """An instance of a dataclass from the plain values of a file; `what` names it in errors."""
    if not isinstance(values, Mapping):
        raise CountLensError(f"{what} must be an object with named values, not {shown(values)}")
    hints = field_hints(cls)  # type: ignore[arg-type]
    for key in values:
        if key not in hints:
            name = key if isinstance(key, str) and key.isidentifier() else shown(key)
            raise CountLensError(f"{what} has no setting {name}: it has {', '.join(sorted(hints))}")
    for field in fields(cls):  # type: ignore[arg-type]
        if field.name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise CountLensError(f"{what} lacks the setting {field.name}")
    arguments = {
        name: build(hints[name], value, name, style)
        if is_dataclass(hints[name])
        else convert(name, value, hints[name], style)
        for name, value in values.items()
    }
    return cls(**arguments)


def check_fields(config: Any) -> None:
    """Refuses a dataclass of which a field, or a field of a nested one, has a wrong type or is out of range."""
    for name, hint in field_hints(type(config)).items():  # type: ignore[arg-type]
        value = getattr(config, name)
        if is_dataclass(value):
            check_fields(value)
        else:
            convert(name, value, hint)


def check_arguments(annotated: Any, arguments: Mapping[str, Any]) -> None:
    """Refuses arguments from the command line that are outside of a range in the annotations of a function or class."""
    for name, hint in get_type_hints(annotated, include_extras=True).items():
        if name in arguments and _has_range(hint):
            convert(name.replace("_", "-"), arguments[name], hint, AS_FLAG)


def check_options(options: Any) -> None:
    """Refuses a dataclass from the command line of which a field, or a field of a nested one, is out of range."""
    check_arguments(type(options), vars(options))
    for value in vars(options).values():
        if is_dataclass(value):
            check_options(value)


@cache
def field_hints(cls: type) -> dict[str, Any]:
    """The annotations of a dataclass's fields, with their ranges."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls)}


def decode_json(text: str | bytes, what: str) -> Any:
    """The values of a JSON text. NaN, infinities and deep nesting are refused."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CountLensError(f"{what} cannot be read ({error})") from error


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file. Deep nesting and very long dotted keys are refused."""
    text = read_text(path, MAX_TOML)
    # The parser's time grows with the square of the parts of a dotted key: 16,000 take four seconds.
    if any(line.count(".") > MAX_DOTS for line in text.splitlines()):
        raise CountLensError(f"cannot read {path}: a line has more than {MAX_DOTS} dots")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise CountLensError(f"cannot read {path}: it is no TOML file ({error})") from error


def read_text(path: Path, max_bytes: int) -> str:
    """The text of a regular file that is not larger than this."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise CountLensError(f"{path} has {size} bytes, more than the {max_bytes} that such a file may have")
        content = file.read(size)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CountLensError(f"cannot read {path}: it is no text in UTF-8 (byte {error.start})") from error


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """A regular file to read. Pipes and devices are refused: they would block, or never end."""
    try:
        # Without O_NONBLOCK, opening a named pipe waits for somebody who writes to it.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise CountLensError(f"cannot read {path}: it is no regular file but a pipe or a device")
            yield file
    except (OSError, ValueError) as error:
        if isinstance(error, CountLensError):
            raise
        raise CountLensError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _requirement(hint: Any, value: Any) -> str:
    """What a hint allows, in words that fit the value: its range if the type is right, else the type.

    >>> _requirement(Annotated[int, msgspec.Meta(ge=1, le=8)] | None, 9)
    'at least 1 and at most 8'
    >>> _requirement(Annotated[int, msgspec.Meta(ge=1, le=8)] | None, "nine")
    'int'
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_requirement(part, value) for part in parts if part is not NoneType)
    if origin is Literal:
        return " or ".join(repr(part) for part in parts)
    if origin is Annotated:
        kind, *notes = parts
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = isinstance(value, str) if kind is str else is_number and (kind is float or isinstance(value, int))
        ranges = [_range(note) for note in notes if isinstance(note, msgspec.Meta)]
        return " and ".join(ranges) if fits and ranges else _requirement(kind, value)
    if origin is tuple or origin is list:
        wrong = [item for item in value if not _allows(parts[0], item)] if isinstance(value, list | tuple) else []
        return f"{_requirement(parts[0], wrong[0])} each" if wrong else origin.__name__
    if origin is dict and isinstance(value, dict):
        wrong = [key for key, item in value.items() if not _allows(parts[1], item)]
        return f"{_requirement(parts[1], value[wrong[0]])} at {shown(wrong[0])}" if wrong else "named values"
    return getattr(hint, "__name__", str(hint))


def _range(meta: msgspec.Meta) -> str:
    words = {
        "at least {:,}": meta.ge,
        "above {:,}": meta.gt,
        "at most {:,}": meta.le,
        "below {:,}": meta.lt,
        "at least {:,} characters": meta.min_length,
        "at most {:,} characters": meta.max_length,
    }
    return " and ".join(text.format(bound) for text, bound in words.items() if bound is not None)


def _allows(hint: Any, value: Any) -> bool:
    try:
        msgspec.convert(value, hint)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def _has_range(hint: Any) -> bool:
    return any(isinstance(part, msgspec.Meta) or _has_range(part) for part in get_args(hint))
