"""The unit of work decides as the database would, however changes are divided into batches."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from tests.kit.databases import ask
from tests.kit.drafts import Reference, by_digest, channel, draft, key, write
from tests.kit.journal import Clock, Journal, World, made, opened
from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.core.model import SaveOutcome
from tuskpoint_server.core.search import pack_vector
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.features.checkpoints.incoming import IncomingCheckpoint
from tuskpoint_server.features.checkpoints.save import save_checkpoint
from tuskpoint_server.features.checkpoints.value_groups import Keyframes
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.database.writer import Writer
from tuskpoint_server.journal.sql.schema import metadata

Step = tuple[str, dict[str, Any]]
BASE = bytes(range(256)) * 20
"""A keyframe: similar values become patches."""

threads = st.sampled_from(("t", "t", "t", "u"))
namespaces = st.sampled_from(("", "", "inner"))
ids = st.sampled_from("abcd")
VALUES = {"1": b"1", "2": b"2", "large": BASE, "large 1": BASE + b"1", "large 2": BASE + b"2"}
values = st.sampled_from(tuple(VALUES))


def seldom(common: st.SearchStrategy[Any], *rare: object) -> st.SearchStrategy[Any]:
    """Draw a rare value about once in eight times: most rare values lead to a refusal."""
    return st.integers(0, 7).flatmap(lambda n: common if n else st.sampled_from(rare))


contents = seldom(values, Reference.INHERIT, Reference.EMPTY, None)
written = st.lists(
    st.tuples(
        st.sampled_from(("x", "__interrupt__", "__resume__", "__error__")),
        st.sampled_from((b"1", b"2")),
        st.sampled_from(("m", "n")),
        st.sampled_from((-3, -1, 0, 1)),
    ),
    max_size=3,
)


def steps() -> st.SearchStrategy[Step]:
    def step(name: str, /, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
        return st.tuples(st.just(name), st.fixed_dictionaries(arguments))

    save = step(
        "save",
        thread=threads,
        ns=namespaces,
        name=seldom(ids, ""),
        parent=st.one_of(ids, st.just("")),
        x=contents,
        y=contents,
        version=seldom(st.just(1), 2, "1"),
        writes=written,
        label=st.sampled_from(("", "l")),
        agent=st.sampled_from(("", "one")),
        head=seldom(st.none(), *"abcd", ""),
        vector=st.sampled_from((b"", b"", pack_vector((1.0, 0.0)))),
        searchable=seldom(st.none(), True, False),
    )
    names = seldom(ids, "")
    common_step = st.one_of(
        save, save, step("writes", thread=threads, ns=namespaces, name=ids, writes=written)
    )
    rare_step = st.one_of(
        step("label", thread=threads, ns=namespaces, name=names, label=st.sampled_from(("", "m"))),
        step("retain", thread=threads),
        step("delete", thread=threads),
        step("prune", thread=threads),
        step("fork", thread=threads, name=ids, target=threads),
        step("copy", thread=threads, target=threads),
        step("rollback", thread=threads, name=ids),
    )
    return st.integers(0, 4).flatmap(lambda n: common_step if n else rare_step)


class Entropy:
    """Numbers that restart where a test says so."""

    def __init__(self) -> None:
        self.numbers = itertools.count()

    def __call__(self) -> int:
        return next(self.numbers)


class Side:
    """A journal in which the steps are done in one way."""

    def __init__(self, journal: Journal, entropy: Entropy) -> None:
        self.journal = journal
        self.database = journal.database
        self.entropy = entropy
        self.keyframes = Keyframes()

    async def save(self, tenant: str, sent: IncomingCheckpoint, entropy: int) -> SaveOutcome:
        return await self.database.change(
            lambda batch: save_checkpoint(batch, tenant, sent, entropy)
        )

    def call(self, tenant: str, step: Step) -> Coroutine[Any, Any, Any]:
        """Return the call of a step; a save is packed at once.

        The values that are tried as patches depend on earlier refusals, which are known only if
        changes do not wait for one another.
        """
        name, arguments = step
        if name == "save":
            sent = draft_of(arguments)
            sent.pack(tenant, self.keyframes)
            return self.save(tenant, sent, self.database.random_bits())
        if name == "writes":
            checkpoint_key = key(arguments["name"], arguments["thread"], arguments["ns"])
            return made(self.journal.save_writes, tenant, checkpoint_key, writes_of(arguments))
        if name == "label":
            checkpoint_key = key(arguments["name"], arguments["thread"], arguments["ns"])
            return made(self.journal.set_label, tenant, checkpoint_key, arguments["label"])
        thread = arguments["thread"]
        calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "retain": lambda: self.journal.removal.set_retention(tenant, thread, 60),
            "delete": lambda: self.journal.removal.delete_thread(tenant, thread),
            "prune": lambda: self.journal.removal.prune_thread(
                tenant, thread, PruneStrategy.KEEP_LATEST
            ),
            "fork": lambda: self.journal.lineage.fork(
                tenant, key(arguments["name"], thread), arguments["target"], ""
            ),
            "copy": lambda: self.journal.lineage.copy_thread(
                tenant, thread, arguments["target"], ""
            ),
            "rollback": lambda: self.journal.lineage.rollback(
                tenant, key(arguments["name"], thread), "", None
            ),
        }
        return calls[name]()

    async def one_by_one(self, tenant: str, steps: Sequence[Step], *, forget: bool) -> list[Any]:
        """Commit each change in its own batch."""
        outcomes: list[Any] = []
        for call in [self.call(tenant, step) for step in steps]:
            if forget:
                await self.database.transact(lambda batch: batch.logs.clear())
            outcomes += await asyncio.gather(call, return_exceptions=True)
        return list(map(plain, outcomes))

    async def at_once(self, tenant: str, steps: Sequence[Step]) -> list[Any]:
        """Commit all changes in one batch."""
        loop, entered, released = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def hold(_batch: UnitOfWork) -> None:
            loop.call_soon_threadsafe(entered.set)
            assert released.wait(30)

        held = self.database.change(hold)
        await entered.wait()
        calls = [self.call(tenant, step) for step in steps]
        tasks = [await self.submitted(call) for call in calls]
        released.set()
        await held
        return list(map(plain, await asyncio.gather(*tasks, return_exceptions=True)))

    async def submitted(self, call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a call; return when its change waits for the writer, or when the call has ended."""
        waits, submit = asyncio.Event(), Writer.submit

        def tell(writer: Writer, *args: Any, **options: Any) -> asyncio.Future[Any]:
            waits.set()
            return submit(writer, *args, **options)

        with patch.object(Writer, "submit", tell):
            task = asyncio.ensure_future(call)
            task.add_done_callback(lambda _task: waits.set())
            await waits.wait()
        return task


