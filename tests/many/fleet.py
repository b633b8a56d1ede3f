"""Server processes that share a journal in PostgreSQL and a blob directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from bench.running.postgres import Cluster, LeftOutError, running_cluster
from tests.kit.databases import url_of
from tests.kit.servers.processes import FLUSH_OFTEN, ServerProcess

SERVERS = int(os.environ.get("TUSKPOINT_SERVERS", "3"))
LEASE_SECONDS = 2.0
_CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE application_name = 'tuskpoint-server'"
)


class Fleet:
    """Servers, each with its own data directory and port.

    Attributes:
        cluster: The PostgreSQL with their journal.
        servers: The servers; all run.
        blobs: The blob directory.
    """

    def __init__(self, cluster: Cluster, servers: list[ServerProcess], blobs: Path) -> None:
        self.cluster = cluster
        self.servers = servers
        self.blobs = blobs

    @property
    def targets(self) -> list[str]:
        """Addresses of the servers."""
        return [server.target for server in self.servers]

    def others(self, server: ServerProcess) -> list[str]:
        """Return the addresses of the other servers."""
        return [other.target for other in self.servers if other is not server]

    def incidents(self) -> list[str]:
        """Return the defects in the servers' logs."""
        logs = [server.log.read_text(encoding="utf-8") for server in self.servers]
        return [line for log in logs for line in log.splitlines() if " incident " in line]

    def cut(self) -> None:
        """Cut all connections between the servers and PostgreSQL."""
        with psycopg.connect(self.cluster.dsn, autocommit=True) as connection:
            connection.execute(_CUT)


@contextmanager
def running_fleet(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[Fleet]:
    """Run a PostgreSQL and `SERVERS` servers over it, with `more` settings; the first one leads.

    The test is skipped if the machine has no PostgreSQL.
    """
    with ExitStack() as running:
        try:
            # A crash of PostgreSQL alone loses nothing that it wrote to a file, so fsync is not
            # needed.
            cluster = running.enter_context(running_cluster("fsync=off", "full_page_writes=off"))
        except LeftOutError as reason:
            pytest.skip(str(reason))
        settings = {
            **FLUSH_OFTEN,
            "TUSKPOINT_JOURNAL": url_of(cluster.dsn),
            "TUSKPOINT_BLOB_DIR": str(folder / "blobs"),
            "TUSKPOINT_LEASE_SECONDS": str(LEASE_SECONDS),
            **(more or {}),
        }
        servers = [
            running.enter_context(ServerProcess(folder / f"server-{number}", settings))
            for number in range(SERVERS)
        ]
        for server in servers:
            server.start()
        yield Fleet(cluster, servers, folder / "blobs")
