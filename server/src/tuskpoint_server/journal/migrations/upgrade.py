"""Brings a database to the newest layout."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

NEWEST = "0004"
"""Revision of the newest step."""

_VERSION_TABLE = "alembic_version"


def upgrade(connection: Connection) -> None:
    """Apply the steps that the database lacks, inside the open transaction.

    Raises:
        RuntimeError: The database is another program's, or was written by a newer server.
    """
    tables = inspect(connection).get_table_names()
    if tables and _VERSION_TABLE not in tables:
        raise RuntimeError("it is a database of another program")
    if tables and _revision(connection) == NEWEST:
        return
    _apply(connection)


def _revision(connection: Connection) -> str | None:
    found: str | None = connection.execute(
        text(f"SELECT version_num FROM {_VERSION_TABLE}")  # noqa: S608 - a constant
    ).scalar()
    return found


def _apply(connection: Connection) -> None:
    # Loaded where it is needed: a server that finds its database as it left it starts sooner.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise RuntimeError(
            f"it has a layout that this server does not know, only a newer one ({error})"
        ) from error
