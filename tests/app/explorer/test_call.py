"""Calls that print themselves: the code runs, and gives what the call gives."""

from fractions import Fraction

import pytest

from app.explorer.call import Call, Given
from probes.sites import Site, all_heads

GIVEN = Given("half", Fraction(1, 2), "Fraction(1, 2)", ("from fractions import Fraction",))


def run(code: str, name: str) -> object:
    names: dict[str, object] = {}
    exec(code, names)
    return names[name]


def doubled(value: Fraction, times: int = 1) -> Fraction:
    CALLS.append(times)
    return value * 2**times


CALLS: list[int] = []


def test_the_code_gives_what_the_call_gives() -> None:
    call = Call(max, Call(pow, GIVEN, 3), Fraction(1, 9))
    assert call.value == Fraction(1, 8)
    assert call.code("largest").endswith(
        "half = Fraction(1, 2)\nresult = pow(half, 3)\nlargest = max(result, Fraction(1, 9))"
    )
    assert run(call.code("largest"), "largest") == call.value


def test_classes_of_arguments_are_imported_too() -> None:
    call = Call(all_heads, (Site("q", 1, 3), Site("z", 0)))
    assert run(call.code("sites"), "sites") == call.value == [Site("q", 1), Site("z", 0)]


def test_a_function_is_called_once() -> None:
    CALLS.clear()
    call = Call(doubled, GIVEN, times=3)
    assert call.value == call.value == 4
    assert CALLS == [3]
    assert call.code("x").endswith("x = doubled(half, times=3)")


def test_what_has_no_name_cannot_be_printed() -> None:
    with pytest.raises(TypeError, match="define it in a module"):
        Call(lambda: 1)


def test_several_inner_calls_are_written_in_one_piece() -> None:
    first = Call(divmod_of, Given("counter", 7, "load(7)", ("from x import load",)), 2)
    second = Call(divmod_of, Given("counter", 9, "load(9)", ("from x import load",)), 2)
    call = Call(total_of, first, second)
    assert call.value == 3 + 4
    assert "value = total_of(divmod_of(load(7), 2), divmod_of(load(9), 2))" in call.code("value")
    assert call.code("value").count("from x import load") == 1


def divmod_of(number: int, by: int) -> int:
    return number // by


def total_of(*numbers: int) -> int:
    return sum(numbers)
