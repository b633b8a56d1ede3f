"""The leader's lease: one server at a time has the lease, and with it the leader's duties.

The leader flushes, renews blobs, evicts, indexes, delivers to MemWal, collects garbage, and deletes
threads past their retention. Every server of a shared journal asks for the lease as long as another
server has it. The leader renews the lease at a third of its time, and releases it on a clean stop,
so that the next server takes over at once. After the leader's death the next server waits until the
lease has expired.

Two clocks count. By the database's clock the lease expires for the other servers. The leader counts
from before its request, by its own clock, which continues while the process is stopped, so the
leader stops before another server starts. A leader that was stopped in the middle of work may wake
after that, and so every gain raises the `fence`: changes that only the leader may make (`transact`)
compare the fence with the row under the row's lock, and change nothing once another server has the
lease.

If the journal belongs to one server, that server has the lease from the start and for ever: the
table has no row, and nothing is renewed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    and_,
    bindparam,
    cast,
    extract,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql

from ..core.errors import Reason, Refusal
from ..core.pacing import Backoff, pause
from .database.database import KEEPING, POLL_S, Connection, Database
from .database.unit_of_work import UnitOfWork
from .sql.schema import leases
from .sql.statements import Statement

T = TypeVar("T")
Duty = Callable[[], AbstractAsyncContextManager[object]]
"""A duty of the leader: entering the context starts the duty, and leaving ends it."""

_log = logging.getLogger(__name__)

_LEADER = "keeper"
_OF_JOURNAL = (Reason.JOURNAL_UNAVAILABLE, Reason.OUTCOME_UNKNOWN)
_RENEWALS = 3  # renewals in the time of the lease
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.25, 5.0  # pauses after duties that could not start

_NAMED = leases.c.name == _LEADER
_MINE = and_(_NAMED, leases.c.owner == bindparam("of_owner"))
_NOW_US: ColumnElement[int] = cast(extract("epoch", func.clock_timestamp()) * 1_000_000, BigInteger)
_END_US: ColumnElement[int] = _NOW_US + bindparam("length_us")
_TAKE = Statement(
    postgresql.insert(leases)
    .values(name=_LEADER, fence=1, until_us=_END_US)
    .values(owner=bindparam("of_owner"), settings=bindparam("settings"))
    .on_conflict_do_update(
        index_elements=[leases.c.name],
        set_={
            "owner": bindparam("of_owner"),
            "fence": leases.c.fence + 1,
            "until_us": _END_US,
            "settings": bindparam("settings"),
        },
        where=or_(leases.c.until_us <= _NOW_US, leases.c.owner == bindparam("of_owner")),
    )
    .returning(leases.c.fence)
)
_HELD = and_(_MINE, leases.c.fence == bindparam("of_fence"))
_RENEW = Statement(update(leases).where(_HELD).values(until_us=_END_US))
_RELEASE = Statement(update(leases).where(_HELD).values(until_us=0))
_OTHERS = Statement(
    select(leases.c.settings).where(
        _NAMED, leases.c.until_us > _NOW_US, leases.c.owner != bindparam("of_owner")
    )
)
_CHECK = Statement(select(leases.c.fence).where(_HELD).with_for_update(read=True))


SIGNERS = "--signing-key"
"""Setting whose value is public keys, which are compared by their own rule."""

OWN_KEY = "generated"
"""First word of that value if the data directory got the key at its first start."""


class LeaseLostError(Exception):
    """Another server may be the leader: nothing of the change is stored."""

    def __init__(self) -> None:
        super().__init__("this server is no longer the leader")


class SettingsDifferError(Exception):
    """The leader has other settings, and one of them must be the same on every server."""

    def __init__(self, name: str, here: str, there: str) -> None:
        super().__init__(
            f"{name} is {here or 'not set'} here and {there or 'not set'} on another server of "
            "this journal; all of them need the same"
        )


def _running_s() -> float:
    """Return the seconds of a clock that continues while the process or the machine is stopped."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """The leader's lease as one server sees it. Used in the event loop, except `check`.

    Args:
        database: The journal.
        length_s: Seconds for which the lease is valid without a renewal.
        clock: Returns the seconds of a clock that only goes forward.
        settings: Settings of this server, by name, that must be the same on every server of the
            journal.

    Attributes:
        fence: Raised whenever a server gains the lease; 0 if no other server can.
        lost: Set while this server is not the leader; set a little late after an expiry.
    """

    def __init__(
        self,
        database: Database,
        length_s: float = 10.0,
        clock: Callable[[], float] = _running_s,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._database = database
        self._settings = dict(settings or {})
        self._warned = False
        self._length_s = length_s
        self._clock = clock
        self._owner = uuid.uuid4().hex
        self._loop = asyncio.get_running_loop()
        self._renewing: asyncio.Task[None] | None = None
        self._until_s = math.inf
        self.fence = 0
        self.lost = asyncio.Event()
        if database.is_shared:
            self.lose()

    @property
    def held(self) -> bool:
        """Whether this server is the leader."""
        return self._clock() < self._until_s

    async def acquire(self) -> bool:
        """Take the lease if it is free, and start to renew it; return whether this server has it.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        if self._database.is_shared and not self.held:
            asked_s = self._clock()
            fence = await self._database.write_past_batches(self._take)
            if fence is not None:
                self.fence, self._until_s = fence, asked_s + self._length_s
                self.lost.clear()
                self._renewing = asyncio.create_task(self._renew(), name="lease")
        return self.held

    def _take(self, connection: Connection) -> int | None:
        settings = json.dumps(self._settings)
        parameters = {"of_owner": self._owner, "length_us": self._length_us, "settings": settings}
        row = _TAKE.run(connection, **parameters).fetchone()
        return None if row is None else int(row[0])

    async def agree(self) -> None:
        """Compare the settings with the leader's settings, if another server is the leader.

        Raises:
            SettingsDifferError: A setting differs.
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        if not self._database.is_shared:
            return
        for (text,) in await self._database.rows(_OTHERS, of_owner=self._owner):
            there: dict[str, str] = json.loads(text)
            for name in sorted(self._settings.keys() | there.keys()):
                ours, theirs = self._settings.get(name, ""), there.get(name, "")
                if name == SIGNERS:
                    self._compare_signers(ours, theirs)
                elif ours != theirs:
                    raise SettingsDifferError(name, ours, theirs)

    def _compare_signers(self, ours: str, theirs: str) -> None:
        """Compare the public keys of signers, the current key first; older servers report no keys.

        While a key is replaced on one server after another, one of two servers knows the other's
        first key.
        """
        here, there = (
            [word for word in text.split() if word != OWN_KEY] for text in (ours, theirs)
        )
        if not here or not there or here[0] in there or there[0] in here:
            return
        if not (ours.startswith(OWN_KEY) and theirs.startswith(OWN_KEY)):
            raise SettingsDifferError(SIGNERS, ours, theirs)
        if not self._warned:
            self._warned = True
            _log.warning(
                "this server signs hand-offs with key %s, and another server of this journal with "
                "%s; give all of them the same --signing-key",
                here[0],
                there[0],
            )

    async def _renew(self) -> None:
        """Renew the lease until it is lost."""
        answered = True
        while self.held:
            await pause(self._length_s / _RENEWALS / (1 if answered else 4), self.lost)
            if not self.lost.is_set():
                answered = await self._renewed()
        if not self.lost.is_set():
            _log.warning("the lease of the leader was not renewed in time")
            self.lose()

    async def _renewed(self) -> bool:
        """Try to renew the lease; return whether the database answered."""
        asked_s = self._clock()
        try:
            async with asyncio.timeout(max(0.0, self._until_s - asked_s)):
                renewed = await self._database.write_past_batches(self._extend)
        except (Refusal, TimeoutError) as error:
            _log.warning("the lease of the leader is not renewed: %s", str(error) or "no answer")
            return False
        if not renewed:
            _log.warning("another server took the lease of the leader")
            self.lose()
        elif self.held:  # after the expiry the answer is void: duties may have ended
            self._until_s = asked_s + self._length_s
        return True

    def _extend(self, connection: Connection) -> bool:
        return bool(_RENEW.run(connection, length_us=self._length_us, **self._held_by).rowcount)

    async def release(self) -> None:
        """Release the lease, so that another server can take it at once."""
        if not self._database.is_shared or not self.held:
            return
        self.lose()
        try:
            await self._database.write_past_batches(self._end)
        except Refusal as refusal:
            _log.warning("the lease of the leader runs out by itself: %s", refusal)
        self._database.announce({KEEPING})

    def _end(self, connection: Connection) -> None:
        _RELEASE.run(connection, **self._held_by)

    def lose(self) -> None:
        """Give up the lease in this server, whatever the journal says."""
        self._until_s = -math.inf
        self.lost.set()

    async def vacant(self) -> None:
        """Wait until it makes sense to ask for the lease again."""
        with self._database.waiters.subscribe(*KEEPING) as released:
            await released.wait(min(POLL_S, self._length_s / _RENEWALS))

    def require(self) -> None:
        """Raise `LeaseLostError` unless this server is the leader."""
        if not self.held:
            raise LeaseLostError

    def check(self, batch: UnitOfWork) -> None:
        """Ensure that this server is the leader until the batch is committed.

        Raises:
            LeaseLostError: This server is not the leader.
        """
        if not self._database.is_shared:
            return
        if not self.held or _CHECK.run(batch.connection, **self._held_by).fetchone() is None:
            self._loop.call_soon_threadsafe(self.lose)
            raise LeaseLostError

    async def transact(self, work: Callable[[UnitOfWork], T], size_bytes: int = 0) -> T:
        """Make a change that only the leader may make, as `Database.transact`.

        Raises:
            LeaseLostError: Another server may be the leader.
        """

        def checked(batch: UnitOfWork) -> T:
            self.check(batch)
            return work(batch)

        return await self._database.transact(checked, size_bytes)

    @property
    def _length_us(self) -> int:
        return int(self._length_s * 1e6)

    @property
    def _held_by(self) -> dict[str, object]:
        return {"of_owner": self._owner, "of_fence": self.fence}


class Leader:
    """Runs the duties while this server has the lease.

    Args:
        lease: The lease.
        duties: The duties; they start in this order, and end in reverse order.
    """

    def __init__(self, lease: Lease, duties: Sequence[Duty]) -> None:
        self._lease = lease
        self._duties = duties
        self._begun = AsyncExitStack()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the duties if the lease is free, otherwise once it is free.

        While the journal cannot be written, the duties wait, and reads are served.

        Raises:
            SettingsDifferError: Another server has the lease, and its settings differ.
            Exception: The lease is free, and a duty cannot start.
        """
        begun = True
        if await self._lease.acquire():
            try:
                await self._begin()
            except BaseException as error:
                await self._lease.release()
                if not isinstance(error, Refusal) or error.reason not in _OF_JOURNAL:
                    raise
                _log.error("the duties of the leader begin later: %s", error)
                begun = False
        else:
            await self._lease.agree()
        self._task = asyncio.create_task(self._run(begun=begun), name="leader")

    async def stop(self) -> None:
        """End the duties, and release the lease."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._begun.aclose()
        await self._lease.release()

    async def _begin(self) -> None:
        async with AsyncExitStack() as duties:
            for duty in self._duties:
                await duties.enter_async_context(duty())
            self._begun = duties.pop_all()

    async def _run(self, *, begun: bool) -> None:
        backoff = Backoff(_FIRST_RETRY_S, _LONGEST_RETRY_S)
        while True:
            if begun:
                await self._lease.lost.wait()
            try:
                await self._begun.aclose()
                begun = False
                if await self._lease.acquire():
                    await self._begin()
                    begun = True
                    _log.info("this server is the leader now")
                else:
                    await self._lease.vacant()
                backoff.succeeded()
                continue
            except Refusal as refusal:
                _log.warning("the duties of the leader cannot begin: %s", refusal)
            except Exception:  # noqa: BLE001 - a defect, perhaps of this server alone
                _log.exception("the duties of the leader cannot begin")
            await self._lease.release()  # another server may succeed
            await asyncio.sleep(backoff.failed())
