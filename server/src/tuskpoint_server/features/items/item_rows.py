"""Items of stores in the journal: put, read, find and expire.

An item is a checkpoint without values (`core.items`) and a row of `items` with the times of its
metadata. Only a read that postpones the expiry changes the row alone: the metadata follows when
less than half of the time is left in it, so that not every read must be certified. A recovered item
may therefore expire earlier, by at most half of the time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
)

from ...core.errors import Refusal
from ...core.items import (
    STATE,
    Admits,
    Item,
    ItemChange,
    ItemTimes,
    Namespace,
    decode,
    encode,
    namespace_of,
    thread_of,
    threads_below,
    value_in,
)
from ...core.limits import MIB
from ...core.search import Compare
from ...core.state import encode_names
from ...core.threads import EventKind
from ...journal.database.database import Database
from ...journal.database.thread_rows import CachedCheckpoint, Place, ThreadCacheEntry
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.removal import deletion
from ...journal.sql.statements import SqlRow, in_lists
from ...journal.values.integrity import damaged_rows
from .item_statements import (
    DROP_ITEMS,
    EXTEND,
    FIND,
    ITEM_COLUMNS,
    METADATA,
    MORE_VECTORS,
    NAMESPACES,
    NUMBERED,
    NUMBERS,
    OWED,
    PAST_ITEMS,
    PUT_ITEMS,
    SIZES,
    STANDING,
    VECTORS,
)

ANSWER_BYTES = 3 * MIB  # bytes of values after which an answer ends
_OVERHEAD = 64  # bytes of an item in a batch besides its value
_ALL = 2**62  # rows
_TOGETHER = 8  # items with several texts whose vectors are read at once
_PUT_OFF = 100  # least move of an expiry that is recorded, as a part of the time


class ItemPage(NamedTuple):
    """Found items; `cut`: their values are so large that the answer ends early."""

    items: list[Item]
    cut: bool


class ItemRows:
    """Items of stores. All calls are coroutines; each can refuse with `JOURNAL_UNAVAILABLE`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, tenant: str, changes: Sequence[ItemChange]) -> None:
        """Put and delete items in one transaction; an item's last change counts."""
        last = {(thread_of(change.namespace), change.key): change for change in changes}
        by_thread: dict[str, dict[str, ItemChange]] = defaultdict(dict)
        for (name, key), change in last.items():
            by_thread[name][key] = change

        def work(batch: UnitOfWork) -> None:
            batch.lock((tenant, name) for name in by_thread)
            for name, thread_changes in by_thread.items():
                _change(batch, tenant, name, thread_changes)

        size = sum(
            len(change.value) + sum(map(len, change.texts)) + _OVERHEAD for change in changes
        )
        await self._database.transact(work, size)

    async def get(
        self, tenant: str, keys: Sequence[tuple[Namespace, str]]
    ) -> tuple[list[Item], int]:
        """Return unexpired items, in the order of the keys, and the number of answered keys."""
        by_thread: dict[str, list[str]] = defaultdict(list)
        for namespace, key in keys:
            by_thread[thread_of(namespace)].append(key)
        now_us = self._database.now_us()

        def work(connection: Connection) -> tuple[list[Item], int]:
            numbers: dict[tuple[Namespace, str], int] = {}
            for name, thread_keys in by_thread.items():
                parameters = {"of_tenant": tenant, "of_name": name, "now_us": now_us}
                namespace = namespace_of(name)
                for key, number in FIND.run_listed(connection, thread_keys, **parameters):
                    numbers[namespace, key] = number
            unique_numbers = dict.fromkeys(
                numbers[item_key] for item_key in keys if item_key in numbers
            )
            page = _page(
                _items_by_number(connection, unique_numbers, {"now_us": now_us}),
                0,
                len(unique_numbers),
            )
            answered = {None, *list(unique_numbers)[: len(page.items)]}
            positions = (
                position
                for position, item_key in enumerate(keys)
                if numbers.get(item_key) not in answered
            )
            return page.items, next(positions, len(keys))

        return await self._database.query(work)

    async def latest(
        self, tenant: str, prefix: Namespace, admits: Admits | None, offset: int, limit: int
    ) -> ItemPage:
        """Return the items below a namespace that pass a filter, last put first."""
        parameters = self._below(tenant, prefix)

        def work(connection: Connection) -> ItemPage:
            max_rows = offset + limit if admits is None else _ALL
            rows = NUMBERS.run(connection, **parameters, max_rows=max_rows).fetchall()
            numbers = [row[0] for row in rows]
            if admits is None:
                return _page(_items_by_number(connection, numbers[offset:], parameters), 0, limit)
            return _page(_items_by_number(connection, numbers, parameters, admits), offset, limit)

        return await self._database.query(work)

    async def ranked(
        self, tenant: str, prefix: Namespace, admits: Admits | None, compare: Compare
    ) -> list[tuple[int, float | None]]:
        """Return the items below a namespace that pass a filter, best first.

        The nearest text of an item counts. Each result is a number, for `numbered`, and a score;
        items without a vector follow, last put first. `compare` is called in a thread.
        """
        parameters = self._below(tenant, prefix)

        def work(connection: Connection) -> list[tuple[int, float | None]]:
            rows = NUMBERS.run(connection, **parameters, max_rows=_ALL).fetchall()
            has_more: dict[int, bool] = dict(rows)
            numbers = list(has_more)
            if admits is not None:
                numbers = [
                    number for number, _ in _live_items(connection, numbers, parameters, admits)
                ]
            scores: dict[int, float] = {}
            for chunk in in_lists(numbers):
                several = [number for number in chunk if has_more[number]]
                queries = [(VECTORS, list(chunk))]
                queries += [
                    (MORE_VECTORS, several[start : start + _TOGETHER])
                    for start in range(0, len(several), _TOGETHER)
                ]
                for statement, group in queries:
                    for number, score in compare(list(statement.run_listed(connection, group))):
                        scores[number] = max(score, scores.get(number, score))
            numbers.sort(key=lambda number: -scores.get(number, -math.inf))  # the sort is stable
            return [(number, scores.get(number)) for number in numbers]

        return await self._database.query(work)

    async def numbered(self, numbers: Sequence[int]) -> tuple[ItemPage, list[int]]:
        """Return the unexpired items among some numbers, with their numbers, in order."""
        parameters = {"now_us": self._database.now_us()}

        def work(connection: Connection) -> tuple[ItemPage, list[int]]:
            numbers_read: list[int] = []

            def found() -> Iterator[Item]:
                for number, item in _live_items(connection, numbers, parameters):
                    numbers_read.append(number)
                    yield item

            page = _page(found(), 0, len(numbers))
            return page, numbers_read[: len(page.items)]

        return await self._database.query(work)

    async def awaits_vectors(self, tenant: str, prefix: Namespace) -> bool:
        """Return whether items below a namespace wait for vectors of the embedder."""
        rows = await self._database.rows(OWED, **self._below(tenant, prefix))
        return bool(rows)

    async def namespaces(self, tenant: str, prefix: Namespace) -> list[Namespace]:
        """Return the namespaces with items at and below a namespace, in order."""
        rows = await self._database.rows(NAMESPACES, **self._below(tenant, prefix))
        return sorted(namespace_of(name) for (name,) in rows)

    async def put_off(self, tenant: str, read: Sequence[Item]) -> list[Item]:
        """Restart the time of read items that expire; return the items with their new times."""
        now_us = self._database.now_us()
        keys_by_thread: dict[str, list[str]] = defaultdict(list)
        items: list[Item] = []
        for item in read:
            end_us = now_us + item.times.ttl_us
            before_us = item.times.expire_us
            if before_us is not None and (end_us - before_us) * _PUT_OFF >= item.times.ttl_us:
                keys_by_thread[thread_of(item.namespace)].append(item.key)
                items.append(replace(item, times=item.times._replace(expire_us=end_us)))
            else:
                items.append(item)

        def work(batch: UnitOfWork) -> None:
            batch.lock((tenant, name) for name in keys_by_thread)
            for name, keys in keys_by_thread.items():
                _put_off(batch, tenant, name, keys)

        if keys_by_thread:
            await self._database.transact(work)
        return items

    async def sweep(self) -> int:
        """Delete the expired items of all tenants; return their number."""
        count = 0
        while rows := await self._database.rows(PAST_ITEMS, now_us=self._database.now_us()):
            by_thread: dict[tuple[str, str], list[str]] = defaultdict(list)
            for tenant, name, key in rows:
                by_thread[tenant, name].append(key)

            def work(
                batch: UnitOfWork, by_thread: dict[tuple[str, str], list[str]] = by_thread
            ) -> int:
                batch.lock(by_thread)
                return sum(_drop_past(batch, *name, keys) for name, keys in by_thread.items())

            removed_count = await self._database.transact(work)
            count += removed_count
            if not removed_count:  # the items were put again in between
                break
        return count

    def _below(self, tenant: str, prefix: Namespace) -> dict[str, object]:
        name, first_name, past_name = threads_below(prefix)
        parameters = {
            "of_tenant": tenant,
            "of_name": name,
            "from_name": first_name,
            "past_name": past_name,
        }
        return {**parameters, "now_us": self._database.now_us()}


