"""Each load returns the state of the database, whatever servers save, remove, certify and evict."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.kit.archives import House, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.databases import examples, place
from tests.kit.drafts import TENANT, Reference, channel, draft, key, write
from tests.kit.heads import in_database, in_memory, small
from tests.kit.journal import Clock, Journal, World, made, opened
from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.core.model import CheckpointKey
from tuskpoint_server.core.state import RawCheckpoint
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.journal.removal import garbage_collection

THREADS = ("one", "two")
NAMESPACES = ("", "inner")
IDS = tuple("abcdef")
PACKED = b"a value that is stored compressed " * 100
RETENTION_S = 60

on_server = st.integers(0, 1)
of_thread = st.sampled_from(THREADS)
of_namespace = st.sampled_from(NAMESPACES)
of_id = st.sampled_from(IDS)
contents = st.dictionaries(
    st.sampled_from("xy"),
    st.sampled_from([Reference.INHERIT, Reference.EMPTY, b"1", b"2", PACKED, PACKED + b"2"]),
)


class Servers(World):
    """The servers of a journal: one on a file of SQLite, or two on a database in PostgreSQL.

    Attributes:
        home: The first server with its archive, which flushes when a test asks for a flush.
        journals: The journals of all servers.
        from_memory: Number of loads that memory could answer.
    """

    def __init__(self, database: str) -> None:
        super().__init__()
        self.clock = Clock()
        self.from_memory = 0
        entropy = partial(random.Random(database).getrandbits, 62)
        place(self.directory / "journal.db")
        self.home: House = self.enter(house(self.directory, MemoryStore(), self.clock))
        self.journals = [self.home.journal]
        if database == "postgresql":
            self.journals.append(self.enter(opened(self.directory, self.clock, entropy)))
        for journal in self.journals:
            journal.database.heads.now_s = lambda: 0.0

    def journal(self, number: int) -> Journal:
        return self.journals[number % len(self.journals)]


@pytest.fixture(scope="module")
def servers(database: str) -> Iterator[Servers]:
    running = Servers(database)
    yield running
    running.close()


class Answers(RuleBasedStateMachine):
    """Changes threads on any server, and compares the loads of all servers after each change."""

    servers: Servers

    @initialize()
    def begin(self) -> None:
        self.names = {name: self.servers.next_prefix() + name for name in THREADS}

    def change(self, call: Coroutine[Any, Any, object]) -> None:
        """Make a call, which may be refused."""

        async def change() -> None:
            with suppress(Refusal):
                await call

        self.servers.run(change())

    def key(self, thread: str, ns: str = "", name: str = "") -> CheckpointKey:
        return key(name, self.names[thread], ns)

    @rule(
        number=on_server,
        thread=of_thread,
        ns=of_namespace,
        name=of_id,
        parent=st.sampled_from(("", *IDS)),
        sent=contents,
        agent_id=st.sampled_from(("", "agent")),
    )
    def save(
        self,
        number: int,
        thread: str,
        ns: str,
        name: str,
        parent: str,
        sent: dict[str, bytes | Reference],
        agent_id: str,
    ) -> None:
        channels = tuple(channel(of, content) for of, content in sent.items())
        named = self.names[thread]
        saved = draft(name, parent, channels, thread_id=named, ns=ns, agent_id=agent_id)
        self.change(made(self.servers.journal(number).save_checkpoint, TENANT, saved))

    @rule(
        number=on_server,
        thread=of_thread,
        ns=of_namespace,
        name=of_id,
        sent=st.lists(
            st.tuples(
                st.sampled_from("mn"), st.integers(-2, 1), st.sampled_from([b"1", b"2", PACKED])
            ),
            min_size=1,
            max_size=3,
        ),
    )
    def write(
        self, number: int, thread: str, ns: str, name: str, sent: list[tuple[str, int, bytes]]
    ) -> None:
        """Save writes, also before their checkpoint."""
        drafts = [write("x", data, task=task, idx=idx) for task, idx, data in sent]
        target = self.key(thread, ns, name)
        self.change(made(self.servers.journal(number).save_writes, TENANT, target, drafts))

    @rule(
        number=on_server,
        thread=of_thread,
        ns=of_namespace,
        name=st.sampled_from(("", *IDS)),
        label=st.sampled_from(("", "named")),
    )
    def label(self, number: int, thread: str, ns: str, name: str, label: str) -> None:
        target = self.key(thread, ns, name)
        self.change(made(self.servers.journal(number).set_label, TENANT, target, label))

    @rule(number=on_server, thread=of_thread, sent=contents, restarts=st.booleans())
    def save_next(
        self, number: int, thread: str, sent: dict[str, bytes | Reference], restarts: bool
    ) -> None:
        """Save a checkpoint after the latest checkpoint, whichever that is."""
        channels = tuple(channel(name, content) for name, content in sent.items())
        saved = draft(
            "", "", channels, thread_id=self.names[thread], continues=True, restarts=restarts
        )
        self.change(made(self.servers.journal(number).save_checkpoint, TENANT, saved))

    @rule(
        number=on_server,
        thread=of_thread,
        how=st.sampled_from(["prune", "delete", "expire", "sweep", "remove values"]),
    )
    def remove(self, number: int, thread: str, how: str) -> None:
        journal, name = self.servers.journal(number), self.names[thread]
        if how == "prune":
            self.change(journal.removal.prune_thread(TENANT, name, PruneStrategy.KEEP_LATEST))
        elif how == "delete":
            self.change(journal.removal.delete_thread(TENANT, name))
        elif how == "expire":
            self.change(self._expire(journal, name))
        elif how == "sweep":
            self.servers.clock.advance(RETENTION_S + 1)
            self.change(journal.removal.sweep(early_write_ttl_s=RETENTION_S))
        else:
            self.change(self._remove_values(journal))

    async def _expire(self, journal: Journal, name: str) -> None:
        await journal.removal.set_retention(TENANT, name, RETENTION_S)
        self.servers.clock.advance(RETENTION_S + 1)
        await journal.removal.delete_if_past(TENANT, name)

    async def _remove_values(self, journal: Journal) -> None:
        for [family] in await self.servers.home.ask("SELECT DISTINCT family FROM threads"):
            await garbage_collection.remove_unneeded(journal.database, family)

    @rule(
        number=on_server,
        thread=of_thread,
        ns=of_namespace,
        name=of_id,
        how=st.sampled_from(["roll back", "fork", "copy"]),
    )
    def derive(self, number: int, thread: str, ns: str, name: str, how: str) -> None:
        """Roll back, or continue with a fork or a copy in place of the other thread."""
        lineage, source = self.servers.journal(number).lineage, self.names[thread]
        if how == "roll back":
            self.change(lineage.rollback(TENANT, self.key(thread, ns, name), "", None))
            return
        other = THREADS[1 - THREADS.index(thread)]
        self.names[other] = self.servers.next_prefix() + other
        if how == "fork":
            self.change(lineage.fork(TENANT, self.key(thread), self.names[other], ""))
        else:
            self.change(lineage.copy_thread(TENANT, source, self.names[other], ""))

    @rule(evicts=st.booleans())
    def flush(self, evicts: bool) -> None:
        self.change(self.servers.home.flush())
        if evicts:
            self.change(self.servers.home.evict())

    @rule(number=on_server)
    def forget(self, number: int) -> None:
        """Let a server forget what it remembers."""
        database = self.servers.journal(number).database
        self.change(made(database.transact, lambda batch: batch.logs.clear()))

    @invariant()
    def each_load_returns_what_the_database_has(self) -> None:
        self.servers.run(self._compare())

    async def _compare(self) -> None:
        for thread in THREADS:
            for ns in NAMESPACES:
                await self._compare_latest(self.key(thread, ns))

    async def _compare_latest(self, latest: CheckpointKey) -> None:
        journals = self.servers.journals
        stored = await in_database(journals[-1].database, TENANT, latest)
        keys = [latest] if stored is None else [latest, stored.entry.key]
        for journal in journals:
            for wanted in keys:
                # The second load uses the values that the first load read.
                for _ in range(2):
                    assert await small(journal, TENANT, wanted) == stored
                kept = await in_memory(journal.database, TENANT, wanted)
                assert kept in (None, stored)
                self.servers.from_memory += kept is not None


def test_each_load_returns_what_the_database_has(servers: Servers, database: str) -> None:
    class Machine(Answers):
        pass

    Machine.servers = servers
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples(database, 24), stateful_step_count=30, print_blob=True
        ),
    )
    assert servers.from_memory


@settings(print_blob=True)
@given(seed=st.integers(0, 1 << 30))
def test_servers_that_save_at_once(servers: Servers, seed: int) -> None:
    """No load is older than acknowledged changes, and all loads of one change are equal."""
    servers.run(_save_at_once(servers, random.Random(seed)))


async def _save_at_once(servers: Servers, numbers: random.Random) -> None:
    names = [servers.next_prefix() for _ in range(3)]
    acknowledged = dict.fromkeys(names, 0)
    answers: dict[tuple[str, int], RawCheckpoint] = {}

    async def save(journal: Journal, name: str, step: int) -> None:
        latest = key("", name)
        kind = numbers.choice(["checkpoint", "checkpoint", "writes", "label"])
        if kind == "checkpoint":
            sent = draft("", "", {"x": b"%d" % step}, thread_id=name)
            outcome = await journal.save_checkpoint(TENANT, sent)
        elif kind == "label":
            outcome = await journal.set_label(TENANT, latest, str(step))
        else:
            stored = await small(journal, TENANT, latest)
            assert stored is not None
            drafts = [write("x", b"%d" % step, task=f"task {step}")]
            outcome = await journal.save_writes(TENANT, stored.entry.key, drafts)
        if kind != "writes":  # writes may belong to a checkpoint that is no longer the latest
            acknowledged[name] = max(acknowledged[name], outcome.seq)

    async def load(journal: Journal, name: str) -> None:
        through = acknowledged[name]
        loaded = await small(journal, TENANT, key("", name))
        assert loaded is not None
        assert loaded.entry.seq >= through
        assert answers.setdefault((name, loaded.entry.seq), loaded) == loaded

    async def work(journal: Journal, agent: int) -> None:
        for step in range(6):
            name = numbers.choice(names)
            await save(journal, name, agent * 100 + step)
            await load(numbers.choice(servers.journals), numbers.choice(names))
            await load(journal, name)

    for name in names:
        await servers.journals[0].save_checkpoint(TENANT, draft("", "", thread_id=name))
    await asyncio.gather(*(work(servers.journal(agent), agent) for agent in range(4)))
