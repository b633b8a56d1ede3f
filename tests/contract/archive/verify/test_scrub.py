"""The scrub finds damage that no call reads, at its rate, and continues where it stopped."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from sqlalchemy import Connection, update

from tests.kit.archives import House
from tests.kit.drafts import TENANT, draft, key
from tuskpoint_server.archive.verify import scrub as scrubbing
from tuskpoint_server.archive.verify import scrub_progress
from tuskpoint_server.archive.verify.scrub import PART_BYTES, PASS_SECONDS, Scrubber
from tuskpoint_server.core.model import View
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import checkpoints, contents
from tuskpoint_server.journal.values import integrity

RATE = 64 * 1024
NAMES = ("t1", "t2", "t3", "t4")


class StopError(BaseException):
    """Ends a scrub, as a stop of the server does."""


class Pauses:
    """Pauses without waiting; ends the scrub at the pause before the next pass, or earlier."""

    def __init__(self, most: int = 1000) -> None:
        self.taken: list[float] = []
        self._most = most

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        if seconds > PASS_SECONDS / 2 or len(self.taken) > self._most:
            raise StopError


async def scrub(home: House, most: int = 1000) -> list[float]:
    """Scrub until the end of the pass, or for a number of pauses; return the pauses."""
    pauses = Pauses(most)
    archive = home.archive
    scrubber = Scrubber(
        home.journal.database, archive.mender, archive._parts.instruments, RATE, sleep=pauses
    )
    with pytest.raises(StopError):
        await scrubber.run()
    return pauses.taken


async def fill(home: House) -> None:
    for name in NAMES:
        for number in range(3):
            value = f"value {number} of {name}, ".encode() * 10
            made = draft(
                f"{number}", f"{number - 1}" if number else "", {"x": value}, thread_id=name
            )
            await home.journal.save_checkpoint(TENANT, made)


async def edit(home: House, table: object, where: object, **changed: object) -> None:
    def change(batch: UnitOfWork) -> None:
        statement = update(table).where(where).values(**changed)  # type: ignore[arg-type]
        assert batch.connection.execute(statement).rowcount > 0

    home.journal.is_edited = True
    await home.journal.database.transact(change)


async def number_of(home: House, name: str) -> int:
    def look(connection: Connection) -> int:
        at = 0
        while (thread := scrub_progress.thread_from(connection, at)) is not None:
            if thread.thread_id == name:
                return thread.number
            at = thread.number + 1
        raise AssertionError(name)

    return await home.journal.database.query(look)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the threads in the order of their checks."""
    names: list[str] = []

    def check(connection: Connection, *, thread_id: str, **named: Any) -> integrity.ThreadCheck:
        names.extend([thread_id] if names[-1:] != [thread_id] else [])
        return integrity.check_some(connection, thread_id=thread_id, **named)

    monkeypatch.setattr(scrubbing, "check_some", check)
    return names


async def test_a_pass_over_a_sound_journal_finds_nothing(home: House, looked: list[str]) -> None:
    await fill(home)
    assert (await home.archive.status(TENANT)).scrubbed_us is None
    await scrub(home)
    status = await home.archive.status(TENANT)
    assert looked == list(NAMES)
    assert status.scrubbed_us is not None
    assert status.damaged_threads == []


async def test_what_cannot_be_repaired_is_named_until_a_pass_finds_it_sound(
    home: House, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(home)
    where = checkpoints.c.thread == await number_of(home, "t3")
    await edit(home, checkpoints, where, summary="another")
    await scrub(home)
    assert (await home.archive.status(TENANT)).damaged_threads == ["t3"]
    assert (await home.archive.status("another tenant")).damaged_threads == []
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 3
    assert all("thread 't3' of tenant" in error for error in errors)
    await edit(home, checkpoints, where, summary="")
    home.clock.advance(2 * PASS_SECONDS)
    await scrub(home)
    assert (await home.archive.status(TENANT)).damaged_threads == []


async def test_a_damaged_value_is_repaired_from_its_blob(
    home: House, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(home)
    await home.flush()
    family = contents.c.thread == await number_of(home, "t2")
    await edit(home, contents, family, type="another")
    await scrub(home)
    assert (await home.archive.status(TENANT)).damaged_threads == []
    assert sum("it was repaired" in record.getMessage() for record in caplog.records) == 3
    checkpoint = await home.journal.load(TENANT, key("2", "t2"), View.FULL)
    assert checkpoint is not None
    assert checkpoint.state is not None
    [channel] = checkpoint.state.channels
    assert channel.value is not None
    assert channel.value.data == b"value 2 of t2, " * 10


async def test_pauses_keep_to_the_rate(home: House) -> None:
    await fill(home)
    first, *pauses, wait = await scrub(home)
    assert first == 0
    assert all(pause >= PART_BYTES / RATE for pause in pauses)
    assert len(pauses) >= 4 * len(NAMES)  # each thread has four parts
    assert 0 < wait <= PASS_SECONDS


async def test_a_pass_continues_after_a_start(
    home: House, looked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "RECORD_SECONDS", -1.0)  # record the progress after each part
    await fill(home)
    for _ in range(50):  # starts of the server, which stops after two parts
        pauses = await scrub(home, most=2)
        if pauses[-1] > PASS_SECONDS / 2:
            break
    else:
        raise AssertionError("no pass ended")
    assert list(dict.fromkeys(looked)) == list(NAMES)
    assert (await home.archive.status(TENANT)).scrubbed_us is not None


async def test_a_defect_in_one_thread_keeps_no_other_from_the_scrub(
    home: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(home)
    names: list[str] = []

    def broken(connection: Connection, *, thread_id: str, **named: Any) -> integrity.ThreadCheck:
        names.append(thread_id)
        if thread_id == "t1":
            raise ZeroDivisionError
        return integrity.check_some(connection, thread_id=thread_id, **named)

    monkeypatch.setattr(scrubbing, "check_some", broken)
    await scrub(home)
    assert list(dict.fromkeys(names)) == list(NAMES)
