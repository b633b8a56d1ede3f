"""Applies and previews retention rules, with the same code.

Threads are read in pages, beside the writer. Each affected thread is changed in a transaction of
its own, which chooses again from the present thread.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import NamedTuple

from sqlalchemy import Connection, and_, bindparam, exists, func, select

from ...core.errors import Reason, Refusal
from ...journal.database.database import Database
from ...journal.database.thread_rows import Place, ThreadRef
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.removal import garbage_collection
from ...journal.removal.deletion import SUBGRAPH_CALL, delete_thread, remove_checkpoints
from ...journal.removal.delta_bases import Nodes, read_nodes
from ...journal.sql.schema import checkpoints, handoffs, members, threads, uses, writes
from ...journal.sql.statements import Statement, of_thread, of_users
from ...journal.values.contents import referred_digests
from ..lineage.subgraphs import stateful_namespaces, tied_subgraphs
from .rules import EVERY_TENANT, RetentionEffect, RetentionRule, rule_for

THREADS_AT_ONCE = 200  # threads that one read transaction reads
_MICROSECONDS = 1_000_000

_log = logging.getLogger(__name__)


class _Thread(NamedTuple):
    number: int
    tenant: str
    thread_id: str
    family: int
    agent_id: str
    updated_us: int
    checkpoint_count: int

    @property
    def ref(self) -> ThreadRef:
        """The thread to which rows are bound."""
        return ThreadRef(self.tenant, self.thread_id, self.number)


_TENANTS = Statement(select(threads.c.tenant).distinct())
_THREADS = Statement(
    select(*(threads.c[name] for name in _Thread._fields))
    .where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id > bindparam("after"),
        threads.c.deleted.is_(False),
        threads.c.checkpoint_count > 0,
        of_users(threads),
    )
    .order_by(threads.c.thread_id)
    .limit(THREADS_AT_ONCE)
)
_HANDED_OFF = Statement(
    select(handoffs.c.checkpoint_ns, handoffs.c.checkpoint_id).where(of_thread(handoffs))
)
# From the index alone: a namespace with no more checkpoints than the rule keeps loses none.
_LARGEST = Statement(
    select(func.count().label("many"))
    .where(of_thread(checkpoints))
    .group_by(checkpoints.c.checkpoint_ns)
    .order_by(func.count().desc())
    .limit(1)
)
_STATES = Statement(
    select(
        checkpoints.c.checkpoint_ns,
        checkpoints.c.checkpoint_id,
        checkpoints.c.state,
        checkpoints.c.delta_base,
        func.length(checkpoints.c.metadata),
    ).where(of_thread(checkpoints))
)
_WRITES = Statement(
    select(
        writes.c.checkpoint_ns,
        writes.c.checkpoint_id,
        func.sum(func.coalesce(func.length(writes.c.data), 0)),
    )
    .where(of_thread(writes))
    .group_by(writes.c.checkpoint_ns, writes.c.checkpoint_id)
)
_used_too = uses.alias("used_too")
_STORED = Statement(
    select(func.coalesce(func.sum(members.c.size), 0))
    .select_from(
        uses.join(
            members, and_(members.c.tenant == uses.c.tenant, members.c.sha256 == uses.c.segment)
        )
    )
    .where(
        of_thread(uses),
        ~exists().where(
            _used_too.c.tenant == uses.c.tenant,
            _used_too.c.segment == uses.c.segment,
            _used_too.c.thread != uses.c.thread,
        ),
    )
)


class RetentionRows:
    """Applies and previews retention rules. Every call can refuse with `JOURNAL_UNAVAILABLE`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def apply(self, rules: Sequence[RetentionRule]) -> tuple[int, int]:
        """Apply rules to all tenants; return the numbers of deleted threads and checkpoints."""
        thread_count, checkpoint_count = 0, 0
        tenants = [row[0] for row in await self._database.rows(_TENANTS)] if rules else []
        for tenant in tenants:
            tenant_rules = [rule for rule in rules if rule.tenant in (tenant, EVERY_TENANT)]
            if not tenant_rules:
                continue
            async for effect in self.effects(tenant, tenant_rules, sized=False):
                change = partial(_apply, tenant=tenant, name=effect.thread_id, rules=tenant_rules)
                try:
                    outcome = await self._database.transact(change)
                except Refusal as refusal:
                    _skip_damaged(refusal)
                    continue
                thread_count += outcome.thread_deleted
                checkpoint_count += outcome.checkpoints
        return thread_count, checkpoint_count

    async def effects(
        self, tenant: str, rules: Sequence[RetentionRule], *, sized: bool = True
    ) -> AsyncIterator[RetentionEffect]:
        """Yield the effects of rules by thread; with bytes if `sized`."""
        last_name: str | None = ""
        while last_name is not None:
            look = partial(_effects, tenant=tenant, rules=rules, after=last_name, sized=sized)
            page, last_name = await self._database.query(
                partial(look, now_us=self._database.now_us())
            )
            for effect in page:
                yield effect


