"""A connection to PostgreSQL that sends statements without waiting for earlier answers.

A statement is handed to libpq, and its answer is read on demand. So the rows that a batch writes,
and its COMMIT, cost one round trip, and the thread releases the interpreter's lock once. The
pipeline of psycopg waits for the socket at every statement; this pipeline does not.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus

_PREPARE_AT = 2  # use of a statement at which it is prepared
_MOST_PREPARED = 500  # prepared statements of a connection; PostgreSQL keeps each one in memory
_MOST_UNANSWERED = 1000  # bounds the memory for waiting answers, in this process and in PostgreSQL
_SECOND_MS = 1000
_TEXT, _BINARY = 0, 1  # formats of parameters and answers
_GOOD = frozenset({ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK})
_OPEN = frozenset({TransactionStatus.INTRANS, TransactionStatus.INERROR})
# values of the columns of a statement, in their order, as PostgreSQL returns them
_Row = tuple[Any, ...]


class PipelinedAnswer:
    """The rows of a statement, or the number of changed rows; the first access waits for them."""

    __slots__ = ("_connection", "_rows", "result")

    def __init__(self, connection: PipelinedConnection) -> None:
        self._connection = connection
        self._rows: Iterator[_Row] | None = None
        self.result: pq.abc.PGresult | None = None

    @property
    def rowcount(self) -> int:
        """Number of rows that the statement changed or returned."""
        return self._received().command_tuples or 0

    def fetchall(self) -> list[_Row]:
        """Return the rows that were not fetched yet."""
        return list(self._left())

    def fetchone(self) -> _Row | None:
        """Return the next row, or `None` after the last one."""
        return next(self._left(), None)

    def fetchmany(self, size: int) -> list[_Row]:
        """Return the next `size` rows."""
        return list(islice(self._left(), size))

    def close(self) -> None:
        """Drop the rows."""
        self._rows = iter(())

    def _left(self) -> Iterator[_Row]:
        if self._rows is None:
            self._rows = iter(self._connection.rows_of(self._received()))
        return self._rows

    def _received(self) -> pq.abc.PGresult:
        if self.result is None:
            self._connection.receive()
        if self.result is None:
            raise psycopg.OperationalError("the statement was not executed")
        return self.result


@dataclass(slots=True)
class _Text:
    """A used statement, with the name of its preparation, if it is prepared."""

    command: bytes
    uses: int = 0
    name: bytes = b""


class PipelinedConnection(psycopg.Connection[object]):
    """A connection with its own `execute`, `commit` and `rollback`.

    A cursor waits, like psycopg's cursors, after all unread answers.
    """

    on_silence: Callable[[int], None] | None = None
    """Called for each second in a row without an answer; raises `OperationalError` to give up."""
    session: int = 0
    """Process ID of the session in PostgreSQL; 0: not known yet."""
    in_doubt: bool = False
    """Whether PostgreSQL reports the session as idle."""

    _loading: psycopg.abc.Transformer | None = None

    def __init__(self, pgconn: psycopg.pq.abc.PGconn, *args: Any, **options: Any) -> None:
        super().__init__(pgconn, *args, **options)
        self._texts: dict[str, _Text] = {}
        self._names = 0
        self._preparing: list[_Text] = []  # prepared by statements with unread answers
        self._unanswered: list[PipelinedAnswer | None] = []  # `None`: the end of a pipeline
        self._poll = select.poll()
        self._poll.register(pgconn.socket)

    def execute(  # type: ignore[override]  # an answer is not a cursor
        self, query: str, params: Sequence[object] = ()
    ) -> PipelinedAnswer:
        """Send a statement.

        Args:
            query: The statement, with parameters $1, $2 and so on.
            params: Integers, texts, bytes, truth values, `None`, and lists of these types.

        Raises:
            psycopg.OperationalError: The connection is lost. Other errors are raised with the
                answer of this statement, or of a later statement.
        """
        if len(self._unanswered) > _MOST_UNANSWERED:
            self.receive()
        text = self._texts.get(query)
        if text is None:
            text = self._texts[query] = _Text(query.encode())
        if self.pgconn.pipeline_status == pq.PipelineStatus.OFF:
            self.pgconn.enter_pipeline_mode()
        text.uses += 1
        if text.uses >= _PREPARE_AT and not text.name and self._names < _MOST_PREPARED:
            self._names += 1
            text.name = b"t%d" % self._names
            self._preparing.append(text)
            self.pgconn.send_prepare(text.name, text.command)
            self._unanswered.append(PipelinedAnswer(self))
        values, formats = [_dump(value) for value in params], [_format(value) for value in params]
        if text.name:
            self.pgconn.send_query_prepared(text.name, values, formats, _BINARY)
        else:
            self.pgconn.send_query_params(text.command, values, None, formats, _BINARY)
        answer = PipelinedAnswer(self)
        self._unanswered.append(answer)
        return answer

    def receive(self) -> None:
        """Read the answers of all statements that were sent.

        Raises:
            psycopg.Error: The error of the first failed statement; later statements were not
                executed.
        """
        if not self._unanswered:
            return
        self.send()
        unanswered, self._unanswered = self._unanswered, []
        preparing, self._preparing = self._preparing, []
        problem: psycopg.Error | None = None
        try:
            for answer in unanswered:
                result = self._next()
                if answer is None:
                    continue
                if result is not None and result.status in _GOOD:
                    answer.result = result
                elif problem is None:
                    problem = _error_of(result)
                self._next()  # the end of this answer
            self.pgconn.exit_pipeline_mode()
        except psycopg.OperationalError as error:  # the connection is lost
            problem = problem or error
        if problem is not None:
            for text in preparing:
                text.name = b""
            raise problem

    def send(self) -> None:
        """Send the statements that libpq buffers, as far as the socket accepts them."""
        if self._unanswered and self._unanswered[-1] is not None:
            self.pgconn.pipeline_sync()
            self._unanswered.append(None)
        self.pgconn.flush()

    def commit(self) -> None:
        """Commit the transaction, and wait for the answer.

        Raises:
            psycopg.Error: The error of the first failed statement, which undid the transaction.
        """
        self.execute("COMMIT")
        self.receive()

    def rollback(self) -> None:
        """Undo the open transaction, if there is one."""
        # a failed statement does not keep the transaction from being undone
        with suppress(psycopg.Error):
            self.receive()
        if self.info.transaction_status in _OPEN:
            self.execute("ROLLBACK")
            self.receive()

    def cursor(self, *args: Any, **options: Any) -> Any:
        """Return a cursor of psycopg."""
        self.receive()
        return super().cursor(*args, **options)

    def rows_of(self, result: pq.abc.PGresult) -> list[_Row]:
        """Return the rows of an answer."""
        if self._loading is None:
            self._loading = Transformer(self)
        self._loading.set_pgresult(result)
        return self._loading.load_rows(0, result.ntuples, tuple)

    def _next(self) -> pq.abc.PGresult | None:
        silent_s = 0
        while self.pgconn.is_busy():
            # Sending continues while answers arrive.
            poll_events = select.POLLIN | (select.POLLOUT if self.pgconn.flush() else 0)
            self._poll.modify(self.pgconn.socket, poll_events)
            events = self._poll.poll(_SECOND_MS)
            if any(event != select.POLLOUT for _, event in events):
                self.pgconn.consume_input()
            silent_s = 0 if events else silent_s + 1
            if silent_s and self.on_silence is not None:
                self._be_patient(silent_s)
        return self.pgconn.get_result()

    def _be_patient(self, silent_s: int) -> None:
        assert self.on_silence is not None  # noqa: S101 - the caller has looked
        try:
            self.on_silence(silent_s)
        except psycopg.OperationalError:
            self.close()
            raise


def _error_of(result: pq.abc.PGresult | None) -> psycopg.Error:
    """Return the error of an answer; libpq itself reports a lost connection."""
    if result is None or result.error_field(pq.DiagnosticField.SQLSTATE) is None:
        return psycopg.OperationalError(result.get_error_message() if result else "no answer")
    return error_from_result(result, encoding="utf-8")


def _dump_text(text: str) -> bytes:
    """Encode a text; libpq would cut it at a zero byte, which PostgreSQL does not store."""
    if "\0" in text:
        raise psycopg.DataError("a text must not have a zero byte")
    return text.encode()


def _dump_list(items: list[object]) -> bytes:
    """Encode a list as the text of an array; PostgreSQL infers the type of the items."""
    return b"{%b}" % b",".join(map(_dump_item, items))


def _dump_item(item: object) -> bytes:
    if isinstance(item, int):
        return b"%d" % item
    text = b"\\x" + item.hex().encode() if isinstance(item, bytes) else _dump_text(str(item))
    return b'"%b"' % text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


_DUMPS: Mapping[type, Callable[[Any], bytes | None]] = {
    bytes: lambda value: value,
    str: _dump_text,
    int: lambda value: b"%d" % value,
    type(None): lambda _: None,
    bool: lambda value: b"t" if value else b"f",
    float: lambda value: repr(value).encode(),
    list: _dump_list,
}


def _dump(value: object) -> bytes | None:
    dump = _DUMPS.get(type(value))
    if dump is None:  # such as a member of an enumeration
        dump = next(candidate for kind, candidate in _DUMPS.items() if isinstance(value, kind))
    return dump(value)


def _format(value: object) -> int:
    return _BINARY if isinstance(value, bytes) else _TEXT
