"""A call that can run and print itself, so that the code under a picture is the code that drew it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True)
class Given:
    """A value that exists before the first call, and the code that gives the same value in a notebook."""

    name: str  # in the code
    value: Any
    code: str  # what stands behind `name =`
    imports: tuple[str, ...] = ()


class Call(Generic[R]):
    """A function with its arguments: plain values, given ones, or other calls, which stand for their values."""

    def __init__(self, function: Callable[..., R], *arguments: Any, **named: Any) -> None:
        if "<" in function.__qualname__:
            raise TypeError(f"{function.__qualname__} has no name of its own: define it in a module")
        self.function, self.arguments, self.named = function, arguments, named

    @cached_property
    def value(self) -> R:
        """What the function returns. It is called once."""
        return self.bound()()

    def bound(self) -> Callable[[], R]:
        """The function with the values of its arguments."""
        values = [_value(argument) for argument in self.arguments]
        named = {name: _value(argument) for name, argument in self.named.items()}
        return lambda: self.function(*values, **named)

    def code(self, name: str) -> str:
        """Python that gives the value this name, imports first."""
        imports: set[str] = set()
        lines: dict[str, str] = {}
        self._write(name, imports, lines)
        return "\n".join([*sorted(imports), "", *(f"{name} = {code}" for name, code in lines.items())])

    def _write(self, name: str, imports: set[str], lines: dict[str, str]) -> None:
        """Adds what the call imports, and the lines that lead to its value by their names."""

        several = sum(isinstance(argument, Call) for argument in (*self.arguments, *self.named.values())) > 1

        def write(argument: Any) -> str:
            if isinstance(argument, Call):
                if several:  # each would be called `result`
                    return argument._expression(imports)
                argument._write("result", imports, lines)
                return "result"
            if isinstance(argument, Given):
                imports.update(argument.imports)
                lines[argument.name] = argument.code
                return argument.name
            imports.update(_import(kind) for kind in _dataclasses_in(argument))
            return repr(argument)

        arguments = [*map(write, self.arguments), *(f"{key}={write(value)}" for key, value in self.named.items())]
        imports.add(_import(self.function))
        lines[name] = f"{self.function.__name__}({', '.join(arguments)})"

    def _expression(self, imports: set[str]) -> str:
        """The call in one piece of code, without names for what it is given."""

        def write(argument: Any) -> str:
            if isinstance(argument, Call):
                return argument._expression(imports)
            if isinstance(argument, Given):
                imports.update(argument.imports)
                return argument.code
            imports.update(_import(kind) for kind in _dataclasses_in(argument))
            return repr(argument)

        arguments = [*map(write, self.arguments), *(f"{key}={write(value)}" for key, value in self.named.items())]
        imports.add(_import(self.function))
        return f"{self.function.__name__}({', '.join(arguments)})"


def _value(argument: Any) -> Any:
    return argument.value if isinstance(argument, Call | Given) else argument


def _import(thing: Callable[..., Any]) -> str:
    return f"from {thing.__module__} import {thing.__name__}"


def _dataclasses_in(argument: Any) -> Iterator[type]:
    """The classes that an argument's repr names."""
    if isinstance(argument, tuple | list):
        for item in argument:
            yield from _dataclasses_in(item)
    elif is_dataclass(argument):
        yield type(argument)
