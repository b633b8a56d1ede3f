"""`StoreService` on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tuskpoint.v1 import errors_pb2
from tuskpoint.v1 import store_service_pb2 as store_pb

from ..core import items
from ..core.limits import KIB, LIMITS
from ..core.state import parse_object
from ..features.items.items import ItemQuery, Pattern, Store
from .messages.convert import BACKLOG_WARNING, damaged_warning, fill_fields
from .messages.validation import Check, Checks, limit_exceeded
from .middleware.pipeline import Call, Fields

_AT_ONCE = 64 * KIB  # bytes of values that are parsed on the event loop
_NAMESPACE, _LABELS = LIMITS.max_item_namespace, LIMITS.max_item_labels


def _namespace(checks: Checks, field: str, labels: Sequence[str]) -> None:
    checks.names(field, labels, _NAMESPACE, _LABELS, " labels")
    size = sum(len(label.encode(errors="surrogatepass")) + 1 for label in labels)
    checks.at_most(field, size, _NAMESPACE, " bytes, each label counted with one byte more")


def _check_item_name(
    checks: Checks, field: str, item: store_pb.ItemChange | store_pb.ItemKey
) -> None:
    if not item.namespace:
        checks.fail(f"{field}.namespace", "must not be empty")
    _namespace(checks, f"{field}.namespace", item.namespace)
    checks.text(f"{field}.key", item.key, LIMITS.max_item_key, required=True)


def _batch(checks: Checks, field: str, count: int) -> bool:
    if not count:
        checks.fail(field, "must not be empty")
    return checks.at_most(field, count, LIMITS.max_batch)


def _put_items(checks: Checks, request: store_pb.PutItemsRequest) -> None:
    if not _batch(checks, "changes", len(request.changes)):
        return
    for number, change in enumerate(request.changes):
        field = f"changes[{number}]"
        _check_item_name(checks, field, change)
        size = len(change.value_json)
        if size > LIMITS.max_item_value:
            maximum = LIMITS.max_item_value
            raise limit_exceeded(f"an item of {size} bytes", "max_item_value_bytes", maximum)
        if change.HasField("ttl"):
            seconds = change.ttl.seconds + change.ttl.nanos / 1e9
            if not 1e-6 <= seconds <= LIMITS.max_retention_s:
                problem = f"must be above 0, at most {LIMITS.max_retention_s} seconds"
                checks.fail(f"{field}.ttl", problem)
        if checks.at_most(f"{field}.index_paths", len(change.index_paths), LIMITS.max_item_paths):
            for place, path in enumerate(change.index_paths):
                path_field = f"{field}.index_paths[{place}]"
                checks.text(path_field, path, LIMITS.max_item_path, required=True)
                checks.fail(path_field, items.path_problem(path))


def _get_items(checks: Checks, request: store_pb.GetItemsRequest) -> None:
    if _batch(checks, "keys", len(request.keys)):
        for number, key in enumerate(request.keys):
            _check_item_name(checks, f"keys[{number}]", key)


def _search_items(checks: Checks, request: store_pb.SearchItemsRequest) -> None:
    _namespace(checks, "namespace_prefix", request.namespace_prefix)
    checks.at_most("limit", request.limit, LIMITS.max_page)


def _list_namespaces(checks: Checks, request: store_pb.ListItemNamespacesRequest) -> None:
    checks.at_most("limit", request.limit, LIMITS.max_page)
    if checks.at_most("patterns", len(request.patterns), LIMITS.max_item_paths):
        for number, pattern in enumerate(request.patterns):
            _namespace(checks, f"patterns[{number}].labels", pattern.labels)


@dataclass(frozen=True, slots=True)
class StoreServicer:
    """`StoreService`: keeps items that outlive threads."""

    checks: ClassVar[Mapping[str, Check]] = {
        "PutItemsRequest": _put_items,
        "GetItemsRequest": _get_items,
        "SearchItemsRequest": _search_items,
        "ListItemNamespacesRequest": _list_namespaces,
    }
    _store: Store

    async def PutItems(self, request: store_pb.PutItemsRequest, call: Call) -> Fields:
        if request.ByteSize() <= _AT_ONCE:
            changes = _changes(request)
        else:
            changes = await asyncio.to_thread(_changes, request)
        warns = await self._store.put(call.tenant, changes, call.wanted)
        return {"warnings": [BACKLOG_WARNING] if warns else []}

    async def GetItems(self, request: store_pb.GetItemsRequest, call: Call) -> Fields:
        keys = [(tuple(key.namespace), key.key) for key in request.keys]
        page, answered = await self._store.get(call.tenant, keys, refresh=request.refresh_ttl)
        return {"items": map(_item, page), "answered_keys": answered}

    async def SearchItems(self, request: store_pb.SearchItemsRequest, call: Call) -> Fields:
        query = ItemQuery(
            tuple(request.namespace_prefix),
            items.filter_condition(parse_object(request.filter_json, "filter_json")),
            request.query if request.query.strip() else "",
            request.offset,
            request.limit or LIMITS.default_items,
            request.refresh_ttl,
        )
        answer = await self._store.search(call.tenant, query)
        warnings = []
        if answer.fell_back:
            text = f"items were not compared with the query: {answer.fell_back}"
            kind = errors_pb2.WARNING_KIND_SEARCH_FELL_BACK
            warnings.append(errors_pb2.Warning(kind=kind, message=text))
        if answer.damaged:
            warnings.append(damaged_warning(answer.damaged))
        messages = [
            store_pb.FoundItem(item=_item(item), score=score)
            for item, score in zip(answer.items, answer.scores, strict=True)
        ]
        return {"items": messages, "cut": answer.cut, "warnings": warnings}

    async def ListItemNamespaces(
        self, request: store_pb.ListItemNamespacesRequest, call: Call
    ) -> Fields:
        patterns = [Pattern(tuple(pattern.labels), pattern.at_end) for pattern in request.patterns]
        namespaces = await self._store.namespaces(call.tenant, patterns, request.max_depth)
        page = namespaces[request.offset :][: request.limit or LIMITS.default_page]
        return {"namespaces": [store_pb.ItemNamespace(labels=labels) for labels in page]}


def _changes(request: store_pb.PutItemsRequest) -> list[items.ItemChange]:
    return list(_parse_changes(request.changes))


def _parse_changes(changes: Iterable[store_pb.ItemChange]) -> Iterable[items.ItemChange]:
    for number, change in enumerate(changes):
        item_key = (tuple(change.namespace), change.key)
        if not change.value_json:
            yield items.ItemChange(*item_key)
            continue
        value = items.parse_value(change.value_json, f"changes[{number}].value_json")
        texts = () if change.unindexed else items.texts_of(value, change.index_paths)
        ttl_us = change.ttl.ToMicroseconds() if change.HasField("ttl") else 0
        yield items.ItemChange(*item_key, change.value_json, ttl_us, texts)


def _item(item: items.Item) -> store_pb.Item:
    """Return the message for an item."""
    message = store_pb.Item(namespace=item.namespace, key=item.key, value_json=item.value)
    return fill_fields(message, item.times)
