"""Whether PostgreSQL answers: a connection that waits for a statement cannot tell by itself.

A server that is stopped, or a proxy that swallows bytes, accepts connections and answers nothing. A
statement that takes long looks the same from here. So a connection without an answer for some
seconds asks on another one what the server says of its session. While PostgreSQL does not answer,
new connections are refused at once, so that no call waits for its turn to find out; a thread looks
whether it answers again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing

import psycopg

from .pipelined import PipelinedConnection

SILENCE_S = 5
"""Seconds without an answer after which a connection asks on another one."""
PROBE_S = 4
"""Seconds that this may take; also those of opening a connection."""

_PAUSE_S = 0.5  # between two looks whether PostgreSQL answers again
_STATE = "SELECT state FROM pg_stat_activity WHERE pid = $1"
_LOST = "the session of this connection does not answer"

Connect = Callable[[], PipelinedConnection]


class Pulse:
    """What the connections of one database know of its server.

    Args:
        connect: Opens a connection, within about `PROBE_S` seconds.

    Attributes:
        problem: Why PostgreSQL cannot be used now, for people; empty while it answers.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._asking = threading.Lock()
        self._hanging = False  # a connection took too long to open: none is tried meanwhile
        self._silent = False  # nor does it answer on connections that are open
        self._stopped = threading.Event()
        self._changing = threading.Lock()
        self._reviving = False
        self.problem = ""

    def connect(self) -> PipelinedConnection:
        """Open a connection that notices when PostgreSQL no longer answers.

        Raises:
            psycopg.OperationalError: It cannot be opened, or could not be a moment ago.
        """
        if self._hanging:
            raise psycopg.OperationalError(self.problem)
        began_s = time.monotonic()
        try:
            connection = self._connect()
        except psycopg.OperationalError as error:
            # Connections that are open may still work.
            self._down(error, hanging=time.monotonic() - began_s > PROBE_S / 2)
            raise
        connection.on_silence = lambda seconds: self._silence(connection, seconds)
        return connection

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()

    def _silence(self, connection: PipelinedConnection, seconds: int) -> None:
        """Give a connection up if PostgreSQL, or its session there, does not answer."""
        if self._silent:
            raise psycopg.OperationalError(self.problem)
        if seconds % SILENCE_S == 0:
            connection.in_doubt = not self._is_at_work(connection.session)
        elif connection.in_doubt:  # its answer had one second more to arrive
            raise psycopg.OperationalError(_LOST)

    def _is_at_work(self, session: int) -> bool:
        """Return whether the server says that a session executes a statement.

        Raises:
            psycopg.OperationalError: The server does not answer.
        """
        with self._asking:
            if self._silent:
                raise psycopg.OperationalError(self.problem)
            try:
                with closing(self._connect()) as connection:
                    connection.on_silence = patience(PROBE_S)
                    row = connection.execute(_STATE, (session,)).fetchone()
            except psycopg.OperationalError as error:
                self._down(error, hanging=True, silent=True)
                raise
        # Without the right to see the state there is none.
        return row is not None and (row[0] is None or not row[0].startswith("idle"))

    def _down(
        self, error: psycopg.OperationalError, *, hanging: bool, silent: bool = False
    ) -> None:
        """Remember that PostgreSQL cannot be used, and look until it can."""
        text = str(error).partition("\n")[0]
        with self._changing:
            self.problem = f"it does not answer: {text}" if hanging else text
            self._hanging, self._silent = hanging, silent
            if not self._reviving:
                self._reviving = True
                threading.Thread(target=self._revive, name="journal-pulse", daemon=True).start()

    def _revive(self) -> None:
        while not self._stopped.wait(_PAUSE_S):
            try:
                with closing(self._connect()) as connection:
                    connection.on_silence = patience(PROBE_S)
                    connection.execute("SELECT 1").fetchone()
            except psycopg.OperationalError:
                continue
            with self._changing:
                self._hanging = self._silent = self._reviving = False
                self.problem = ""
            return


def patience(most_s: int) -> Callable[[int], None]:
    """Return what gives a connection up after so many seconds without an answer."""

    def on_silence(seconds: int) -> None:
        if seconds >= most_s:
            raise psycopg.OperationalError(f"no answer in {most_s} s")

    return on_silence
