"""Lineage, as the service calls it: closures, forks, copies, rollbacks, adoptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import astuple

from sqlalchemy import Connection

from ...domain.errors import Reason, Refusal
from ...domain.lineage import Closure, LineageTree
from ...domain.model import CheckpointKey, Saved
from ..database.database import Database
from ..database.logs import find_thread
from ..database.overlay import Batch
from . import answers, closures, descent, forks, insert, rollbacks
from .answers import Request, decode_saved, encode_saved
from .copies import Supplied

ADOPT, COPY, FORK = "AdoptHandoff", "CopyThread", "ForkThread"
ROLLBACK = "RollbackThread"

NOTHING: Supplied = {}


class Lineage:
    """Where checkpoints come from, and making new ones of others.

    All calls are coroutines and safe to use at the same time. A mutation returns after its
    commit is fsynced; cancelling the caller does not undo it. With a `request_id` a retry
    gets the first answer, and `REQUEST_ID_REUSED` refuses another request with the same ID.
    `ValuesEvicted` says that the call needs values that are not here: it is to be made again
    with these as `supplied`. `JOURNAL_UNAVAILABLE` can come from every call.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def closure(self, tenant: str, key: CheckpointKey) -> Closure | None:
        """Return what is needed to go on from a checkpoint; an empty ID means the latest.

        Where a value was evicted stands `EVICTED`. `None`: there is no such checkpoint.

        Raises:
            Refusal: `LIMIT_EXCEEDED` if it is larger than a bundle.
        """
        return await self._database.query(
            lambda connection: closures.closure(connection, tenant, key)
        )

    async def lineage(self, tenant: str, thread_id: str, max_steps: int) -> LineageTree | None:
        """Return the steps that lead to a thread and from it; `None` if there is none."""
        return await self._database.query(
            lambda connection: descent.tree(connection, tenant, thread_id, max_steps)
        )

    async def fork(
        self,
        tenant: str,
        key: CheckpointKey,
        target: str,
        request_id: str,
        supplied: Supplied = NOTHING,
    ) -> Saved:
        """Make a thread that begins with a checkpoint; an empty ID means the latest.

        An empty `target` means: make up a name.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`, `THREAD_EXISTS`, `REQUEST_ID_REUSED`.
            ValuesEvicted: It needs values that are not here.
        """
        named = target or self._new_name()
        return await self._saved(
            answers.request(tenant, request_id, FORK, *astuple(key), target),
            lambda batch: forks.fork(batch, tenant, key, named, supplied),
            size_of(supplied),
        )

    async def copy_thread(
        self,
        tenant: str,
        source: str,
        target: str,
        request_id: str,
        supplied: Supplied = NOTHING,
    ) -> int:
        """Copy a thread with all its checkpoints; return how many there are.

        Raises:
            Refusal: `THREAD_NOT_FOUND`, `THREAD_EXISTS`, `REQUEST_ID_REUSED`.
            ValuesEvicted: It needs values that are not here.
        """
        request = answers.request(tenant, request_id, COPY, source, target)

        def copy(batch: Batch) -> int:
            return forks.copy_thread(batch, tenant, source, target, supplied)

        return await self._database.transact(
            lambda batch: request.once(batch, copy, lambda count: b"%d" % count, int),
            size_of(supplied),
        )

    async def rollback(
        self,
        tenant: str,
        key: CheckpointKey,
        request_id: str,
        expected_head: str | None,
        supplied: Supplied = NOTHING,
    ) -> Saved:
        """Append a checkpoint with the state of an earlier one.

        `expected_head` is the required latest ID of the namespace; `None` does not ask.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`, `HEAD_MOVED`, `REQUEST_ID_REUSED`,
                `INVALID_FIELD` (no ID can be minted).
            ValuesEvicted: It needs values that are not here.
        """
        guard = "" if expected_head is None else f"={expected_head}"
        entropy = self._database.random_bits()
        return await self._saved(
            answers.request(tenant, request_id, ROLLBACK, *astuple(key), guard),
            lambda batch: rollbacks.rollback_to(
                batch, tenant, key, expected_head, supplied, entropy
            ),
            size_of(supplied),
        )

    async def adopt(
        self,
        tenant: str,
        closure: Closure,
        sha256: str,
        target: str,
        agent_id: str,
        request_id: str,
    ) -> Saved:
        """Make a thread of a closure from elsewhere, with all its values.

        The lineage of its checkpoint says `adopted_from`. `sha256` is the descriptor's hash;
        an empty `target` means: make up a name.

        Raises:
            Refusal: `THREAD_EXISTS`, `REQUEST_ID_REUSED`.
        """
        new = await asyncio.to_thread(forks.adoptable, closure)
        named = target or self._new_name()
        return await self._saved(
            _adoption(tenant, closure.key, sha256, target, agent_id, request_id),
            lambda batch: forks.adopt(batch, tenant, closure.key, new, named, agent_id),
            sum(one.new_bytes for one in new),
        )

    async def adopted(
        self,
        tenant: str,
        source: CheckpointKey,
        sha256: str,
        target: str,
        agent_id: str,
        request_id: str,
    ) -> Saved | None:
        """Return the first answer of `adopt` under this `request_id`; `None` if it is new.

        So that a retry fetches nothing. The arguments are those that make the request
        what it is.

        Raises:
            Refusal: `REQUEST_ID_REUSED`; `THREAD_EXISTS` if it is new and the target has
                checkpoints.
        """
        request = _adoption(tenant, source, sha256, target, agent_id, request_id)

        def look(connection: Connection) -> Saved | None:
            answered = request.first_answer(connection)
            if answered is not None:
                return decode_saved(answered)
            found = find_thread(connection, tenant, target) if target else None
            if found is not None and insert.is_taken(connection, found.number):
                raise Refusal(Reason.THREAD_EXISTS, thread_id=target)
            return None

        return await self._database.query(look)

    async def _saved(
        self, request: Request, work: Callable[[Batch], Saved], size_bytes: int
    ) -> Saved:
        return await self._database.transact(
            lambda batch: request.once(batch, work, encode_saved, decode_saved), size_bytes
        )

    def _new_name(self) -> str:
        """Return a name for a thread that nobody named."""
        return f"{self._database.random_bits():016x}{self._database.random_bits():016x}"


def _adoption(
    tenant: str, source: CheckpointKey, sha256: str, target: str, agent_id: str, request_id: str
) -> Request:
    asked = (source.thread_id, source.checkpoint_id, sha256, target, agent_id)
    return answers.request(tenant, request_id, ADOPT, *asked)


def size_of(supplied: Supplied) -> int:
    """Return the bytes of values that were read, for the bound of a batch."""
    return sum(len(value.data) for value in supplied.values())
