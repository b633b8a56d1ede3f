# Written by `make sync` from _async/cache.py; do not edit.
"""The methods of the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from langgraph.cache.base import FullKey, Namespace, ValueT

from ..._messages.items import ItemChange, ItemRecord
from ...errors import DataLoss
from .._cache_entries import (
    CLEARED_ITEMS,
    DAMAGED,
    CacheBase,
    ItemName,
    log_damage,
    log_miss,
)


class SyncCache(CacheBase[ValueT]):
    """The methods of the cache."""

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """Return the values of the entries that exist and have not expired, by namespace and key.

        An entry that cannot be read or decoded is a miss; the client logs a warning.

        Raises:
            InvalidRequest: A label of a namespace, or a key, is not a string.
            TuskPointError: A call failed.
        """
        names = self._item_names(keys)
        return self._values(names, self._read([*names.values()]))

    def set(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """Store values, each with its time to live in seconds; `None` means forever.

        A time to live of 0 or less deletes the entry. A value whose serialized form is larger than
        786,000 bytes is not stored: the client logs a warning and deletes the older entry. An entry
        that is damaged in the server's journal cannot be replaced; the client logs a warning.

        Raises:
            InvalidRequest: A label of a namespace, or a key, is not a string.
            ResourceExhausted: Too much waits for certification, or the quota is reached.
            TuskPointError: A call failed. Part of the entries may be stored.
        """
        for changes in self._requests(pairs):
            self._write(changes)

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Delete the entries of namespaces, or all entries of this cache.

        Args:
            namespaces: The namespaces. Namespaces below them are not deleted. `None` means all
                namespaces of the cache with this name.

        Raises:
            InvalidRequest: A label of a namespace is not a string.
            TuskPointError: A call failed. Part of the entries may be deleted.
        """
        client = self._client
        for prefix in self._prefixes(namespaces):
            while records := client.search_items(prefix, limit=CLEARED_ITEMS):
                changes = [ItemChange(record.namespace, record.key) for record in records]
                client.put_items(changes, durability=self._durability)

    def _read(self, names: Sequence[ItemName]) -> list[ItemRecord | None]:
        """Return the items, or `None` for items that do not exist or are damaged."""
        if not names:
            return []
        try:
            return self._client.get_items(names)
        except DataLoss as error:
            if error.reason != DAMAGED:
                raise
            if len(names) == 1:
                log_miss(*names[0], error)
                return [None]
        # The server refuses the whole call; the halves find the damaged items.
        half = len(names) // 2
        return [*self._read(names[:half]), *self._read(names[half:])]

    def _write(self, changes: Sequence[ItemChange]) -> None:
        """Store the changes, except changes of damaged items."""
        try:
            self._client.put_items(changes, durability=self._durability)
            return
        except DataLoss as error:
            if error.reason != DAMAGED:
                raise
            if len(changes) == 1:
                log_damage(changes[0], error)
                return
        half = len(changes) // 2
        self._write(changes[:half])
        self._write(changes[half:])
