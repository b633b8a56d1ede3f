"""Lineage in a journal: closures, forks, rollbacks, adoptions, and who came from whom."""

from __future__ import annotations

from sqlalchemy import Connection

from ..domain.errors import Reason, Refusal, checkpoint_not_found
from ..domain.lineage import Closure, LineageTree
from ..domain.model import CheckpointKey, Saved
from . import adoptions, answers, closures, descent, grafts, rollbacks, threads
from .adoptions import decode_saved, encode_saved
from .journal import SqlJournal
from .lineage_api import Supplied

FORK, ROLLBACK = "ForkThread", "RollbackThread"


class Lineage:
    """Lineage in a `SqlJournal`; satisfies `lineage_api.LineageJournal`."""

    def __init__(self, journal: SqlJournal) -> None:
        self._journal = journal

    async def closure(self, tenant: str, key: CheckpointKey) -> Closure | None:
        """Return what is needed to go on; see `lineage_api.LineageJournal.closure`."""
        return await self._journal.query(
            lambda connection: closures.closure(connection, tenant, key)
        )

    async def lineage(self, tenant: str, thread_id: str, max_steps: int) -> LineageTree | None:
        """Return the steps; see `lineage_api.LineageJournal.lineage`."""
        return await self._journal.query(
            lambda connection: descent.tree(connection, tenant, thread_id, max_steps)
        )

    async def fork(self, tenant: str, key: CheckpointKey, target: str, request_id: str) -> Saved:
        """Make a thread of a checkpoint; see `lineage_api.LineageJournal.fork`."""
        now_us = self._journal.now_us()
        named = target or self._new_name()
        request = _Request(
            tenant,
            request_id,
            FORK,
            answers.fingerprint_of(FORK, *_fields(key), target),
            now_us,
        )
        return await self._journal.transact(
            lambda connection: (
                request.answered(connection)
                or request.answer(connection, _fork(connection, tenant, key, named, now_us))
            )
        )

    async def rollback(
        self,
        tenant: str,
        key: CheckpointKey,
        request_id: str,
        expected_head: str | None,
        supplied: Supplied,
    ) -> Saved:
        """Append an earlier state; see `lineage_api.LineageJournal.rollback`."""
        now_us = self._journal.now_us()
        entropy = self._journal.random_bits()
        guard = "" if expected_head is None else f"={expected_head}"
        request = _Request(
            tenant,
            request_id,
            ROLLBACK,
            answers.fingerprint_of(ROLLBACK, *_fields(key), guard),
            now_us,
        )
        return await self._journal.transact(
            lambda connection: (
                request.answered(connection)
                or request.answer(
                    connection,
                    _rollback(connection, tenant, key, expected_head, supplied, now_us, entropy),
                )
            ),
            size_bytes=sum(len(value.data) for value in supplied.values()),
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
        """Make a thread of what came; see `lineage_api.LineageJournal.adopt`."""
        now_us = self._journal.now_us()
        named = target or self._new_name()
        request = self._adoption(tenant, closure.key, sha256, target, agent_id, request_id, now_us)
        return await self._journal.transact(
            lambda connection: (
                request.answered(connection)
                or request.answer(
                    connection,
                    adoptions.adopt(connection, tenant, closure, named, agent_id, now_us),
                )
            ),
            size_bytes=adoptions.size_of(closure),
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
        """Return the first answer; see `lineage_api.LineageJournal.adopted`."""
        request = self._adoption(tenant, source, sha256, target, agent_id, request_id, 0)

        def look(connection: Connection) -> Saved | None:
            answered = request.answered(connection)
            if answered is None and target and grafts.is_taken(connection, tenant, target):
                raise Refusal(Reason.THREAD_EXISTS, thread_id=target)
            return answered

        return await self._journal.query(look)

    def _adoption(
        self,
        tenant: str,
        source: CheckpointKey,
        sha256: str,
        target: str,
        agent_id: str,
        request_id: str,
        now_us: int,
    ) -> _Request:
        asked = (source.thread_id, source.checkpoint_id, sha256, target, agent_id)
        fingerprint = answers.fingerprint_of(adoptions.METHOD, *asked)
        return _Request(tenant, request_id, adoptions.METHOD, fingerprint, now_us)

    def _new_name(self) -> str:
        """Return a name for a thread that nobody named."""
        return f"{self._journal.random_bits():016x}{self._journal.random_bits():016x}"


class _Request:
    """A request that may be a retry."""

    def __init__(
        self, tenant: str, request_id: str, method: str, fingerprint: bytes, now_us: int
    ) -> None:
        self._tenant = tenant
        self._request_id = request_id
        self._method = method
        self._fingerprint = fingerprint
        self._now_us = now_us

    def answered(self, connection: Connection) -> Saved | None:
        """Return the first answer, or `None`.

        Raises:
            Refusal: `REQUEST_ID_REUSED`.
        """
        answer = answers.first_answer(
            connection, self._tenant, self._request_id, self._method, self._fingerprint
        )
        return None if answer is None else decode_saved(answer)

    def answer(self, connection: Connection, saved: Saved) -> Saved:
        """Keep the answer for a retry, and return it."""
        answers.keep_answer(
            connection,
            self._tenant,
            self._request_id,
            self._method,
            self._fingerprint,
            encode_saved(saved),
            self._now_us,
        )
        return saved


def _fork(
    connection: Connection, tenant: str, key: CheckpointKey, target: str, now_us: int
) -> Saved:
    found = closures.named(connection, tenant, key)
    if found is None:
        raise _not_found(key)
    if target == key.thread_id:
        raise Refusal(Reason.THREAD_EXISTS, thread_id=target)
    origin = threads.lock(connection, tenant, key.thread_id)
    thread = grafts.begin(connection, tenant, target, now_us)
    if origin is not None:
        thread.agent_id, thread.unsearchable = origin.agent_id, origin.unsearchable
    parts = closures.parts(connection, tenant, found)
    grafts.copy_parts(connection, thread, parts, now_us, origins={found: str(found)})
    threads.review_head(connection, thread)
    threads.store(connection, thread, now_us)
    copied = CheckpointKey(target, found.checkpoint_ns, found.checkpoint_id)
    revision = threads.revision(connection, tenant, copied)
    return Saved(copied, revision, thread.seq, thread.incarnation, alone=len(parts) == 1)


def _rollback(
    connection: Connection,
    tenant: str,
    key: CheckpointKey,
    expected_head: str | None,
    supplied: Supplied,
    now_us: int,
    entropy: int,
) -> Saved:
    thread = threads.lock(connection, tenant, key.thread_id)
    target = rollbacks.source(connection, tenant, key)
    if thread is None or thread.deleted or target is None or target.hidden:
        raise _not_found(key)
    rollbacks.check_head(connection, thread, key.checkpoint_ns, expected_head)
    saved = rollbacks.roll_back(connection, thread, target, supplied, now_us, entropy)
    threads.store(connection, thread, now_us)
    return saved


def _not_found(key: CheckpointKey) -> Refusal:
    return checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)


def _fields(key: CheckpointKey) -> tuple[str, str, str]:
    return (key.thread_id, key.checkpoint_ns, key.checkpoint_id)
