"""Waiting for changes of threads by this server or another server of the same journal.

A server of a shared journal sends the names of changed threads to the other servers, as
notifications of the database, and wakes its own waiters when it receives names. The server sends
after the commit and on another connection, so no caller waits for it. Notifications may be lost:
while a connection is opened again, or for ever, if a pooler drops them. So each server tests
delivery by notifying itself every second. While a server does not receive its own notifications,
its waiters wake by themselves every second.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import aclosing, contextmanager

from sqlalchemy import Connection

from ...core.pacing import Backoff, pause
from .backend import Backend

_log = logging.getLogger(__name__)

POLL_S = 1.0
"""Seconds after which a waiter of a shared journal wakes by itself, if no notification arrives."""
RARELY_S = 10.0
"""Seconds after which a waiter wakes by itself, if notifications arrive."""

KEEPING = ("", "keeping")
"""Placeholder for a thread: state of the leader of a shared journal changed."""

_MOST_BYTES = 7999  # largest notification of PostgreSQL
_PAUSE_S = 0.02  # pause after a notification; further changes wait for the next notification
_CANCEL_AGAIN_S = 0.1
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.25, 30.0


class Waiter:
    """Waits for changes of threads. Not to be shared between tasks.

    A waiter is woken when there may be news, and reads the news from the journal: so a waiter that
    is slow, or gone, costs only a flag.
    """

    def __init__(self, waiters: Waiters) -> None:
        self._changed = asyncio.Event()
        self._waiters = waiters

    def wake(self) -> None:
        """Report that a thread changed."""
        self._changed.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a change since the last wait; return whether a change is possible."""
        poll_s = self._waiters.poll_s
        await pause(min(timeout_s, poll_s), self._changed)
        changed = self._changed.is_set() or timeout_s > poll_s
        self._changed.clear()
        return changed


class Waiters:
    """The waiters of each thread. Used in the event loop only.

    Attributes:
        poll_s: Seconds after which each waiter wakes by itself.
    """

    def __init__(self, poll_s: float = math.inf) -> None:
        self._waiting: dict[tuple[str, str] | None, set[Waiter]] = {}
        self.poll_s = poll_s

    @contextmanager
    def subscribe(self, *thread: str) -> Iterator[Waiter]:
        """Wake on changes of a thread (its tenant and ID; none: any) inside the context.

        A caller that reads after entering, and again after each wake, misses no change.
        """
        place, waiter = (thread[0], thread[1]) if thread else None, Waiter(self)
        self._waiting.setdefault(place, set()).add(waiter)
        try:
            yield waiter
        finally:
            waiters = self._waiting[place]
            waiters.discard(waiter)
            if not waiters:
                del self._waiting[place]

    def wake(self, changed: Collection[tuple[str, str]]) -> None:
        """Wake the waiters of these threads."""
        for place in (*changed, None) if changed else ():
            for waiter in self._waiting.get(place, ()):
                waiter.wake()

    def wake_all(self) -> None:
        """Wake all waiters: any thread may have changed."""
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.wake()

    def __len__(self) -> int:
        """Return the number of waiters."""
        return sum(map(len, self._waiting.values()))


class Notices:
    """Sends changes of this server to the others, and wakes waiters on changes of the others.

    Args:
        backend: The database.
        journal_id: Journal whose servers exchange notifications.
        write: Runs work in its own transaction, outside the writer.
        waiters: Waiters of this server.
    """

    def __init__(
        self,
        backend: Backend,
        journal_id: str,
        write: Callable[[Callable[[Connection], None]], Awaitable[None]],
        waiters: Waiters,
    ) -> None:
        self._backend = backend
        self._channel = f"tuskpoint_{journal_id}"
        self._write = write
        self._waiters = waiters
        self._sender = uuid.uuid4().hex
        self._changed: set[tuple[str, str]] = set()
        self._missed = False  # a notification could not be sent
        self._heard = False  # own notification received since the last beat
        self._more = asyncio.Event()
        self._tasks = [
            asyncio.create_task(work, name="journal-notices")
            for work in (self._send(), self._listen(), self._beat())
        ]

    async def stop(self) -> None:
        """Stop; unsent notifications are dropped."""
        running = set(self._tasks)
        while running:
            for task in running:
                task.cancel()
            # psycopg waits with `asyncio.wait_for`, which before Python 3.12 forgets a cancellation
            # if a notification arrives at that moment.
            _, running = await asyncio.wait(running, timeout=_CANCEL_AGAIN_S)

    def add(self, changed: Collection[tuple[str, str]]) -> None:
        """Send soon the names of changed threads."""
        self._changed.update(changed)
        self._more.set()

    async def _beat(self) -> None:
        """Poll often exactly while this server does not receive its own notifications."""
        often_s = self._waiters.poll_s
        while True:
            self._heard = False
            self.add(())
            await asyncio.sleep(POLL_S)
            before_s = self._waiters.poll_s
            self._waiters.poll_s = max(often_s, RARELY_S) if self._heard else often_s
            if self._waiters.poll_s < before_s:
                self._waiters.wake_all()

    async def _send(self) -> None:
        backoff = Backoff(_FIRST_RETRY_S, _LONGEST_RETRY_S)
        while True:
            await self._more.wait()
            self._more.clear()
            changed, self._changed = self._changed, set()
            payload = encode(self._sender, None if self._missed else changed)
            try:
                await self._write(lambda to, text=payload: self._notify(to, text))  # type: ignore[misc]
                self._missed = False
                backoff.succeeded()
                await asyncio.sleep(_PAUSE_S)
            except Exception as error:  # noqa: BLE001 - the other servers poll meanwhile
                self._report(error, "sent")
                self._missed = True
                self._more.set()
                await asyncio.sleep(backoff.failed())

    def _notify(self, connection: Connection, payload: str) -> None:
        self._backend.notify(connection, self._channel, payload)

    async def _listen(self) -> None:
        backoff = Backoff(_FIRST_RETRY_S, _LONGEST_RETRY_S)
        while True:
            try:
                async with aclosing(self._backend.notices(self._channel)) as notices:
                    async for payload in notices:
                        if not payload:
                            backoff.succeeded()
                        self._arrived(payload)
            except Exception as error:  # noqa: BLE001 - waiters poll meanwhile
                self._report(error, "received")
            await asyncio.sleep(backoff.failed())

    def _arrived(self, payload: str) -> None:
        sender, changed = decode(payload) if payload else ("", None)
        if changed is None:
            self._waiters.wake_all()
        elif sender != self._sender:
            self._waiters.wake(changed)
        if sender == self._sender:
            self._heard = True

    def _report(self, error: Exception, action: str) -> None:
        problem = self._backend.storage_problem(error) or str(error)
        _log.warning("notifications of changes cannot be %s now: %s", action, problem)


def encode(sender: str, changed: Collection[tuple[str, str]] | None) -> str:
    """Return the text of a notification; `changed`: threads, or `None` for any."""
    text = json.dumps([sender, None if changed is None else sorted(changed)], ensure_ascii=False)
    if changed is not None and len(text.encode()) > _MOST_BYTES:
        return encode(sender, None)
    return text


def decode(payload: str) -> tuple[str, list[tuple[str, str]] | None]:
    """Return sender and threads of a notification from `encode`."""
    sender, changed = json.loads(payload)
    return sender, None if changed is None else [(tenant, name) for tenant, name in changed]
