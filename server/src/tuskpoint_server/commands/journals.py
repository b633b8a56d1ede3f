"""Opens the journals that commands copy, back up or restore, and reports on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from ..core import process
from ..journal.moving.copying import UnequalError
from ..journal.moving.restoring import DamagedError, Summary
from ..journal.sql.backend import Backend
from ..journal.sql.journal_metadata import backend_of
from .stopped import say

Place = Path | str
"""A journal: a file of SQLite, or a URL of PostgreSQL."""


_P = TypeVar("_P", bound=Place)


_LINES = 100  # lines about single values


def existing_place(place: _P) -> _P:
    """Return a journal's place; end the command if the file does not exist."""
    if isinstance(place, Path) and not place.exists():
        raise process.StartError(process.EXIT_JOURNAL, f"there is no {place}")
    return place


def open_backend(place: Place) -> Backend:
    """Return the database at a place; end the command if its driver is not installed."""
    try:
        return backend_of(place)
    except ImportError as error:
        raise process.ConfigError(
            f"a journal in PostgreSQL needs {error.name}, which is not installed; pip install "
            "'tuskpoint-server[postgres]'"
        ) from None


@contextmanager
def end_on_failure(nothing: str, *backends: Backend) -> Iterator[None]:
    """End the command with one line, which starts with `nothing`, if a journal cannot be used."""
    try:
        yield
    except (UnequalError, DamagedError) as error:
        raise process.StartError(process.EXIT_DAMAGED, f"{nothing}: {error}") from error
    except RuntimeError as error:
        raise process.StartError(process.EXIT_JOURNAL, f"{nothing}: {error}") from error
    except Exception as error:
        problem = next(filter(None, (backend.storage_problem(error) for backend in backends)), None)
        if problem is None:
            raise
        raise process.StartError(process.EXIT_JOURNAL, f"{nothing}: {problem}") from error


def report_damaged(lines: Sequence[str]) -> int:
    """Print the values of a complete copy that were damaged before, and return the exit code."""
    for line in lines[:_LINES]:
        say(line)
    if len(lines) > _LINES:
        say(f"{len(lines) - _LINES} more values are damaged")
    if not lines:
        return 0
    say(
        f"damaged values: {len(lines)}; a server repairs those that are certified when it reads "
        "them, and refuses the others"
    )
    return process.EXIT_DAMAGED


def summary_text(made: Summary) -> str:
    """Return the content of a journal in words."""
    return f"{made.threads} threads, {made.checkpoints} checkpoints, generation {made.generation}"
