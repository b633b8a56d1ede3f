"""Brings a database to the newest layout."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, inspect


def upgrade(connection: Connection) -> None:
    """Apply the steps that the database lacks, inside the open transaction.

    Raises:
        RuntimeError: The database is another program's, or was written by a newer server.
    """
    tables = inspect(connection).get_table_names()
    if tables and "alembic_version" not in tables:
        raise RuntimeError("it is a database of another program")
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
