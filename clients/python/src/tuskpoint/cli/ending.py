"""End of a run: errors on one line, closed pipes, Ctrl-C."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO

import typer

from ..errors import TuskPointError
from .exits import HINTS, STATUS_HINTS, CommandError, Exit, exit_of
from .printing.output import Output
from .printing.words import plain
from .session import Settings

TRACEBACK_VARIABLE = "TUSKPOINT_TRACEBACK"
_JSON = "--json"


def end(run: Callable[[Sequence[str]], Any], arguments: Sequence[str] | None) -> NoReturn:
    """Run a command line, and exit with its exit code.

    Args:
        run: Runs the command line; returns an exit code or nothing.
        arguments: The command line. Default: the arguments of the process.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks is shown as an escape, not refused.
        getattr(stream, "reconfigure", _nothing)(errors="backslashreplace")
    settings = Settings(is_json=_JSON in words)
    try:
        code = int(Exit.OK)
        with ending(settings):
            code = run([_decoded(word) for word in words]) or code
            sys.stdout.flush()
    except typer.Exit as done:
        code = done.exit_code
    except BrokenPipeError:  # the closed pipe is stderr, during the output of an error
        code = _pipe_closed()
    except SystemExit as done:
        # Click and rich, which print help and the version, exit with 1.
        if not isinstance(done.__context__, BrokenPipeError):
            raise
        code = _pipe_closed()
    sys.exit(code)


def _decoded(argument: str) -> str:
    """Return an argument as Unicode, even in an ASCII locale.

    Raises:
        CommandError: The argument is not UTF-8.
    """
    try:
        return os.fsencode(argument).decode()
    except UnicodeError:
        raise CommandError(
            Exit.USAGE, f"the argument {argument!a} is not UTF-8", "type it again in UTF-8"
        ) from None


def _nothing(**_: str) -> None:
    """Replace a method that a stream in a test may lack."""


@contextmanager
def ending(settings: Settings) -> Iterator[None]:
    """Turn the exception that ends a command into an exit code and a line on stderr.

    Raises:
        typer.Exit: The block raised; the exception has the exit code.
    """
    try:
        yield
    except BrokenPipeError:
        raise typer.Exit(_pipe_closed()) from None
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    except typer.Exit:
        raise
    except Exception as error:  # noqa: BLE001 - every error gets a line and a code
        if _is_full(error):
            _forget(sys.stdout)
        code = _print_error(
            error, Output(is_json=settings.is_json, is_colored=not settings.no_color)
        )
        raise typer.Exit(code) from None


def _pipe_closed() -> Exit:
    """Return the exit code for a closed reader, and write nothing more."""
    _forget(sys.stdout)
    _forget(sys.stderr)
    return Exit.CLOSED_PIPE


def _forget(stream: TextIO) -> None:
    """Discard a stream, so that Python's flush at the end raises no further error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _is_full(error: Exception) -> bool:
    """Return whether writing to stdout failed. An error of stdout has no file name."""
    return isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None


def _print_error(error: Exception, output: Output) -> Exit:
    """Print an error on one line of stderr; return its exit code."""
    shape = _shape(error)
    if os.environ.get(TRACEBACK_VARIABLE):
        traceback.print_exception(error, file=sys.stderr)
    if output.is_json:
        sys.stderr.write(json.dumps({"error": shape}) + "\n")
        return Exit(shape["exit_code"])
    text = plain(shape["message"]).rstrip(". ")
    if shape["hint"]:
        text = f"{text}: {shape['hint']}"
    line = output.styled("error: ", "bold red")
    output.put(line.append(text), console=output.stderr)
    return Exit(shape["exit_code"])


def _shape(error: Exception) -> dict[str, Any]:
    """Return an error as a JSON object for `--json`."""
    report: dict[str, Any] = {
        "message": str(error),
        "hint": "",
        "status": "",
        "reason": "",
        "metadata": {},
        "violations": [],
        "retry_after_s": None,
    }
    if isinstance(error, TuskPointError):
        code = exit_of(error)
        report.update(
            message=error.message,
            hint=HINTS.get(error.reason) or STATUS_HINTS.get(error.status, ""),
            status=error.status,
            reason=error.reason,
            metadata=error.metadata,
            violations=[
                {"field": field, "problem": problem}
                for field, problem in getattr(error, "violations", ())
            ],
            retry_after_s=error.retry_after_s,
        )
    elif isinstance(error, CommandError):
        code = error.code
        report.update(message=error.message, hint=error.hint)
    elif isinstance(error, typer.TyperException):
        code = Exit.USAGE
        report.update(message=error.format_message(), hint=_help_hint(error))
    elif isinstance(error, OSError) and error.filename is not None:
        code = Exit.USAGE
        report.update(
            message=f"'{error.filename}' cannot be used: {error.strerror or error}",
            hint="name another file, or change its permissions",
        )
    elif _is_full(error):
        code = Exit.USAGE
        report.update(
            message=f"the output cannot be written: {os.strerror(errno.ENOSPC)}",
            hint="free space, or write to another disk; what the command changed stays",
        )
    else:
        code = Exit.DEFECT
        report.update(
            message=f"a bug in this program: {type(error).__name__}: {error}",
            hint=f"run it with {TRACEBACK_VARIABLE}=1, and report what it prints",
        )
    return {"kind": code.name.lower(), "exit_code": int(code), **report}


def _help_hint(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    see = f"see `{context.command_path if context else 'tuskpoint'} --help`"
    if type(error).__name__ == "NoSuchOption":  # typer has no public name for this class
        return f"{see}; put -- before a name that begins with a dash"
    return see
