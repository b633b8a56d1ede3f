"""A watch is ordered, unique, atomic, reliable, resumable and bookmarkable, under load and kills.

`TUSKPOINT_WATCH_SEED=text` repeats the choices of an earlier run, `TUSKPOINT_WATCH_KILLS=n` sets
the number of kills (3), `TUSKPOINT_WATCH_CHANGES=n` the number of changes between kills (30).
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash.watches.agents import Agents, run
from tests.crash.watches.guarantees import (
    CERTIFIED,
    GUARANTEES,
    PROGRESS,
    Change,
    Record,
    Seen,
    Session,
    broken,
)
from tests.kit.servers.processes import ServerProcess
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config

SEED = os.environ.get("TUSKPOINT_WATCH_SEED") or secrets.token_hex(4)
KILLS = int(os.environ.get("TUSKPOINT_WATCH_KILLS", "3"))
CHANGES = int(os.environ.get("TUSKPOINT_WATCH_CHANGES", "30"))
THREADS = ("one", "two")
SAVED, WRITES, LABEL = "CHECKPOINT_SAVED", "WRITES_SAVED", "LABEL_SET"


@pytest.mark.timeout(60 + CHANGES)
async def test_many_writers_and_watchers_that_come_and_go(tmp_path: Path) -> None:
    print(f"TUSKPOINT_WATCH_SEED={SEED}")
    config = Config(
        listen="127.0.0.1:0",
        data_dir=tmp_path / "data",
        flush_interval=0.2,
        journal_bytes=0,
        eviction_grace=0,
    )
    async with serve.running_server(config) as server:
        agents = Agents(f"127.0.0.1:{server.port}")
        await run(agents, THREADS, SEED, lambda: agents.acknowledged(6 * CHANGES))
        await server.drain(10)
    check(agents.record)


@pytest.mark.crash
@pytest.mark.timeout(60 + (10 + CHANGES) * KILLS)
async def test_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    print(f"TUSKPOINT_WATCH_SEED={SEED}")
    moments = random.Random(SEED)
    with ServerProcess(tmp_path) as server:
        agents = Agents(server.target)
        await asyncio.to_thread(server.start)

        async def kill() -> None:
            for _ in range(KILLS):
                await agents.acknowledged(moments.randint(1, CHANGES))
                await asyncio.sleep(moments.uniform(0, 0.03))
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            await agents.acknowledged(CHANGES)

        await run(agents, THREADS, SEED, kill)
        assert await asyncio.to_thread(server.stop) == 0
    check(agents.record)


def check(record: Record) -> None:
    """Check the guarantees, and that the run had enough events for each of them."""
    seen = Counter(event.kind for session in record.sessions for event in session.seen)
    print(f"{len(record.sessions)} watches, {len(record.changes)} acknowledged changes: {seen}")
    assert broken(record) == {}
    assert {SAVED, WRITES, LABEL, CERTIFIED, PROGRESS} <= seen.keys()
    assert len(record.sessions) > 10


# --- the validators ------------------------------------------------------------------------


def saved(seq: int, checkpoint: str, **more: object) -> Seen:
    return replace(
        Seen(SAVED, seq, 1, b"%d" % seq, checkpoint, writes=frozenset({"task"})),
        **more,  # type: ignore[arg-type]
    )


def good() -> Record:
    """A history without faults: a steady watcher, a resumed watcher, and a watcher of labels."""
    events = [
        saved(1, "/a"),
        saved(2, "/b"),
        Seen(LABEL, 3, 1, b"3", "/b"),
        Seen("THREAD_DELETED", 4, 1, b"4", deleted=2),
        saved(5, "/c", incarnation=2),
    ]
    progress = Seen(PROGRESS, 5, 2, b"5")
    changes = [
        Change("w", "t", SAVED, seq, checkpoint, frozenset({"task"}))
        for seq, checkpoint in ((1, "/a"), (2, "/b"), (5, "/c"))
    ]
    labels = frozenset({LABEL})
    certified = Seen(CERTIFIED, 1, 1, b"2")
    sessions = [
        Session("steady", "t", 0, seen=[*events[:2], certified, *events[2:], progress]),
        Session("resumed", "t", 0, seen=events[:2]),
        Session("resumed", "t", 2, seen=events[2:]),
        Session("labels", "t", 0, labels, [events[2], progress]),
    ]
    return Record(sessions, changes)


def swap(record: Record) -> None:
    seen = record.sessions[0].seen
    seen[0], seen[1] = seen[1], seen[0]


def begin_anew_without_an_end(record: Record) -> None:
    seen = record.sessions[2].seen
    seen[0] = replace(seen[0], incarnation=0)


def acknowledge_out_of_order(record: Record) -> None:
    record.changes.reverse()


def certify_less(record: Record) -> None:
    seen = record.sessions[0].seen
    seen[2:2] = [Seen(CERTIFIED, 2, 1, b"2"), Seen(CERTIFIED, 1, 1, b"2")]


def deliver_twice(record: Record) -> None:
    record.sessions[0].seen.insert(1, record.sessions[0].seen[0])


def deliver_again_after_the_cursor(record: Record) -> None:
    record.sessions[2].seen.insert(0, record.sessions[1].seen[1])


def tell_two_stories(record: Record) -> None:
    seen = record.sessions[1].seen
    seen[1] = replace(seen[1], checkpoint="/z")


def deliver_something_else(record: Record) -> None:
    record.changes[1] = replace(record.changes[1], kind=LABEL)


def damage(record: Record) -> None:
    seen = record.sessions[0].seen
    seen[0] = replace(seen[0], intact=False)


def split(record: Record) -> None:
    seen = record.sessions[0].seen
    seen[0] = replace(seen[0], writes=frozenset())


def leave_out(record: Record) -> None:
    del record.sessions[0].seen[1]


def leave_out_at_the_end(record: Record) -> None:
    del record.sessions[2].seen[-1]


def filter_too_much(record: Record) -> None:
    del record.sessions[3].seen[0]


def resume_too_late(record: Record) -> None:
    del record.sessions[2].seen[0]


def promise_too_much(record: Record) -> None:
    record.sessions[1].seen.insert(1, Seen(PROGRESS, 2, 1, b"2"))


def promise_too_little(record: Record) -> None:
    record.sessions[0].seen[-1] = Seen(PROGRESS, 3, 2, b"3")


DOCTORED: list[tuple[str, Callable[[Record], None]]] = [
    ("ordered", swap),
    ("ordered", begin_anew_without_an_end),
    ("ordered", acknowledge_out_of_order),
    ("ordered", certify_less),
    ("unique", deliver_twice),
    ("unique", deliver_again_after_the_cursor),
    ("atomic", tell_two_stories),
    ("atomic", deliver_something_else),
    ("atomic", damage),
    ("atomic", split),
    ("reliable", leave_out),
    ("reliable", leave_out_at_the_end),
    ("reliable", filter_too_much),
    ("resumable", resume_too_late),
    ("bookmarkable", promise_too_much),
    ("bookmarkable", promise_too_little),
    ("bookmarkable", filter_too_much),
]


def test_a_history_with_nothing_wrong_passes() -> None:
    assert broken(good()) == {}


@pytest.mark.parametrize(("guarantee", "doctor"), DOCTORED)
def test_a_doctored_history_is_found_out(guarantee: str, doctor: Callable[[Record], None]) -> None:
    record = good()
    doctor(record)
    assert GUARANTEES[guarantee](record)


def test_every_guarantee_can_be_broken() -> None:
    assert {guarantee for guarantee, _ in DOCTORED} == GUARANTEES.keys()
