"""The border: what comes in is of the right type, in range and of a sane size, or the error says what is allowed."""

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from models.border import (
    AS_FLAG,
    build,
    check_arguments,
    check_fields,
    check_options,
    convert,
    decode_json,
    open_regular,
    read_text,
)
from models.errors import CountLensError, unknown

Size = Annotated[int, Meta(ge=1, le=8)]


@dataclass(frozen=True)
class Inner:
    share: Annotated[float, Meta(ge=0, lt=1)] = 0.5
    mode: Literal["up", "down"] | None = None


@dataclass(frozen=True)
class Outer:
    size: Size
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("value", "hint", "message"),
    [
        (9, Size, "size=9: must be at least 1 and at most 8"),
        (0, Size | None, "size=0: must be at least 1 and at most 8"),
        ("x", Size | None, "size='x': must be int"),
        (True, Size, "size=True: must be int"),
        (2.0, Size, r"size=2\.0: must be int"),
        (None, Size, "size=None: must be int"),
        (1, bool, "size=1: must be bool"),
        (float("nan"), float, "size=nan: must be finite"),
        (float("inf"), float, "size=inf: must be finite"),
        (float("nan"), Annotated[float, Meta(ge=0, lt=1)], "size=nan: must be at least 0 and below 1"),
        ("left", Literal["up", "down"] | None, "size='left': must be 'up' or 'down'"),
        (["up"], Literal["up", "down"], "must be 'up' or 'down'"),
        (None, dict[str, float], "size=None: must be dict"),
        ({"ind": None}, dict[str, float], "must be float at 'ind'"),
        ((1, 9), tuple[Size, ...], "must be at least 1 and at most 8 each"),
        pytest.param(10**5000, Size, "size=a very long int: must be at least 1", id="5001 digits"),
        pytest.param("a" * 10**6, Size, r"size='a{200}' \.\.\.: must be int", id="a million characters"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_what_is_allowed(value: object, hint: Any, message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        convert("size", value, hint)


def test_a_whole_number_is_a_float_too() -> None:
    converted = convert("lr", 5, float | None)
    assert converted == 5.0
    assert isinstance(converted, float)


def test_plain_values_become_a_dataclass() -> None:
    assert build(Outer, {"size": 3, "inner": {"share": 0, "mode": "up"}}, "it") == Outer(3, Inner(0.0, "up"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": 3, "colour": 1}, "it has no setting colour: it has inner, size"),
        ({"size": 3, "inner": {"\x1b[31m": 1}}, r"inner has no setting '\\x1b\[31m'"),
        ({}, "it lacks the setting size"),
        ({"size": 9}, "size = 9: must be at least 1 and at most 8"),
        ({"size": 3, "inner": {"share": 1.0}}, r"share = 1\.0: must be at least 0 and below 1"),
        ({"size": 3, "inner": 7}, "inner must be an object with named values, not 7"),
        ([1, 2], r"it must be an object with named values, not \[1, 2\]"),
        (None, "it must be an object"),
    ],
)
def test_values_that_make_no_dataclass_are_refused(values: object, message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        build(Outer, values, "it")


def test_a_nested_field_out_of_range_is_found() -> None:
    check_fields(Outer(3))
    with pytest.raises(CountLensError, match=r"share=2\.0: must be at least 0 and below 1"):
        check_fields(Outer(3, Inner(2.0)))


def test_arguments_are_named_as_the_flag_that_was_typed() -> None:
    def command(max_size: Size = 1, name: Path | None = None) -> None: ...

    check_arguments(command, {"max_size": 8, "name": Path("x")})
    with pytest.raises(CountLensError, match="--max-size 9: must be at least 1"):
        check_arguments(command, {"max_size": 9})
    with pytest.raises(CountLensError, match="--max-size 9: "):
        convert("max-size", 9, Size, AS_FLAG)
    check_options(Outer(3))
    with pytest.raises(CountLensError, match=r"--share 2\.0: must be at least 0 and below 1"):
        check_options(Outer(3, Inner(2.0)))


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", "1e999", b"\xff", "[" * 100_000, '{"a":' * 100_000, "1" * 5000],
    ids=["empty", "half", "NaN", "infinite", "no UTF-8", "deep lists", "deep objects", "5000 digits"],
)
def test_texts_that_are_no_json_are_refused(text: str | bytes) -> None:
    with pytest.raises(CountLensError, match="the text cannot be read"):
        decode_json(text, "the text")


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_pipes_and_devices_are_refused_at_once(pipe: Path) -> None:
    reasons: list[str] = []

    def read_all() -> None:
        for path in (pipe, Path("/dev/zero"), Path("/dev/null")):
            try:
                read_text(path, 100)
            except CountLensError as error:
                reasons.append(str(error))

    thread = threading.Thread(target=read_all, daemon=True)
    thread.start()
    thread.join(timeout=20)
    assert not thread.is_alive(), "reading waits for a pipe or device"
    assert len(reasons) == 3
    assert all("not a regular file" in reason for reason in reasons)


def test_files_are_read_up_to_their_limit(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("é" * 50)
    assert read_text(path, 100) == "é" * 50
    with pytest.raises(CountLensError, match="has 100 bytes, more than the 99"):
        read_text(path, 99)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(CountLensError, match="Is a directory"):
        read_text(tmp_path, 10)
    with pytest.raises(CountLensError, match="none: No such file"):
        read_text(tmp_path / "none", 10)
    (tmp_path / "bytes").write_bytes(b"abc\xff")
    with pytest.raises(CountLensError, match=r"not UTF-8 text \(byte 3\)"):
        read_text(tmp_path / "bytes", 10)
    with pytest.raises(CountLensError, match="null byte"), open_regular(Path("a\0b")):
        pass


def test_unknown_names_may_be_anything() -> None:
    assert str(unknown("task", 10, ["mod10"])) == "unknown task 10: All: mod10"
    assert "unknown task ['a']" in str(unknown("task", ["a"], ["mod10"]))
    assert len(str(unknown("task", "mod10" * 10**6, ["mod10"]))) < 400
    assert "\x1b" not in str(unknown("task", "\x1b[31m", ["mod10"]))
