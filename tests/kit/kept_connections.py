"""Connections to PostgreSQL that outlive the journal that opened them.

For a new connection, PostgreSQL starts a process that reads the catalogs and plans each
statement, which takes longer than most tests.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from unittest.mock import patch

import psycopg
from psycopg.pq import TransactionStatus

from tuskpoint_server.journal.sql import postgres
from tuskpoint_server.journal.sql.pipelined import PipelinedConnection
from tuskpoint_server.journal.sql.pulse import PROBE_S

_AS_NEW = ("SELECT pg_advisory_unlock_all()", "UNLISTEN *", "RESET ALL")
_MOST = 40
"""Most idle connections, of the 100 connections that PostgreSQL accepts."""


class KeptConnections:
    """Idle connections, by URL; `close` closes all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[str, list[KeptConnection]] = {}
        self._is_closed = False

    def connect(self, url: str, timeout_s: float = PROBE_S) -> PipelinedConnection:
        """Connect like `postgres.connect`, with an idle connection if there is one."""
        while (idle := self._take(url)) is not None:
            if not idle.is_lost():
                return idle
            idle.kept_by = None
            idle.close()
        new = _connect(url, timeout_s)
        if isinstance(new, KeptConnection):
            new.kept_by, new.url = self, url
        return new

    def keep(self, connection: KeptConnection) -> bool:
        """Keep a connection, and return whether there was room for the connection."""
        with self._lock:
            room = not self._is_closed and sum(map(len, self._idle.values())) < _MOST
            if room:
                self._idle.setdefault(connection.url, []).append(connection)
            return room

    def close(self) -> None:
        """Close the idle connections; a journal closes the connections that it uses."""
        with self._lock:
            self._is_closed = True
            connections = list(chain.from_iterable(self._idle.values()))
            self._idle.clear()
        for connection in connections:
            connection.kept_by = None
            connection.close()

    def _take(self, url: str) -> KeptConnection | None:
        with self._lock:
            idle = self._idle.get(url)
            return idle.pop() if idle else None


class KeptConnection(PipelinedConnection):
    """A connection that is reset and kept when its user closes it."""

    kept_by: KeptConnections | None = None
    url = ""

    def close(self) -> None:
        # A reset without an answer closes the connection from inside.
        kept_by, self.kept_by = self.kept_by, None
        if kept_by is None or self.closed or not self._is_reset():
            super().close()
            return
        self.on_silence, self.session, self.in_doubt = None, 0, False
        self.kept_by = kept_by
        if not kept_by.keep(self):
            self.kept_by = None
            super().close()

    def is_lost(self) -> bool:
        """Whether the server ended the connection: it sends nothing else to an idle connection."""
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return bool(poll.poll(0))

    def _is_reset(self) -> bool:
        active = self.info.transaction_status == TransactionStatus.ACTIVE
        if active and not self._unanswered:
            return False  # the user stopped in the middle of the answers
        try:
            self.rollback()
            for statement in _AS_NEW:
                self.execute(statement)
            self.receive()
        except psycopg.Error:
            return False
        return self.info.transaction_status == TransactionStatus.IDLE


_connect = postgres.connect


@contextmanager
def kept_connections() -> Iterator[None]:
    """Keep connections inside the context."""
    kept = KeptConnections()
    with (
        patch.object(postgres, "PipelinedConnection", KeptConnection),
        patch.object(postgres, "connect", kept.connect),
    ):
        try:
            yield
        finally:
            kept.close()
