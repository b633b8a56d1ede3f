"""LangGraph's operations on stores: which calls they take, and records as LangGraph's items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


class StoreBase(BaseStore):
    """The state of a store, which never changes."""

    _client: Client
    _async_client: AsyncClient
    _durability: DurabilityName
    _index_fields: Sequence[str] | None


class Batch:
    """The operations of a batch by kind, and their results, `None` until they are known.

    Raises:
        TypeError: An operation is of a kind that is not known.
    """

    def __init__(self, operations: Iterable[Op], fields: Sequence[str] | None) -> None:
        self._fields = fields
        self.gets: dict[int, GetOp] = {}
        self.searches: dict[int, SearchOp] = {}
        self.listings: dict[int, ListNamespacesOp] = {}
        self._puts: dict[tuple[Namespace, str], PutOp] = {}
        self.results: list[Result] = []
        for number, one in enumerate(operations):
            self.results.append(None)
            if isinstance(one, GetOp):
                self.gets[number] = one
            elif isinstance(one, SearchOp):
                self.searches[number] = one
            elif isinstance(one, ListNamespacesOp):
                self.listings[number] = one
            elif isinstance(one, PutOp):
                self._puts[tuple(one.namespace), one.key] = one
            else:
                raise TypeError(f"{type(one).__name__} is no operation of a store")

    def keys(self, *, refresh: bool) -> dict[int, tuple[Namespace, str]]:
        """Return the items to be read whose time begins anew, or not, by number of operation."""
        return {
            number: (tuple(one.namespace), one.key)
            for number, one in self.gets.items()
            if one.refresh_ttl is refresh and one.namespace and one.key
        }

    def got(self, numbers: Iterable[int], found: Iterable[ItemRecord | None]) -> None:
        """Note the items that were read."""
        for number, one in zip(numbers, found, strict=True):
            self.results[number] = None if one is None else _item(one)

    def changes(self) -> list[ItemChange]:
        """Return what to put and to delete: of several operations on an item the last one."""
        return [
            ItemChange(
                namespace,
                key,
                one.value,
                None if one.ttl is None else one.ttl * 60,
                self._fields if one.index is None else one.index,
            )
            for (namespace, key), one in self._puts.items()
            if namespace or one.value is not None
        ]


def found_item(one: ItemRecord) -> SearchItem:
    """Return an item that a search found."""
    times = (one.created, one.updated)
    return SearchItem(one.namespace, one.key, one.value, *times, score=one.score)


def conditions(listing: ListNamespacesOp) -> list[tuple[NamespaceEnd, tuple[str, ...]]]:
    """Return the conditions of a listing as the client takes them."""
    return [(one.match_type, tuple(one.path)) for one in listing.match_conditions or ()]


def _item(one: ItemRecord) -> Item:
    return Item(
        value=one.value,
        key=one.key,
        namespace=one.namespace,
        created_at=one.created,
        updated_at=one.updated,
    )
