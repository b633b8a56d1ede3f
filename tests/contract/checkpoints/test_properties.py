"""The journal equals a plain model, whatever is saved, deleted, pruned and copied."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select

from tests.kit.databases import examples
from tests.kit.drafts import TENANT, Reference, as_loaded, channel, draft, key, write
from tests.kit.heads import check_heads
from tests.kit.journal import Journal, JournalWorld, made
from tuskpoint.v1 import value_pb2
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import CheckpointQuery, View, Write, write_order
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.journal.removal import garbage_collection
from tuskpoint_server.journal.sql import schema

Place = tuple[str, str]
T = TypeVar("T")
THREADS = ("one", "two")
NAMESPACES = ("", "inner")
IDS = tuple("abcdef")
NAMES = ("x", "y")
LARGE = bytes(range(256)) * 20
"""A keyframe: similar values are stored as patches on it."""

TAILS = ("", "1", "12")
"""Stand-ins for large values: LARGE with one of these texts at its end."""


@dataclass
class Stored:
    """A checkpoint of the model."""

    parent_id: str
    channels: dict[str, tuple[int, bytes | None]]
    seq: int
    writes: dict[tuple[str, int], Write] = field(default_factory=dict)


async def remove_unneeded(journal: Journal) -> None:
    """Remove the unneeded values of each family."""
    families = await journal.database.query(
        lambda connection: list(
            connection.execute(select(schema.contents.c.family).distinct()).scalars()
        )
    )
    for family in families:
        await garbage_collection.remove_unneeded(journal.database, family)


class Threads(RuleBasedStateMachine):
    """Applies the same changes to the journal and to dictionaries."""

    world: JournalWorld

    @initialize()
    def begin(self) -> None:
        self.prefix_of = {name: self.world.next_prefix() for name in THREADS}
        self.model: dict[str, dict[Place, Stored]] = {name: {} for name in THREADS}
        self.seq = dict.fromkeys(THREADS, 0)
        self.row_seq: dict[tuple[str, Place], int] = {}
        self.early: dict[str, dict[Place, dict[tuple[str, int], Write]]] = {
            name: {} for name in THREADS
        }

    @property
    def journal(self) -> Journal:
        return self.world.journal

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.world.run(call)

    def next_seq(self, thread: str) -> int:
        self.seq[thread] += 1
        return self.seq[thread]

    def fresh(self, thread: str) -> None:
        """Forget a deleted thread, and continue with a thread of a new name."""
        self.model[thread], self.early[thread] = {}, {}
        self.seq[thread] = 0
        self.prefix_of[thread] = self.world.next_prefix()

    def thread_id(self, thread: str) -> str:
        return self.prefix_of[thread] + thread

    @rule(
        thread=st.sampled_from(THREADS),
        ns=st.sampled_from(NAMESPACES),
        checkpoint_id=st.sampled_from(IDS),
        parent_id=st.sampled_from(("", *IDS)),
        contents=st.dictionaries(
            st.sampled_from(NAMES),
            st.tuples(
                st.integers(1, 2),
                st.one_of(
                    st.sampled_from([Reference.INHERIT, Reference.EMPTY]),
                    st.binary(max_size=3),
                    st.sampled_from(TAILS),
                ),
            ),
        ),
    )
    def save(
        self,
        thread: str,
        ns: str,
        checkpoint_id: str,
        parent_id: str,
        contents: dict[str, tuple[int, bytes | str | Reference]],
    ) -> None:
        place = (ns, checkpoint_id)
        stored = self.model[thread]
        parent = stored.get((ns, parent_id))
        channels: dict[str, tuple[int, bytes | None]] = {}
        missing = []
        drafts: list[value_pb2.Channel] = []
        for name, (version, drawn) in contents.items():
            content = LARGE + drawn.encode() if isinstance(drawn, str) else drawn
            drafts.append(channel(name, content, version))
            if content is Reference.INHERIT:
                if parent is None or parent.channels.get(name, (0, None))[0] != version:
                    missing.append(name)
                else:
                    channels[name] = parent.channels[name]
            else:
                channels[name] = (version, content if isinstance(content, bytes) else None)
        saved = draft(
            checkpoint_id, parent_id, tuple(drafts), ns=ns, thread_id=self.thread_id(thread)
        )
        if missing:
            with pytest.raises(Refusal) as caught:
                self.run(made(self.journal.save_checkpoint, TENANT, saved))
            assert caught.value.reason is Reason.VALUES_MISSING
            assert [violation.field for violation in caught.value.violations] == missing
            return
        outcome = self.run(made(self.journal.save_checkpoint, TENANT, saved))
        before = stored.get(place)
        same = before is not None and (before.parent_id, list(before.channels.items())) == (
            parent_id,
            list(channels.items()),
        )
        if before is None:
            early = self.early[thread].pop(place, {})
            stored[place] = Stored(parent_id, channels, self.next_seq(thread), early)
        elif not same:
            stored[place] = Stored(parent_id, channels, self.next_seq(thread), before.writes)
            self.row_seq[thread, place] = stored[place].seq
        if before is None:
            self.row_seq[thread, place] = stored[place].seq
        assert outcome.seq == self.row_seq[thread, place]

    @rule(
        thread=st.sampled_from(THREADS),
        ns=st.sampled_from(NAMESPACES),
        checkpoint_id=st.sampled_from(IDS),
        sent=st.lists(
            st.tuples(st.sampled_from("mn"), st.integers(-2, 1), st.binary(max_size=2)),
            min_size=1,
            max_size=4,
        ),
    )
    def save_writes(
        self, thread: str, ns: str, checkpoint_id: str, sent: list[tuple[str, int, bytes]]
    ) -> None:
        place = (ns, checkpoint_id)
        drafts = [write("x", data, task=task, idx=idx) for task, idx, data in sent]
        target = key(checkpoint_id, self.thread_id(thread), ns)
        outcome = self.run(made(self.journal.save_writes, TENANT, target, drafts))
        stored = self.model[thread].get(place)
        writes = stored.writes if stored is not None else self.early[thread].setdefault(place, {})
        before = dict(writes)
        for write_draft in drafts:
            slot = (write_draft.task_id, write_draft.idx)
            [kept] = as_loaded(write_draft)
            if slot not in writes or write_draft.idx < 0:
                writes[slot] = kept
        if writes != before:
            seq = self.next_seq(thread)
            assert outcome.seq == seq
            if stored is not None:
                stored.seq = seq
        else:
            assert outcome.seq <= self.seq[thread]

    @rule(thread=st.sampled_from(THREADS))
    def prune(self, thread: str) -> None:
        stored = self.model[thread]
        latest = {ns: max(i for n, i in stored if n == ns) for ns in {n for n, _ in stored}}
        kept = {
            place: checkpoint
            for place, checkpoint in stored.items()
            if latest[place[0]] == place[1]
        }
        removed = self.run(
            self.journal.removal.prune_thread(
                TENANT, self.thread_id(thread), PruneStrategy.KEEP_LATEST
            )
        )
        assert removed == len(stored) - len(kept)
        self.model[thread] = kept
        if removed:
            self.next_seq(thread)

    @rule(thread=st.sampled_from(THREADS))
    def delete(self, thread: str) -> None:
        removed = self.run(self.journal.removal.delete_thread(TENANT, self.thread_id(thread)))
        assert removed == len(self.model[thread])
        self.fresh(thread)

    @rule(thread=st.sampled_from(THREADS))
    def copy(self, thread: str) -> None:
        """Continue with a copy in place of the thread."""
        if not self.model[thread] and not self.early[thread]:
            return
        source = self.thread_id(thread)
        self.prefix_of[thread] = self.world.next_prefix()
        copied = self.run(
            self.journal.lineage.copy_thread(TENANT, source, self.thread_id(thread), "")
        )
        assert copied == len(self.model[thread])
        self.run(self.journal.removal.delete_thread(TENANT, source))
        self.read_numbers(thread)

    def read_numbers(self, thread: str) -> None:
        """Continue with the sequence numbers of a copy, whose order is not promised."""
        detail = self.run(self.journal.thread(TENANT, self.thread_id(thread)))
        assert detail is not None
        self.seq[thread] = detail.thread.seq
        for (ns, name), checkpoint in self.model[thread].items():
            loaded = self.run(
                self.journal.load(TENANT, key(name, self.thread_id(thread), ns), View.ENTRY)
            )
            assert loaded is not None
            checkpoint.seq = self.row_seq[thread, (ns, name)] = loaded.entry.seq
        numbers = [checkpoint.seq for checkpoint in self.model[thread].values()]
        assert len(set(numbers)) == len(numbers)
        assert all(0 < number <= detail.thread.seq for number in numbers)

    @rule()
    def mark(self) -> None:
        self.run(remove_unneeded(self.journal))

    @rule()
    def reopen(self) -> None:
        self.world.reopen()

    @invariant()
    def what_is_in_memory_equals_the_journal(self) -> None:
        places = [(self.thread_id(name), ns) for name in THREADS for ns in NAMESPACES]
        self.run(check_heads(self.journal.database, TENANT, places))

    @invariant()
    def the_journal_equals_the_model(self) -> None:
        for thread, stored in self.model.items():
            page = self.run(
                self.journal.read_page(
                    TENANT,
                    CheckpointQuery(thread_id=self.thread_id(thread)),
                    View.FULL,
                    None,
                    max_count=100,
                    max_bytes=10**9,
                )
            )
            actual = {}
            for checkpoint in page.checkpoints:
                entry = checkpoint.entry
                assert checkpoint.state is not None
                actual[(entry.key.checkpoint_ns, entry.key.checkpoint_id)] = (
                    entry.parent_id,
                    [
                        (c.name, c.version, c.value.data if c.value else None)
                        for c in checkpoint.state.channels
                    ],
                    entry.seq,
                    checkpoint.writes,
                )
            assert actual == {
                place: (
                    checkpoint.parent_id,
                    [(name, *content) for name, content in checkpoint.channels.items()],
                    checkpoint.seq,
                    tuple(sorted(checkpoint.writes.values(), key=write_order)),
                )
                for place, checkpoint in stored.items()
            }


def test_the_journal_equals_a_model(world: JournalWorld, database: str) -> None:
    class Machine(Threads):
        pass

    Machine.world = world
    count = examples(database, 12)
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=count, stateful_step_count=30, deadline=None)
    )
