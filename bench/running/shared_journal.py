"""Servers over one journal in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg

from bench.running.servers import Server, running_tuskpoint
from bench.setting import Setting


@contextmanager
def sharing_servers(
    setting: Setting, count: int, blobs: Path, *, timed: bool = False
) -> Iterator[list[Server]]:
    """Run servers over the new database `tuskpoint` of the run's PostgreSQL; the first leads.

    Args:
        setting: The run.
        count: Number of servers.
        blobs: The directory of their blob store.
        timed: Whether the servers report the times of their threads.
    """
    with psycopg.connect(setting.postgres, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS tuskpoint")
        connection.execute("CREATE DATABASE tuskpoint TEMPLATE template0 ENCODING 'UTF8'")
    conninfo = psycopg.conninfo.conninfo_to_dict(setting.postgres)
    user, host = (quote(str(conninfo.get(part, "")), safe="") for part in ("user", "host"))
    settings = {
        "TUSKPOINT_JOURNAL": f"postgresql://{user}@/tuskpoint?host={host}",
        "TUSKPOINT_BLOB_DIR": str(blobs),
    }
    with ExitStack() as stack:
        yield [
            stack.enter_context(running_tuskpoint(setting.place("server"), settings, timed=timed))
            for _ in range(count)
        ]
