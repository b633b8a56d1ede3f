"""Sources by name."""

from __future__ import annotations

import os
from pathlib import Path

from .lines import LinesSource
from .threads import Problem, Source

_VARIABLE = "env:"
_POSTGRES = ("postgresql://", "postgres://")
_REDIS = ("redis://", "rediss://", "unix://")
_SQLITE = b"SQLite format 3\0"


def open_source(name: str) -> Source:
    """Return the source with a name.

    Args:
        name: A file, the URL of a database, or `env:NAME`: the variable with the URL.

    Raises:
        ImportError: A library is missing.
        Problem: The source cannot be read.
        OSError: The file cannot be read.
    """
    if name.startswith(_VARIABLE):
        variable = name.removeprefix(_VARIABLE)
        name = os.environ.get(variable, "")
        if not name:
            raise Problem(f"the environment has no variable {variable}", "set it to a URL")
    if name.startswith(_POSTGRES):
        return _postgres(name)
    if name.startswith(_REDIS):
        return _redis(name)
    path = Path(name)
    with path.open("rb") as file:
        begins = file.read(len(_SQLITE)) if path.is_file() else b""
    if begins == _SQLITE:
        return _sqlite(path)
    if not begins.startswith(b"{"):
        raise Problem(
            f"'{path}' is neither a database of SQLite nor a file of threads",
            "name the file of SqliteSaver, or one that `tuskpoint export` wrote",
        )
    return LinesSource(path)


def _sqlite(path: Path) -> Source:
    try:
        import langgraph.checkpoint.sqlite  # noqa: F401 - the comparison needs it

        from .sqlite import SqliteSource
    except ImportError as error:
        raise _missing("SQLite", "import-sqlite", error) from error
    return SqliteSource(path)


def _postgres(url: str) -> Source:
    try:
        import langgraph.checkpoint.postgres  # noqa: F401 - the comparison needs it

        from .postgres import PostgresSource
    except ImportError as error:
        raise _missing("PostgreSQL", "import-postgres", error) from error
    return PostgresSource(url)


def _redis(url: str) -> Source:
    try:
        from .redis import RedisSource
    except ImportError as error:
        raise _missing("Redis", "import-redis", error) from error
    return RedisSource(url)


def _missing(database: str, extra: str, error: ImportError) -> ImportError:
    return ImportError(
        f"an import from {database} needs LangGraph's saver for it ({error}): "
        f"pip install 'tuskpoint[{extra}]'"
    )
