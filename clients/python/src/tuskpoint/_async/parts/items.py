"""Items: JSON objects that outlive threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..._messages import items
from ..._messages.items import (
    FoundItems,
    ItemChange,
    ItemRecord,
    Namespace,
    NamespaceEnd,
    found_items,
    item_record,
)
from ..._messages.records import DurabilityName
from ..._messages.requests import BATCH
from .part import AsyncPart


class AsyncItems(AsyncPart):
    """Items: JSON objects that outlive threads."""

    async def put_items(
        self, changes: Iterable[ItemChange], *, durability: DurabilityName = "journaled"
    ) -> None:
        """Put and delete items, all or none.

        Args:
            changes: At most 1,000; of several changes of an item the last one counts.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            InvalidRequest: A value has a part that JSON cannot say, or an argument breaks its
                limits.
            ResourceExhausted: A value is too large, or too much waits for certification.
        """
        request = items.putting(changes, durability)
        if request.changes:
            await self._calls.put_items(request)

    async def get_items(
        self, keys: Iterable[tuple[Iterable[str], str]], *, refresh_ttl: bool = False
    ) -> list[ItemRecord | None]:
        """Return an item for each key, `None` for those that do not exist or have expired.

        Args:
            keys: Namespaces and keys.
            refresh_ttl: Whether the time of those that expire begins anew.
        """
        item_keys = [(tuple(namespace), key) for namespace, key in keys]
        records: dict[tuple[Namespace, str], ItemRecord] = {}
        for start in range(0, len(item_keys), BATCH):
            request = items.getting(item_keys[start : start + BATCH], refresh_ttl=refresh_ttl)
            for message in await self._calls.get_items(request):
                record = item_record(message)
                records[record.namespace, record.key] = record
        return [records.get(item_key) for item_key in item_keys]

    async def search_items(
        self,
        namespace_prefix: Iterable[str] = (),
        *,
        query: str | None = None,
        filter: Mapping[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool = False,
    ) -> FoundItems:
        """Find the items below a namespace: nearest first, or without a query the last put.

        Args:
            namespace_prefix: The labels that namespaces begin with; none: all.
            query: What is looked for, by meaning. A server without an embedder does not compare
                it, and warns.
            filter: Only items whose value has all of these. A value such as `{"$gte": 3}` compares
                with an operator: `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`.
            limit: At most this many.
            offset: So many are passed over first.
            refresh_ttl: Whether the time of those that expire begins anew.

        Raises:
            InvalidRequest: An argument breaks its limits, or an operator is not known.
        """
        request = items.searching(
            namespace_prefix, filter, query, limit, offset, refresh_ttl=refresh_ttl
        )
        return found_items(await self._calls.search_items(request))

    async def list_item_namespaces(
        self,
        matching: Iterable[tuple[NamespaceEnd, Iterable[str]]] = (),
        *,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        """Return the namespaces that have items, in order.

        Args:
            matching: Only namespaces that have all of these: "prefix" or "suffix", and labels,
                in which "*" stands for any one.
            max_depth: Namespaces are cut to so many labels, and equal ones listed once.
            limit: At most this many.
            offset: So many are passed over first.

        Raises:
            InvalidRequest: An argument breaks its limits.
        """
        request = items.listing(matching, max_depth, limit, offset)
        namespaces = await self._calls.list_item_namespaces(request)
        return [tuple(namespace.labels) for namespace in namespaces]
