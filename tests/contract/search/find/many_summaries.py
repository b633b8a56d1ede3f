"""A journal with many summaries, stored as saves and the indexer would store them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from tests.contract.search.kit import drain, save
from tests.kit.drafts import TENANT, key
from tests.kit.journal import Journal, bind_again
from tuskpoint_server.core.model import CheckpointKey
from tuskpoint_server.core.search import pointer_of
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql import full_text
from tuskpoint_server.journal.sql.schema import checkpoints, documents, threads, vectors
from tuskpoint_server.journal.sql.statements import Statement, insert_rows

PER_THREAD = 100
AT_ONCE = 10_000
AGENTS = 10

WRITERS = ("planner", "writer", "reviewer", "editor", "critic", "tester", "clerk")
DEEDS = ("drafted", "checked", "sent", "rejected", "approved")
THINGS = ("invoice", "letter", "report", "budget", "contract", "summary", "plan", "offer")

_STORE = {
    table: Statement(insert_rows(table)) for table in (threads, checkpoints, documents, vectors)
}


@dataclass(frozen=True, slots=True)
class One:
    """Properties of one of the checkpoints, by its place in the order."""

    place: int

    @property
    def thread_id(self) -> str:
        return f"t{self.place // PER_THREAD:05d}"

    @property
    def thread(self) -> int:
        """Number of the thread."""
        return self.place // PER_THREAD + 2

    @property
    def agent_id(self) -> str:
        return f"agent {self.place // PER_THREAD % AGENTS}"

    @property
    def key(self) -> CheckpointKey:
        return key(f"{self.place:08d}", self.thread_id)

    @property
    def summary(self) -> str:
        place = self.place
        who, did = WRITERS[place % len(WRITERS)], DEEDS[place % len(DEEDS)]
        return f"The {who} {did} the {THINGS[place % len(THINGS)]} INV-{place:06d}."

    def metadata(self, rare: int) -> dict[str, object]:
        """Return the metadata: half of the places are even, and `rare` has a field "rare"."""
        fields: dict[str, object] = {"source": "loop", "even": self.place % 2 == 0}
        if self.place == rare:
            fields["rare"] = "yes"
        return fields


@dataclass(frozen=True, slots=True)
class Many:
    """The stored checkpoints.

    Attributes:
        count: Number of checkpoints; each is known by its place, from 0.
        rare: Place of the checkpoint whose metadata has "rare".
        vectors: Vector of each checkpoint, by its place.
    """

    count: int
    rare: int
    vectors: NDArray[np.float32]


async def store_many(journal: Journal, count: int, dimension: int) -> Many:
    """Store checkpoints with documents and vectors, in a few large transactions."""
    await save(journal, "template", "template", thread_id="template", vector=(1.0,) * dimension)
    await drain(journal)
    rows = await journal.database.query(_templates)
    await journal.removal.delete_thread(TENANT, "template")
    made = np.random.default_rng(7).standard_normal((count, dimension), np.float32)
    many = Many(count, count * 7 // 9, made)
    places = iter(range(count))
    while chunk := list(islice(places, AT_ONCE)):
        await journal.database.transact(
            lambda batch, chunk=chunk: _store(batch, rows, many, chunk)  # type: ignore[misc]
        )
    await bind_again(journal.database)
    return many


_Row = dict[str, object]


def _templates(connection: Connection) -> dict[str, _Row]:
    return {
        table.name: dict(connection.execute(select(table)).mappings().one())
        for table in (threads, checkpoints, documents, vectors)
    }


def _store(batch: UnitOfWork, templates: dict[str, _Row], many: Many, places: list[int]) -> None:
    connection = batch.connection
    saved_checkpoints = [One(place) for place in places]
    first = {checkpoint.thread_id: checkpoint for checkpoint in saved_checkpoints}
    _STORE[threads].run_many(
        connection,
        [
            {
                **templates[threads.name],
                "number": checkpoint.thread,
                "thread_id": checkpoint.thread_id,
                "agent_id": checkpoint.agent_id,
            }
            for checkpoint in first.values()
        ],
    )
    checkpoint_columns = [
        {
            "thread": checkpoint.thread,
            "checkpoint_id": checkpoint.key.checkpoint_id,
            "number": checkpoint.place + 2,
        }
        for checkpoint in saved_checkpoints
    ]
    _STORE[checkpoints].run_many(
        connection,
        [
            {
                **templates[checkpoints.name],
                **where,
                "summary": checkpoint.summary,
                "metadata": json.dumps(checkpoint.metadata(many.rare)).encode(),
            }
            for checkpoint, where in zip(saved_checkpoints, checkpoint_columns, strict=True)
        ],
    )
    _STORE[documents].run_many(
        connection,
        [
            {
                **templates[documents.name],
                **where,
                "pointer": pointer_of(TENANT, "", checkpoint.key.checkpoint_id),
            }
            for checkpoint, where in zip(saved_checkpoints, checkpoint_columns, strict=True)
        ],
    )
    _STORE[vectors].run_many(
        connection,
        [
            {**templates[vectors.name], **where, "vector": many.vectors[checkpoint.place].tobytes()}
            for checkpoint, where in zip(saved_checkpoints, checkpoint_columns, strict=True)
        ],
    )
    full_text.add(
        connection,
        [
            (checkpoint.place + 2, checkpoint.thread, checkpoint.summary, "")
            for checkpoint in saved_checkpoints
        ],
    )
