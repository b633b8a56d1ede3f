# Written by `make sync` from _async/parts/items.py; do not edit.
"""Methods about items: JSON objects that outlive threads."""

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
from .part import SyncPart


class SyncItems(SyncPart):
    """Methods about items: JSON objects that outlive threads."""

    def put_items(
        self, changes: Iterable[ItemChange], *, durability: DurabilityName = "journaled"
    ) -> None:
        """Put and delete items: all of them, or none if one fails.

        Args:
            changes: The changes, at most 1,000. If an item has several changes, the last one
                counts.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            InvalidRequest: A value has a part that JSON cannot express, or an argument breaks its
                limits.
            ResourceExhausted: A value is too large, or too much waits for certification.
        """
        request = items.putting(changes, durability)
        if request.changes:
            self._calls.put_items(request)

    def get_items(
        self, keys: Iterable[tuple[Iterable[str], str]], *, refresh_ttl: bool = False
    ) -> list[ItemRecord | None]:
        """Return an item for each key, or `None` if the item does not exist or has expired.

        Args:
            keys: The namespace and the key of each item.
            refresh_ttl: Whether the time to live of the returned items restarts.
        """
        item_keys = [(tuple(namespace), key) for namespace, key in keys]
        records: dict[tuple[Namespace, str], ItemRecord] = {}
        for start in range(0, len(item_keys), BATCH):
            request = items.getting(item_keys[start : start + BATCH], refresh_ttl=refresh_ttl)
            for message in self._calls.get_items(request):
                record = item_record(message)
                records[record.namespace, record.key] = record
        return [records.get(item_key) for item_key in item_keys]

    def search_items(
        self,
        namespace_prefix: Iterable[str] = (),
        *,
        query: str | None = None,
        filter: Mapping[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool = False,
    ) -> FoundItems:
        """Find the items below a namespace: nearest to the query first, else last put first.

        Args:
            namespace_prefix: First labels of the namespaces to search. Empty searches all
                namespaces.
            query: Text to compare with the items by meaning. A server without an embedder ignores
                the query and returns a warning.
            filter: Only items whose value has all of these keys with these values. A value such as
                `{"$gte": 3}` compares with an operator: `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`.
            limit: Most items to return.
            offset: Number of items to skip first.
            refresh_ttl: Whether the time to live of the returned items restarts.

        Raises:
            InvalidRequest: An argument breaks its limits, or an operator is not known.
        """
        request = items.searching(
            namespace_prefix, filter, query, limit, offset, refresh_ttl=refresh_ttl
        )
        return found_items(self._calls.search_items(request))

    def list_item_namespaces(
        self,
        matching: Iterable[tuple[NamespaceEnd, Iterable[str]]] = (),
        *,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        """Return the namespaces that have items, in order.

        Args:
            matching: Only namespaces that match all of these conditions: "prefix" or "suffix", and
                labels, where "*" stands for any label.
            max_depth: Most labels of a returned namespace. Longer namespaces are cut, and equal
                ones listed once.
            limit: Most namespaces to return.
            offset: Number of namespaces to skip first.

        Raises:
            InvalidRequest: An argument breaks its limits.
        """
        request = items.listing(matching, max_depth, limit, offset)
        namespaces = self._calls.list_item_namespaces(request)
        return [tuple(namespace.labels) for namespace in namespaces]