def recover(batch: UnitOfWork, log: ThreadCacheEntry, found: Iterable[tuple[str, bytes]]) -> None:
    """Insert the rows of recovered items, from their keys and metadata."""
    rows = [(log.row.number, key, *decode(metadata)) for key, metadata in found]
    PUT_ITEMS.run_rows(batch.connection, ITEM_COLUMNS, rows)


def _item(row: SqlRow, damage: Refusal | None) -> Item:
    """Return an item from a row of `READ_ITEM`."""
    name, key, *times, metadata = row
    value = value_in(metadata) if damage is None else b""
    return Item(namespace_of(name), key, value, ItemTimes(*times), damage)


def _live_items(
    connection: Connection,
    numbers: Iterable[int],
    parameters: Mapping[str, object],
    admits: Admits | None = None,
) -> Iterator[tuple[int, Item]]:
    """Yield the unexpired items among some numbers that pass the filter, in order."""
    now_us = parameters["now_us"]
    for chunk in in_lists(numbers):
        sizes: dict[int, int] = dict(SIZES.run_listed(connection, chunk))
        for group in _groups(chunk, sizes):
            rows = NUMBERED.run_listed(connection, group, now_us=now_us)
            contents = {row[0]: row[1:] for row in rows if admits is None or admits(row[-1])}
            damaged = damaged_rows(connection, contents)
            yield from (
                (number, _item(contents[number], damaged.get(number)))
                for number in group
                if number in contents
            )


