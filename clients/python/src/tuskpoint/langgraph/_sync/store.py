# Written by `make sync` from _async/store.py; do not edit.
"""The store's operations."""

from __future__ import annotations

from collections.abc import Iterable

from langgraph.store.base import Op, Result

from .._operations import Batch, StoreBase, conditions, found_item


class SyncStore(StoreBase):
    """The store's operations."""

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations; return their results in their order.

        Operations that read see the items as they are before the batch. What it puts and deletes
        becomes visible together, or not at all; of several operations on an item the last counts.

        Raises:
            InvalidRequest: A value has a part that JSON cannot say, or an argument breaks its
                limits.
            TuskPointError: A call failed.
        """
        batch, client = Batch(ops, self._index_fields), self._client
        for refresh in (True, False):
            keys = batch.keys(refresh=refresh)
            if keys:
                batch.got(keys, client.get_items(keys.values(), refresh_ttl=refresh))
        for number, search in batch.searches.items():
            items = client.search_items(
                search.namespace_prefix,
                query=search.query,
                filter=search.filter,
                limit=max(1, search.limit),
                offset=search.offset,
                refresh_ttl=search.refresh_ttl,
            )
            batch.results[number] = [found_item(item) for item in items[: max(0, search.limit)]]
        for number, listing in batch.listings.items():
            namespaces = client.list_item_namespaces(
                conditions(listing),
                max_depth=listing.max_depth,
                limit=max(1, listing.limit),
                offset=listing.offset,
            )
            batch.results[number] = namespaces[: max(0, listing.limit)]
        client.put_items(batch.changes(), durability=self._durability)
        return batch.results
