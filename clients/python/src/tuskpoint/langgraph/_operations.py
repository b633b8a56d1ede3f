"""LangGraph's operations on stores: client calls for a batch, and items from records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from .._async.client import AsyncClient
from .._messages.items import ItemChange, ItemRecord, Namespace, NamespaceEnd
from .._messages.records import DurabilityName
from .._sync.client import Client
from ._cache_entries import CACHE_LABEL


class StoreBase(BaseStore):
    """State of a store, which never changes."""

    _client: Client
    _async_client: AsyncClient
    _durability: DurabilityName
    _index_fields: Sequence[str] | None


class Batch:
    """The operations of a batch by kind, and their results, which are `None` until known.

    Raises:
        TypeError: An operation has an unknown kind.
    """

    def __init__(self, operations: Iterable[Op], fields: Sequence[str] | None) -> None:
        self._fields = fields
        self.gets: dict[int, GetOp] = {}
        self.searches: dict[int, SearchOp] = {}
        self.listings: dict[int, ListNamespacesOp] = {}
        self._puts: dict[tuple[Namespace, str], PutOp] = {}
        self.results: list[Result] = []
        for number, operation in enumerate(operations):
            self.results.append(None)
            if isinstance(operation, GetOp):
                self.gets[number] = operation
            elif isinstance(operation, SearchOp):
                self.searches[number] = operation
            elif isinstance(operation, ListNamespacesOp):
                self.listings[number] = operation
            elif isinstance(operation, PutOp):
                self._puts[tuple(operation.namespace), operation.key] = operation
            else:
                raise TypeError(f"{type(operation).__name__} is not an operation of a store")

    def keys(self, *, refresh: bool) -> dict[int, tuple[Namespace, str]]:
        """Return the items to read with or without a refresh, by number of operation."""
        return {
            number: (tuple(operation.namespace), operation.key)
            for number, operation in self.gets.items()
            if operation.refresh_ttl is refresh and operation.namespace and operation.key
        }

    def got(self, numbers: Iterable[int], records: Iterable[ItemRecord | None]) -> None:
        """Store the records as results of their operations."""
        for number, record in zip(numbers, records, strict=True):
            self.results[number] = None if record is None else _item(record)

    def changes(self) -> list[ItemChange]:
        """Return the puts and deletions: of several operations on an item, only the last."""
        return [
            ItemChange(
                namespace,
                key,
                operation.value,
                None if operation.ttl is None else operation.ttl * 60,
                self._fields if operation.index is None else operation.index,
            )
            for (namespace, key), operation in self._puts.items()
            if namespace or operation.value is not None
        ]


def found_item(record: ItemRecord) -> SearchItem:
    """Return LangGraph's item for a search result."""
    times = (record.created, record.updated)
    return SearchItem(record.namespace, record.key, record.value, *times, score=record.score)


def search_filter(search: SearchOp) -> Mapping[str, Any] | None:
    """Return the filter of a search; a search of all namespaces omits the entries of caches."""
    if search.namespace_prefix:
        return search.filter
    # The value of an entry has this key, and a key that a value lacks counts as null.
    return {CACHE_LABEL: None, **(search.filter or {})}


def visible(listing: ListNamespacesOp, namespaces: list[Namespace]) -> list[Namespace]:
    """Return the namespaces; omit namespaces of caches unless the listing names the caches."""
    for condition in listing.match_conditions or ():
        if condition.match_type == "prefix" and condition.path[:1] == (CACHE_LABEL,):
            return namespaces
    return [namespace for namespace in namespaces if namespace[0] != CACHE_LABEL]


def conditions(listing: ListNamespacesOp) -> list[tuple[NamespaceEnd, tuple[str, ...]]]:
    """Return the conditions of a listing in the form of the client."""
    return [
        (condition.match_type, tuple(condition.path))
        for condition in listing.match_conditions or ()
    ]


def _item(record: ItemRecord) -> Item:
    return Item(
        value=record.value,
        key=record.key,
        namespace=record.namespace,
        created_at=record.created,
        updated_at=record.updated,
    )