def draft_of(arguments: dict[str, Any]) -> Any:
    channels = []
    for name in ("x", "y"):
        content = arguments[name]
        if content is None:
            channels.append(by_digest(name, b"1", arguments["version"]))
        else:
            channels.append(channel(name, VALUES.get(content, content), arguments["version"]))
    saved = draft(
        arguments["name"],
        arguments["parent"],
        tuple(channels),
        thread_id=arguments["thread"],
        ns=arguments["ns"],
        label=arguments["label"],
        agent_id=arguments["agent"],
        expected_head=arguments["head"],
        writes=writes_of(arguments),
    )
    return replace(saved, vector=arguments["vector"], searchable=arguments["searchable"])


def writes_of(arguments: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(
        write(name, data, task=task, idx=idx) for name, data, task, idx in arguments["writes"]
    )


def plain(outcome: Any) -> Any:
    """Return a comparable form of an outcome; a defect is raised."""
    if isinstance(outcome, Refusal):
        return outcome.reason, outcome.metadata
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


COUNTED = ("dirty_bytes", "added_bytes", "removed_bytes")
"""Counters of bytes: a repeated value counts as new unless its parent is remembered."""


TABLES = {
    "threads": "number = ?",
    "changes": "thread = ?",
    "removed": "thread = ?",
    "checkpoints": "thread = ?",
    "writes": "thread = ?",
    "search_vectors": "thread = ?",
    "contents": "family IN (SELECT family FROM threads WHERE number = ?)",
}


def rows_of(tenant: str) -> Callable[[Connection], dict[str, list[dict[str, Any]]]]:
    """Return a function that reads a tenant's rows, with threads and families numbered from 0."""

    def read(connection: Connection) -> dict[str, list[dict[str, Any]]]:
        of_tenant = "SELECT number FROM threads WHERE tenant = ? ORDER BY thread_id"
        numbers = [row[0] for row in ask(connection, of_tenant, tenant)]
        families: dict[int, int] = {}
        rows_by_table: dict[str, list[dict[str, Any]]] = {}
        for table, condition in TABLES.items():
            rows = []
            for number in numbers:
                names = [column.name for column in metadata.tables[table].columns]
                chosen = f"SELECT {', '.join(names)} FROM {table} WHERE {condition}"
                for values in ask(connection, chosen, number):
                    row = dict(zip(names, values, strict=True))
                    if table != "threads":
                        row.pop("number", None)
                        row["thread"] = numbers.index(row["thread"])
                    else:
                        row["number"] = numbers.index(row["number"])
                    if "family" in row:
                        row["family"] = families.setdefault(row["family"], len(families))
                    for left_out in ("tenant", "mac", "binding", *COUNTED):
                        row.pop(left_out, None)
                    rows.append(row)
            rows_by_table[table] = sorted(rows, key=repr)
        return rows_by_table

    return read


class Sides(World):
    """Three journals in which the same steps happen."""

    def __init__(self) -> None:
        super().__init__()
        self.sides = []
        for name in ("forgetful", "standalone", "together"):
            (self.directory / name).mkdir()
            entropy = Entropy()
            journal = self.enter(opened(self.directory / name, Clock(), entropy))
            self.sides.append(Side(journal, entropy))


@pytest.fixture(scope="module")
def world(database: str) -> Iterator[Sides]:
    opened = Sides()
    yield opened
    opened.close()


async def compare(world: Sides, steps: Sequence[Step]) -> None:
    tenant = world.next_prefix()
    forgetful, separate, together = world.sides
    for side in world.sides:
        side.entropy.numbers = itertools.count()
    outcomes = [
        await forgetful.one_by_one(tenant, steps, forget=True),
        await separate.one_by_one(tenant, steps, forget=False),
        await together.at_once(tenant, steps),
    ]
    assert outcomes[1] == outcomes[0]
    assert outcomes[2] == outcomes[0]
    tables = [await side.database.query(rows_of(tenant)) for side in world.sides]
    for name in TABLES:
        assert tables[1][name] == tables[0][name], name
        assert tables[2][name] == tables[0][name], name


@settings(max_examples=80, deadline=None)
@given(sequence=st.lists(steps(), min_size=4, max_size=24))
def test_it_decides_nothing_how_changes_fall_into_batches(
    world: Sides, sequence: list[Step]
) -> None:
    world.run(compare(world, sequence))
