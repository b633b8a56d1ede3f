"""The batch operation of the store."""

from __future__ import annotations

from collections.abc import Iterable

from langgraph.store.base import ListNamespacesOp, Op, Result

from ..._messages.items import Namespace
from .._operations import Batch, StoreBase, conditions, found_item, search_filter, visible


class AsyncStore(StoreBase):
    """The batch operation of the store."""

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations; return their results in their order.

        Reads see the items before the batch. All puts and deletions of the batch become visible
        together, or not at all. Of several operations on an item the last counts.

        Raises:
            InvalidRequest: A value has a part that JSON cannot express, or an argument breaks its
                limits.
            TuskPointError: A call failed.
        """
        batch, client = Batch(ops, self._index_fields), self._async_client
        for refresh in (True, False):
            keys = batch.keys(refresh=refresh)
            if keys:
                batch.got(keys, await client.get_items(keys.values(), refresh_ttl=refresh))
        for number, search in batch.searches.items():
            items = await client.search_items(
                search.namespace_prefix,
                query=search.query,
                filter=search_filter(search),
                limit=max(1, search.limit),
                offset=search.offset,
                refresh_ttl=search.refresh_ttl,
            )
            batch.results[number] = [found_item(item) for item in items[: max(0, search.limit)]]
        for number, listing in batch.listings.items():
            batch.results[number] = await self._anamespaces(listing)
        await client.put_items(batch.changes(), durability=self._durability)
        return batch.results

    async def _anamespaces(self, listing: ListNamespacesOp) -> list[Namespace]:
        """Return the namespaces of a listing, without the namespaces of caches."""
        end = listing.offset + max(0, listing.limit)
        limit = max(1, end)
        while True:
            listed = await self._async_client.list_item_namespaces(
                conditions(listing), max_depth=listing.max_depth, limit=limit
            )
            namespaces = visible(listing, listed)
            if len(namespaces) >= end or len(listed) < limit:
                return namespaces[listing.offset : end]
            limit *= 2
