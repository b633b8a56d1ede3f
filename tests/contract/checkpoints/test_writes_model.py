"""Decisions about writes equal a plain model, however and on whichever server they are saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.databases import examples
from tests.kit.drafts import TENANT, as_loaded, draft, key, write
from tests.kit.journal import Clock, Journal, World, made, opened, thread_of
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.model import View, write_order
from tuskpoint_server.core.threads import (
    ERROR,
    INTERRUPT,
    NO_TASK,
    RESUME,
    PruneStrategy,
    ThreadState,
)
from tuskpoint_server.features.checkpoints import save
from tuskpoint_server.journal.database.pending_writes import StoredWrite

Place = tuple[str, str]
Slot = tuple[str, int]
Step = tuple[str, int, dict[str, Any]]
MAX_NAMES = 900
"""Room for about six writes, so that random writes reach the limit."""

TTL_S = 60
SOURCE = "__error_source_node__"
INDEXES = {INTERRUPT: -3, RESUME: -4, ERROR: -1, SOURCE: -2}
"""Indexes of LangGraph's special writes."""

USUAL = -9
"""Placeholder for the index that LangGraph gives a channel; one write in four has another index."""

places = st.sampled_from((("", "a"), ("", "a"), ("", "b"), ("inner", "a")))


def sent_writes(least: int) -> st.SearchStrategy[list[StoredWrite]]:
    def drawn(name: str, data: bytes, task: str, idx: int, path: str) -> StoredWrite:
        # One special write in eight has an index that LangGraph would not use.
        return write(
            name, data, task=task, idx=idx if idx > -9 else INDEXES.get(name, 0), path=path
        )

    return st.lists(
        st.builds(
            drawn,
            st.sampled_from(("x", INTERRUPT, INTERRUPT, RESUME, ERROR, SOURCE)),
            st.sampled_from((b"1", b"1", b"2")),
            st.sampled_from(("m", "n", "ö", NO_TASK)),
            st.sampled_from((*(USUAL,) * 12, -3, -3, -4, 1)),
            st.sampled_from(("", "", "", "~ä" * 80)),
        ),
        min_size=least,
        max_size=4,
    )


