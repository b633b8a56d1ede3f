"""The journal's time follows the clock in small steps, and refuses large steps."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest
from sqlalchemy import Connection

from tests.kit.journal import Journal
from tuskpoint_server.journal import clock as clocks
from tuskpoint_server.journal.clock import JournalClock, Uptime

MINUTE_US, DAY_US = 60_000_000, 86_400_000_000
START_US = 1_700_000_000_000_000


@dataclass
class Machine:
    """A machine, with its clock and its uptime."""

    wall_us: int = START_US
    ran_us: int = 1_000
    boot: str = "first boot"
    journal: list[JournalClock] = field(default_factory=list)

    def start(self, max_step_s: float = 600) -> JournalClock:
        """Start a server."""
        return JournalClock(
            max_step_s,
            wall_us=lambda: self.wall_us,
            running_us=lambda: self.ran_us,
            uptime=lambda: Uptime(self.boot, self.ran_us),
        )

    def run(self, passed_us: int) -> None:
        """Let time pass."""
        self.wall_us += passed_us
        self.ran_us += passed_us

    def boot_again(self, off_us: int) -> None:
        """Switch the machine off for a time, and on again."""
        self.wall_us += off_us
        self.ran_us, self.boot = 1, f"boot at {self.wall_us}"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Create a machine whose clock is also the clock of the database."""
    made = Machine()

    class Clock:
        def run(self, connection: Connection) -> Clock:
            return self

        def fetchall(self) -> list[tuple[int]]:
            return [(made.wall_us,)]

    monkeypatch.setattr(clocks, "_DATABASE_US", Clock())
    return made


async def test_time_passes_with_the_clock(journal: Journal, machine: Machine) -> None:
    clock = machine.start()
    for passed_us in (10 * MINUTE_US, 5, DAY_US):
        machine.run(passed_us)
        assert await clock.check(journal.database) is None
        assert clock() == machine.wall_us


@pytest.mark.sqlite  # here the database uses the machine's clock
@pytest.mark.parametrize("step_us", [-10 * MINUTE_US, -1, 1, 10 * MINUTE_US])
async def test_a_small_step_is_followed(journal: Journal, machine: Machine, step_us: int) -> None:
    clock = machine.start()
    await clock.check(journal.database)
    machine.wall_us += step_us
    assert clock() == START_US
    assert await clock.check(journal.database) is None
    assert clock() == START_US + step_us


@pytest.mark.sqlite  # here the database uses the machine's clock
@pytest.mark.parametrize(
    "step_us", [-400 * DAY_US, -10 * MINUTE_US - 1, 10 * MINUTE_US + 1, DAY_US]
)
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_large_step_is_not(
    journal: Journal,
    machine: Machine,
    caplog: pytest.LogCaptureFixture,
    step_us: int,
    *,
    restarted: bool,
) -> None:
    clock = machine.start()
    await clock.check(journal.database)
    machine.run(DAY_US)  # the server does not run for a day, and the machine does
    machine.wall_us += step_us
    clock = machine.start() if restarted else clock
    for _ in range(2):
        jump = await clock.check(journal.database)
        assert jump is not None
        assert (jump.step_us, jump.expected_us) == (step_us, START_US + DAY_US)
        assert clock() == START_US + DAY_US
    [error] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "nothing is deleted" in error.getMessage()
    # The clock is corrected.
    machine.wall_us -= step_us
    machine.run(MINUTE_US)
    assert await clock.check(journal.database) is None
    assert clock() == machine.wall_us


async def test_an_operator_accepts_the_clock(journal: Journal, machine: Machine) -> None:
    clock, other = machine.start(), machine.start()
    await clock.check(journal.database)
    machine.wall_us += DAY_US
    assert await other.check(journal.database) is not None
    jump = await clock.accept(journal.database)
    assert jump is not None
    assert jump.step_us == DAY_US
    assert (clock.jump, clock()) == (None, machine.wall_us)
    # Another server of the journal, and a server that starts later, find the time accepted.
    assert await other.check(journal.database) is None
    assert await machine.start().check(journal.database) is None
    assert await clock.accept(journal.database) is None


@pytest.mark.sqlite  # here the database uses the machine's clock
@pytest.mark.parametrize(("off_us", "stops"), [(MINUTE_US, False), (DAY_US, True)])
async def test_a_machine_that_was_off_for_long_waits_for_an_operator(
    journal: Journal, machine: Machine, off_us: int, *, stops: bool
) -> None:
    await machine.start().check(journal.database)
    machine.boot_again(off_us)
    clock = machine.start()
    assert (await clock.check(journal.database) is not None) is stops
    # The true time is unknown: new saves must not seem older than they are.
    assert clock() == machine.wall_us


async def test_a_machine_that_starts_in_the_past_does_not_go_back(
    journal: Journal, machine: Machine
) -> None:
    await machine.start().check(journal.database)
    machine.boot_again(-20_000 * DAY_US)
    clock = machine.start()
    assert await clock.check(journal.database) is not None
    assert clock() == START_US
    machine.wall_us = START_US + 2 * MINUTE_US  # the time of the network
    assert await clock.check(journal.database) is None
    assert clock() == machine.wall_us


async def test_a_shared_journal_follows_the_clock_of_its_database(journal: Journal) -> None:
    machine = Machine(wall_us=5)
    clock = machine.start()
    await clock.check(journal.database)
    assert (clock() > START_US) is journal.database.is_shared
