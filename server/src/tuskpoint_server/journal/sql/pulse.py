"""Detects whether PostgreSQL answers; a connection that waits for a statement cannot detect it.

A stopped server, or a proxy that swallows bytes, accepts connections and answers nothing. A
statement that takes long looks the same to the client. So a connection without an answer for some
seconds asks PostgreSQL on another connection about the state of its session. While PostgreSQL does
not answer, new connections are refused at once, so that no call waits for a timeout of its own. A
thread checks whether PostgreSQL answers again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing

import psycopg

from .pipelined import PipelinedConnection

SILENCE_S = 5
"""Seconds without an answer after which a connection asks on another connection."""
PROBE_S = 4
"""Seconds that such a question, or opening a connection, may take."""

_PAUSE_S = 0.5  # pause between two checks whether PostgreSQL answers again
_STATE = "SELECT state FROM pg_stat_activity WHERE pid = $1"
_LOST = "the session of this connection does not answer"

Connect = Callable[[], PipelinedConnection]


class Pulse:
    """State of PostgreSQL, shared by the connections of one database.

    Args:
        connect: Opens a connection, within about `PROBE_S` seconds.

    Attributes:
        problem: Reason why PostgreSQL cannot be used, for people; empty while it answers.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._asking = threading.Lock()
        self._hanging = False  # a connection took too long to open: no other is tried meanwhile
        self._silent = False  # PostgreSQL does not answer on open connections either
        self._stopped = threading.Event()
        self._changing = threading.Lock()
        self._reviving = False
        self.problem = ""

    def connect(self) -> PipelinedConnection:
        """Open a connection that notices when PostgreSQL no longer answers.

        Raises:
            psycopg.OperationalError: The connection cannot be opened, or another could not be
                opened a moment ago.
        """
        if self._hanging:
            raise psycopg.OperationalError(self.problem)
        began_s = time.monotonic()
        try:
            connection = self._connect()
        except psycopg.OperationalError as error:
            # Open connections may still work.
            self._down(error, hanging=time.monotonic() - began_s > PROBE_S / 2)
            raise
        connection.on_silence = lambda seconds: self._silence(connection, seconds)
        return connection

    def stop(self) -> None:
        """Stop the checks."""
        self._stopped.set()

    def _silence(self, connection: PipelinedConnection, seconds: int) -> None:
        """Give up a connection if PostgreSQL, or the session of the connection, does not answer."""
        if self._silent:
            raise psycopg.OperationalError(self.problem)
        if seconds % SILENCE_S == 0:
            connection.in_doubt = not self._is_at_work(connection.session)
        elif connection.in_doubt:  # the answer had one more second to arrive
            raise psycopg.OperationalError(_LOST)

    def _is_at_work(self, session: int) -> bool:
        """Return whether PostgreSQL reports that a session executes a statement.

        Raises:
            psycopg.OperationalError: PostgreSQL does not answer.
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
        # Without the right to see the state, the state is null.
        return row is not None and (row[0] is None or not row[0].startswith("idle"))

    def _down(
        self, error: psycopg.OperationalError, *, hanging: bool, silent: bool = False
    ) -> None:
        """Remember that PostgreSQL cannot be used, and check until it can."""
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
    """Return a callback that gives up a connection after `most_s` seconds without an answer."""

    def on_silence(seconds: int) -> None:
        if seconds >= most_s:
            raise psycopg.OperationalError(f"no answer in {most_s} s")

    return on_silence