def steps() -> st.SearchStrategy[Step]:
    def step(name: str, /, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
        return st.tuples(st.just(name), st.integers(0, 2), st.fixed_dictionaries(arguments))

    writing = step("writes", place=places, writes=sent_writes(1))
    saving = step("save", place=places, writes=sent_writes(0))
    labelling = step("label", place=places, label=st.sampled_from("lm"))
    rare = st.one_of(step("prune"), step("expire"), step("forget"))
    return st.one_of(writing, writing, writing, saving, labelling, rare)


@dataclass
class Model:
    """A thread whose writes are in dictionaries, each write with the number of its change."""

    seq: int = 0
    rows: dict[Place, int] = field(default_factory=dict)  # number of the checkpoint's row
    labels: dict[Place, str] = field(default_factory=dict)
    writes: dict[Place, dict[Slot, tuple[StoredWrite, int]]] = field(default_factory=dict)

    def merge(
        self, place: Place, sent: Sequence[StoredWrite]
    ) -> tuple[dict[Slot, StoredWrite], int]:
        """Return the writes to store, and the greatest number of the already stored writes."""
        stored = self.writes.get(place, {})
        new: dict[Slot, StoredWrite] = {}
        questions: dict[Slot, StoredWrite] = {}
        last = 0
        for each in sent:
            slot = (each.task_id, each.idx)
            if slot in stored and (each.idx >= 0 or _same(stored[slot][0], each)):
                last = max(last, stored[slot][1])
                new.pop(slot, None)
                if each.idx < 0 and each.channel == INTERRUPT:
                    questions[slot] = each
            elif each.idx < 0 or slot not in new:
                questions.pop(slot, None)
                new[slot] = each
        answering = {task for (task, _), each in new.items() if each.channel == RESUME}
        new |= {slot: each for slot, each in questions.items() if slot[0] in answering}
        whole = {slot: each for slot, (each, _) in stored.items()} | new
        names = [(each.task_id, each.task_path, each.channel, each.type) for each in whole.values()]
        if new and sum(128 + len("".join(of_one).encode()) for of_one in names) > MAX_NAMES:
            raise OverflowError
        return new, last

    def store(self, place: Place, new: dict[Slot, StoredWrite]) -> int:
        self.seq += 1
        kept = self.writes.setdefault(place, {})
        kept.update({slot: (each, self.seq) for slot, each in new.items()})
        return self.seq

    def save_writes(self, place: Place, sent: Sequence[StoredWrite]) -> int:
        new, last = self.merge(place, sent)
        return self.store(place, new) if new else max(self.rows.get(place, 0), last)

    def save(self, place: Place, sent: Sequence[StoredWrite]) -> int:
        new, last = self.merge(place, sent)
        if place in self.rows and not new:
            return max(self.rows[place], last)
        begins = place not in self.rows
        seq = self.rows[place] = self.store(place, new)
        if begins:
            kept = self.writes[place]
            self.writes[place] = {slot: (each, seq) for slot, (each, _) in kept.items()}
        return seq

    def label(self, place: Place, label: str) -> int:
        if self.labels.get(place) != label:
            self.seq += 1
            self.rows[place] = self.seq
            self.labels[place] = label
        return self.rows[place]

    def prune(self) -> None:
        heads = {ns: max(name for at, name in self.rows if at == ns) for ns, _ in self.rows}
        removed = [place for place in self.rows if heads[place[0]] != place[1]]
        self.seq += bool(removed)
        for place in removed:
            del self.rows[place]
            self.labels.pop(place, None)
            self.writes.pop(place, None)

    def expire(self) -> None:
        self.writes = {place: kept for place, kept in self.writes.items() if place in self.rows}

    @property
    def state(self) -> ThreadState:
        """State of the thread, computed from all writes at once."""
        head = max((name for ns, name in self.rows if not ns), default="")
        rows = [
            (each.task_id, each.channel, seq)
            for each, seq in (self.writes.get(("", head), {}) if head else {}).values()
        ]
        if any(channel == ERROR for _, channel, _ in rows):
            return ThreadState.FAILED
        asking = {task for task, channel, _ in rows if channel == INTERRUPT}
        ended = {task for task, channel, _ in rows if channel not in INDEXES}
        for task in asking - ended:
            question = max(seq for at, channel, seq in rows if (at, channel) == (task, INTERRUPT))
            own, common = (
                max(
                    (seq for at, channel, seq in rows if (at, channel) == (who, RESUME)), default=-1
                )
                for who in (task, NO_TASK)
            )
            # If equally old, an answer of the task counts as used, and an answer of no task as new.
            if own <= question and (common < question or (own >= 0 and common == question)):
                return ThreadState.INTERRUPTED
        return ThreadState.IDLE


def _same(left: StoredWrite, right: StoredWrite) -> bool:
    named = (left.digest, left.channel, left.task_path)
    return named == (right.digest, right.channel, right.task_path)


class Servers(World):
    """One server on SQLite; on PostgreSQL three servers that share the journal."""

    def __init__(self, database: str) -> None:
        super().__init__()
        self.clock = Clock()
        count = 3 if database == "postgresql" else 1
        self.journals = [self.enter(opened(self.directory, self.clock)) for _ in range(count)]


@pytest.fixture(scope="module")
def world(database: str) -> Iterator[Servers]:
    servers = Servers(database)
    yield servers
    servers.close()


async def follow(world: Servers, sent: Sequence[Step]) -> None:
    """Do the steps on random servers, and compare each outcome with the model's outcome."""
    model, thread_id = Model(), world.next_prefix() + "t"
    for name, at, arguments in sent:
        journal = world.journals[at % len(world.journals)]
        await _do(world, journal, model, thread_id, name, arguments)
        if model.seq:
            thread = await thread_of(journal, thread_id) if model.rows else None
            assert thread is None or (thread.seq, thread.state) == (model.seq, model.state)
    for ns, checkpoint_id in model.rows:
        for journal in world.journals:
            loaded = await journal.load(TENANT, key(checkpoint_id, thread_id, ns), View.FULL)
            assert loaded is not None
            kept = [each for each, _ in model.writes.get((ns, checkpoint_id), {}).values()]
            assert loaded.writes == tuple(sorted(as_loaded(*kept), key=write_order))


async def _do(
    world: Servers,
    journal: Journal,
    model: Model,
    thread_id: str,
    name: str,
    arguments: dict[str, Any],
) -> None:
    if name in ("writes", "save"):
        place, sent = arguments["place"], arguments["writes"]
        target = key(place[1], thread_id, place[0])
        saved = (
            made(journal.save_writes, TENANT, target, sent)
            if name == "writes"
            else made(
                journal.save_checkpoint,
                TENANT,
                draft(place[1], thread_id=thread_id, ns=place[0], writes=sent),
            )
        )
        try:
            seq = (model.save_writes if name == "writes" else model.save)(place, sent)
        except OverflowError:
            with pytest.raises(Refusal) as caught:
                await saved
            assert caught.value.reason is Reason.LIMIT_EXCEEDED
        else:
            assert (await saved).seq == seq
    elif name == "label" and arguments["place"] in model.rows:
        ns, checkpoint_id = arguments["place"]
        outcome = await journal.set_label(
            TENANT, key(checkpoint_id, thread_id, ns), arguments["label"]
        )
        assert outcome.seq == model.label(arguments["place"], arguments["label"])
    elif name == "prune" and model.rows:
        await journal.removal.prune_thread(TENANT, thread_id, PruneStrategy.KEEP_LATEST)
        model.prune()
    elif name == "expire":
        world.clock.advance(2 * TTL_S)
        await journal.removal.sweep(early_write_ttl_s=TTL_S)
        model.expire()
    elif name == "forget":
        await journal.database.transact(lambda batch: batch.logs.clear())


def test_what_is_decided_of_writes_equals_a_model(
    world: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(save, "LIMITS", replace(LIMITS, max_write_names=MAX_NAMES))

    @settings(max_examples=examples(database, 120), deadline=None)
    @given(sent=st.lists(steps(), min_size=4, max_size=30))
    def compared(sent: list[Step]) -> None:
        world.run(follow(world, sent))

    compared()
