"""The journal's time, which does not follow jumps of the clock.

The wall clock (of the database, where several servers share it) is compared with the time that was
last recorded in the journal. A step that is larger than allowed is not followed. Then the journal's
time continues by the machine's monotonic clock, and nothing that has a time is deleted until an
operator accepts the clock, or the clock is right again.

The time for which a server was stopped is known as long as the machine was not restarted: the
machine's uptime is recorded too, and setting a clock does not change the uptime. After a restart of
the machine, nothing shows for how long the machine was off, so that time also counts as a step.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import BigInteger, Connection, bindparam, cast, extract, func, select

from ..core.errors import Refusal
from .database.database import Database
from .database.unit_of_work import UnitOfWork
from .sql.journal_metadata import CLOCK
from .sql.schema import journal_info
from .sql.statements import Statement, put_rows

_log = logging.getLogger(__name__)

_BOOT_ID, _UPTIME = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/uptime")
_PROCESS = uuid.uuid4().hex
_READ = Statement(select(journal_info.c.value).where(journal_info.c.name == bindparam("of_name")))
_WRITE = Statement(put_rows(journal_info, ("name",)))
_DATABASE_US = Statement(
    select(cast(extract("epoch", func.clock_timestamp()) * 1_000_000, BigInteger))
)


class Uptime(NamedTuple):
    """The time since a start: of a machine, or of this process."""

    of: str
    us: int


class RecordedTime(NamedTuple):
    """A time recorded in the journal, and the uptime of the server that recorded the time."""

    time_us: int
    uptime: Uptime


@dataclass(frozen=True, slots=True)
class ClockJump:
    """A step of the clock that is larger than allowed."""

    expected_us: int  # the recorded time plus the time since, if known
    clock_us: int  # time of the clock
    is_measured: bool  # whether the time since the record is known

    @property
    def step_us(self) -> int:
        """Lead of the clock in microseconds; negative if the clock is behind."""
        return self.clock_us - self.expected_us


def running_us() -> int:
    """Return the microseconds of a clock that continues while the machine is suspended."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


def read_uptime() -> Uptime:
    """Return the uptime of the machine; without `/proc`, the uptime of this process."""
    try:
        boot_id, uptime = _BOOT_ID.read_text().strip(), _UPTIME.read_text().split()[0]
        return Uptime(boot_id, int(float(uptime) * 1e6))
    except (OSError, ValueError, IndexError):
        return Uptime(_PROCESS, running_us())


def compare(
    clock_us: int, recorded: RecordedTime, uptime: Uptime, max_step_us: int
) -> ClockJump | None:
    """Return the step from the recorded time to the clock's time, if the step is too large."""
    passed_us = uptime.us - recorded.uptime.us
    is_measured = uptime.of == recorded.uptime.of and passed_us >= 0
    expected_us = recorded.time_us + (passed_us if is_measured else 0)
    jump = ClockJump(expected_us, clock_us, is_measured)
    return jump if abs(jump.step_us) > max_step_us else None


class JournalClock:
    """The time of a journal. Calling it returns microseconds since the Unix epoch.

    Args:
        max_step_s: Largest step of the clock that the journal's time follows, in seconds.
        wall_us: The clock of this machine.
        running_us: A clock that only goes forward.
        uptime: Reads the uptime of the machine.

    Attributes:
        jump: The step that the journal's time does not follow; `None` if the clock is right.
            Nothing is deleted while there is a jump.
    """

    def __init__(
        self,
        max_step_s: float,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        running_us: Callable[[], int] = running_us,
        uptime: Callable[[], Uptime] = read_uptime,
    ) -> None:
        self._max_step_us = int(max_step_s * 1e6)
        self._wall_us = wall_us
        self._running_us = running_us
        self._uptime = uptime
        self._ahead_us = wall_us() - running_us()  # lead over the clock that only goes forward
        self.jump: ClockJump | None = None

    def __call__(self) -> int:
        """Return the journal's time."""
        return self._ahead_us + self._running_us()

    async def check(self, journal: Database) -> ClockJump | None:
        """Compare the clock with the journal's last time; return the step if it is too large.

        If the step is small enough, the time follows the clock, and the journal records the time.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        compared = await self._compare(journal)
        if self.jump is None:
            await journal.transact(lambda batch: _record(batch.connection, compared))
        return self.jump

    async def begin(self, journal: Database) -> ClockJump | None:
        """Do the same as `check` at a start; the journal may be unable to record the time.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`: the journal cannot be read.
        """
        compared = await self._compare(journal)
        if self.jump is None:
            try:
                await journal.transact(lambda batch: _record(batch.connection, compared))
            except Refusal as refusal:
                _log.warning("the journal does not record the time yet: %s", refusal)
        return self.jump

    async def _compare(self, journal: Database) -> RecordedTime:
        """Compare the clock with the journal's last time; return the clock's time."""
        now, recorded = await journal.query(lambda connection: self._read(journal, connection))
        before = self.jump
        self.jump = recorded and compare(now.time_us, recorded, now.uptime, self._max_step_us)
        if self.jump is None:
            self._follow(now.time_us)
        elif self.jump.is_measured:
            self._follow(self.jump.expected_us)
        else:
            # If the time is too late, content lives longer than it should; if it is too early,
            # content is deleted too early.
            self._follow(max(self.jump.expected_us, now.time_us))
        if self.jump is not None and before is None:
            _log.error(
                "the clock says %s, and the journal expects %s: nothing is deleted until the clock "
                "is right or an operator accepts it with `tuskpoint accept-clock`",
                _text(self.jump.clock_us),
                _text(self.jump.expected_us),
            )
        elif self.jump is None and before is not None:
            _log.warning("the clock is right again, or was accepted: deletions continue")
        return now

    async def accept(self, journal: Database) -> ClockJump | None:
        """Follow the clock, however large the step is; return the step that was not followed.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        jump = await journal.transact(partial(self._accept, journal))
        if jump is not None:
            _log.warning("an operator accepted the clock, a step of %.0f s", jump.step_us / 1e6)
        await self.check(journal)
        return jump

    def _accept(self, journal: Database, batch: UnitOfWork) -> ClockJump | None:
        now, recorded = self._read(journal, batch.connection)
        _record(batch.connection, now)
        return recorded and compare(now.time_us, recorded, now.uptime, self._max_step_us)

    def _read(
        self, journal: Database, connection: Connection
    ) -> tuple[RecordedTime, RecordedTime | None]:
        """Return the clock's time, and the time that the journal recorded last."""
        if journal.is_shared:
            [(now_us,)] = _DATABASE_US.run(connection).fetchall()
        else:
            now_us = self._wall_us()
        return RecordedTime(int(now_us), self._uptime()), _read(connection)

    def _follow(self, now_us: int) -> None:
        self._ahead_us = now_us - self._running_us()


def _read(connection: Connection) -> RecordedTime | None:
    row = _READ.run(connection, of_name=CLOCK).fetchone()
    if row is None:
        return None
    time_us, boot_id, uptime_us = json.loads(row[0])
    return RecordedTime(time_us, Uptime(boot_id, uptime_us))


def _record(connection: Connection, recorded: RecordedTime) -> None:
    value = json.dumps([recorded.time_us, *recorded.uptime])
    _WRITE.run(connection, name=CLOCK, value=value).close()


def _text(now_us: int) -> str:
    """Return a time for people; the time may be far in the past or future."""
    seconds = now_us // 1_000_000
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s after 1970"