def _apply(
    batch: UnitOfWork, tenant: str, name: str, rules: Sequence[RetentionRule]
) -> RetentionEffect:
    """Apply a rule to the present state of a thread."""
    log = batch.find(tenant, name)
    rule = rule_for(rules, log.row.agent_id, name) if log is not None else None
    if log is None or log.row.deleted or rule is None:
        return RetentionEffect(name)
    if _is_past(rule, log.row.updated_us, batch.now_us):
        return RetentionEffect(name, True, delete_thread(batch, tenant, name))
    if not rule.prunes:
        return RetentionEffect(name)
    choose = partial(
        doomed_checkpoints, batch.connection, log.row.number, rule=rule, now_us=batch.now_us
    )
    return RetentionEffect(name, False, remove_checkpoints(batch, tenant, name, choose))


def _skip_damaged(refusal: Refusal) -> None:
    """Log that a thread with damaged rows is skipped; raise any other refusal."""
    if refusal.reason is not Reason.JOURNAL_DAMAGED:
        raise refusal
    _log.error("no retention rule is applied: %s", refusal)


def _is_past(rule: RetentionRule, updated_us: int, now_us: int) -> bool:
    return bool(rule.delete_after_s) and updated_us + rule.delete_after_s * _MICROSECONDS <= now_us


def doomed_checkpoints(
    connection: Connection, thread: int, nodes: Nodes, rule: RetentionRule, now_us: int
) -> set[Place]:
    """Return the checkpoints of a thread that a rule deletes.

    The rule applies to roots, and to namespaces that no root ran. The calls of a subgraph stay with
    their root. A subgraph that keeps a state of its own keeps its latest checkpoint and the
    checkpoints that belong to remaining roots.
    """
    spared = set(_HANDED_OFF.run(connection, of_thread=thread).fetchall())
    spared |= {place for place, node in nodes.items() if node.label}
    spared |= {("", nodes[place].root_id) for place in spared if place in nodes}
    young_us = now_us - rule.keep_for_s * _MICROSECONDS
    by_namespace: dict[str, list[str]] = defaultdict(list)
    for namespace, checkpoint_id in nodes:
        by_namespace[namespace].append(checkpoint_id)
    kept: set[Place] = set()
    for namespace, names in by_namespace.items():
        last_names = set(sorted(names, reverse=True)[: max(rule.keep_last, 1)])
        for name in names:
            node = nodes[namespace, name]
            if node.root_id:
                if SUBGRAPH_CALL not in namespace and name == max(last_names):
                    kept.add(node.place)
            elif name in last_names or (rule.keep_for_s and node.created_us > young_us):
                kept.add(node.place)
    kept |= spared & nodes.keys()
    roots = {name for namespace, name in kept if not namespace}
    oldest = min(roots, default="")
    # A root that is not stored may still arrive, unless it is older than all kept roots.
    kept |= {
        node.place
        for node in nodes.values()
        if SUBGRAPH_CALL in node.checkpoint_ns
        and (node.root_id in roots or (("", node.root_id) not in nodes and node.root_id > oldest))
    }
    if nodes.keys() - kept and stateful_namespaces(connection, thread):
        for name in roots:
            kept |= tied_subgraphs(connection, thread, ("", name))
    return set(nodes.keys() - kept)