def _groups(numbers: Iterable[int], sizes: Mapping[int, int]) -> Iterator[list[int]]:
    """Cut the numbers of items into groups whose values fit into memory."""
    group, size = list[int](), 0
    for number in numbers:
        group.append(number)
        size += sizes.get(number, 0)
        if size > ANSWER_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _items_by_number(*arguments: Any) -> Iterator[Item]:
    return (item for _, item in _live_items(*arguments))


def _page(items: Iterator[Item], offset: int, limit: int) -> ItemPage:
    page, size = list[Item](), 0
    for number, item in enumerate(items):
        if number < offset:
            continue
        if len(page) == limit or size > ANSWER_BYTES:
            return ItemPage(page, len(page) < limit)
        page.append(item)
        size += len(item.value)
    return ItemPage(page, cut=False)


def _item_times(
    batch: UnitOfWork, log: ThreadCacheEntry, keys: Iterable[str]
) -> dict[str, ItemTimes]:
    """Return the times of stored items, expired items included."""
    rows = STANDING.run_listed(batch.connection, keys, of_thread=log.row.number)
    return {key: ItemTimes(*times) for key, *times in rows}


def _change(batch: UnitOfWork, tenant: str, name: str, changes: dict[str, ItemChange]) -> None:
    log = batch.find(tenant, name)
    if log is None:
        if not any(change.value for change in changes.values()):
            return
        log = batch.begin(tenant, name)
    stored_items = {} if log.new else _item_times(batch, log, changes)
    rows: list[tuple[object, ...]] = []
    doomed: list[Place] = []
    for key, change in changes.items():
        if not change.value:
            continue
        old_times = stored_items.get(key)
        lived = old_times is not None and old_times.live_at(batch.now_us)
        created_us = old_times.created_us if old_times is not None and lived else batch.now_us
        end_us = batch.now_us + change.ttl_us if change.ttl_us else None
        more = max(0, len(change.texts) - 1)
        times = ItemTimes(created_us, batch.now_us, change.ttl_us, end_us, more)
        _store(batch, log, key, times, change.value, change.texts)
        old_count = 0 if old_times is None else 1 + old_times.more
        log.row.checkpoint_count += max(0, 1 + more - old_count)
        doomed += [(str(number), key) for number in range(1 + more, old_count)]
        rows.append((log.row.number, key, *times))
    PUT_ITEMS.run_rows(batch.connection, ITEM_COLUMNS, rows)
    gone_items = {
        key: stored_items[key]
        for key, change in changes.items()
        if not change.value and key in stored_items
    }
    _drop(batch, log, gone_items, doomed)


