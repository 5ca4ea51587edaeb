"""The command line: `countlens COMMAND --help` teaches each."""

import sys
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import tyro

from app.escape import say
from app.signatures import COMMANDS
from models.border import check_arguments
from models.errors import CountLensError, shown

DESCRIPTION = "Train small language models to count, and see how they do it."


def overview() -> str:
    """The help of `countlens` itself: one line per command."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: countlens COMMAND [OPTIONS]",
            "",
            DESCRIPTION,
            "",
            *lines,
            "",
            "countlens COMMAND --help teaches each.",
        ]
    )


def main(args: list[str] | None = None) -> None:
    """Runs a command. An error that the user can mend is one line on stderr and exit code 2."""
    arguments = sys.argv[1:] if args is None else args
    if arguments in ([], ["-h"], ["--help"]):
        print(overview())
        return
    try:
        _refuse_control_characters(arguments)
        tyro.extras.subcommand_cli_from_dict(
            {name: _with_checks(command) for name, command in COMMANDS.items()},
            prog="countlens",
            description=DESCRIPTION,
            args=args,
        )
    except CountLensError as error:
        sys.exit(_fail(str(error), 2))
    except KeyboardInterrupt:
        sys.exit(_fail("stopped; a training run goes on with: countlens train --resume RUN", 130))
    except BrokenPipeError:
        sys.stderr.close()
    except OSError as error:  # of a disk or a file, where no reader handles it
        path = "" if error.filename is None else f" at {error.filename}"
        reason = error.strerror or error
        sys.exit(_fail(f"the system refused a file operation{path}: {reason}. Mend that, then try again", 2))


def _with_checks(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with its numbers checked against the ranges in its signature before it runs."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        check_arguments(command, signature(command).bind(*args, **kwargs).arguments)
        command(*args, **kwargs)

    return run


def _refuse_control_characters(arguments: list[str]) -> None:
    """Refuses what a terminal would obey: the parser repeats arguments in its errors as they are."""
    for argument in arguments:
        if not argument.isprintable():
            raise CountLensError(
                f"the argument {shown(argument)} holds characters that cannot be printed: leave them out, "
                "or rename the file"
            )


def _fail(message: str, code: int) -> int:
    say(f"countlens: {message}", sys.stderr)
    return code