def _effects(
    connection: Connection,
    tenant: str,
    rules: Sequence[RetentionRule],
    after: str,
    now_us: int,
    *,
    sized: bool,
) -> tuple[list[RetentionEffect], str | None]:
    """Return the effects on the next threads, and the last name; `None`: no more threads."""
    rows = _THREADS.run(connection, of_tenant=tenant, after=after).fetchall()
    deletions: list[tuple[_Thread, bool, set[Place]]] = []
    for thread in map(_Thread._make, rows):
        rule = rule_for(rules, thread.agent_id, thread.thread_id)
        if rule is None:
            continue
        try:
            if _is_past(rule, thread.updated_us, now_us):
                places = set(read_nodes(connection, thread.ref)) if sized else set[Place]()
                deletions.append((thread, True, places))
            elif rule.prunes and (places := _chosen_checkpoints(connection, thread, rule, now_us)):
                deletions.append((thread, False, places))
        except Refusal as refusal:
            _skip_damaged(refusal)
    sizes = _journal_bytes(connection, deletions) if sized else {}
    effects = []
    for thread, is_whole, places in deletions:
        stored_bytes = 0
        if is_whole and sized:
            [(stored_bytes,)] = _STORED.run(connection, of_thread=thread.number).fetchall()
        fields = (
            thread.thread_id,
            is_whole,
            len(places),
            sizes.get(thread.number, 0),
            int(stored_bytes),
        )
        effects.append(RetentionEffect(*fields))
    return effects, rows[-1][2] if len(rows) == THREADS_AT_ONCE else None


def _chosen_checkpoints(
    connection: Connection, thread: _Thread, rule: RetentionRule, now_us: int
) -> set[Place]:
    [(count,)] = _LARGEST.run(connection, of_thread=thread.number).fetchall()
    if count <= max(rule.keep_last, 1):
        return set()
    nodes = read_nodes(connection, thread.ref)
    return doomed_checkpoints(connection, thread.number, nodes, rule, now_us)


def _journal_bytes(
    connection: Connection, deletions: Sequence[tuple[_Thread, bool, AbstractSet[Place]]]
) -> dict[int, int]:
    """Return the bytes that the journal can drop, by thread; shared values count once.

    Values that another thread of the family needs stay.
    """
    doomed_places = {thread.number: places for thread, _, places in deletions}
    families: dict[int, list[int]] = defaultdict(list)
    for thread, _, _ in deletions:
        families[thread.family].append(thread.number)
    sizes: dict[int, int] = defaultdict(int)
    for family, numbers in families.items():
        needed_digests: set[bytes] = set()
        dropped_digests: dict[int, set[bytes]] = {}
        for number, _, _ in garbage_collection.threads_of(connection, family):
            names: set[bytes] = set()
            for namespace, name, state, base, length in _STATES.run(
                connection, of_thread=number
            ).fetchall():
                if (namespace, name) in doomed_places.get(number, ()):
                    names |= referred_digests(state, base)
                    sizes[number] += len(state) + (length or 0)
                else:
                    needed_digests |= referred_digests(state, base)
            dropped_digests[number] = names
        values = _values(connection, family)
        for names in dropped_digests.values():
            names |= {frame for digest in names if (frame := values.get(digest, (None, 0))[0])}
        needed_digests |= {
            frame
            for digest in needed_digests
            if (frame := values.get(digest, (None, 0))[0]) is not None
        }
        for number in numbers:
            for digest in dropped_digests[number] - needed_digests:
                sizes[number] += values.get(digest, (None, 0))[1]
                needed_digests.add(digest)
            for namespace, name, length in _WRITES.run(connection, of_thread=number).fetchall():
                sizes[number] += int(length) if (namespace, name) in doomed_places[number] else 0
    return sizes


def _values(connection: Connection, family: int) -> dict[bytes, tuple[bytes | None, int]]:
    """Return the keyframe and the stored bytes of each value of a family."""
    values: dict[bytes, tuple[bytes | None, int]] = {}
    last_digest: bytes | None = b""
    while last_digest is not None:
        page, last_digest = garbage_collection.scan(connection, family, last_digest)
        values.update((value.digest, (value.keyframe, value.size)) for value in page)
    return values