def _store(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    key: str,
    times: ItemTimes,
    value: bytes,
    texts: Sequence[str],
) -> None:
    """Store the checkpoint of an item, and the checkpoints of its further texts, as changes."""
    content = encode(times, value)
    for number, text in enumerate(texts or ("",)):
        place, metadata = (str(number or ""), key), b"{}" if number else content
        size = len(metadata) + len(STATE)
        seq = batch.change(log, EventKind.CHECKPOINT_SAVED, place, size_bytes=size, indexed=True)
        fields = (seq, "", STATE, metadata, "", "", encode_names(()), "", text, times.created_us)
        checkpoint = CachedCheckpoint(*fields)
        batch.put_checkpoint(log, place, checkpoint, before=batch.checkpoint(log, place))
        log.add(place, checkpoint)


def _drop(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    items: Mapping[str, ItemTimes],
    texts: Sequence[Place] = (),
) -> None:
    """Remove stored items, and unneeded texts of other items."""
    item_places = [
        (str(number or ""), key) for key, times in items.items() for number in range(1 + times.more)
    ]
    places = [*item_places, *texts]
    if not places:
        return
    DROP_ITEMS.run_rows(
        batch.connection, ("of_thread", "of_id"), [(log.row.number, key) for key in items]
    )
    deletion.drop_records(batch, log, places)


def _drop_past(batch: UnitOfWork, tenant: str, name: str, keys: Sequence[str]) -> int:
    """Remove the expired ones of some items; return their number."""
    log = batch.find(tenant, name)
    if log is None:
        return 0
    stored_items = _item_times(batch, log, keys)
    past_items = {
        key: times for key, times in stored_items.items() if not times.live_at(batch.now_us)
    }
    _drop(batch, log, past_items)
    return len(past_items)


def _put_off(batch: UnitOfWork, tenant: str, name: str, keys: Sequence[str]) -> None:
    log = batch.find(tenant, name)
    if log is None:
        return
    ends: list[tuple[int, int, str]] = []
    stored_items = _item_times(batch, log, keys)
    rows = METADATA.run_listed(batch.connection, stored_items, of_thread=log.row.number)
    for key, metadata, text in rows:
        times = stored_items[key]
        if times.expire_us is None or not times.live_at(batch.now_us):
            continue
        end_us = batch.now_us + times.ttl_us
        ends.append((end_us, log.row.number, key))
        recorded_us = decode(metadata).expire_us or 0
        if 2 * (recorded_us - batch.now_us) < times.ttl_us:
            _store(batch, log, key, times._replace(expire_us=end_us), value_in(metadata), [text])
    EXTEND.run_rows(batch.connection, ("new_us", "of_thread", "of_id"), ends)
