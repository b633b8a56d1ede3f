"""Records and requests about items of stores. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from google.protobuf.duration_pb2 import Duration

from ..v1 import store_service_pb2 as store
from .arguments import check_text, encode_json, invalid_field, wrong_type
from .records import DurabilityName, moment
from .requests import BATCH, durability, metadata_json
from .search import MAX_LIMIT, SearchWarning, limit_sent, warning_of

Namespace = tuple[str, ...]
NamespaceEnd = Literal["prefix", "suffix"]

_ENDS = ("prefix", "suffix")


@dataclass(frozen=True, slots=True)
class ItemChange:
    """An item to put or to delete.

    Attributes:
        namespace: Namespace of the item, a path of labels.
        key: Key of the item in the namespace.
        value: Value of the item, a JSON object: strings, numbers, booleans, `None`, and lists and
            objects of these. Tuples become lists. `None` deletes the item.
        ttl_s: Seconds after which the item expires unless it is put again, or read with
            `refresh_ttl`. `None` means never.
        index: Parts of the value that a search by meaning compares: paths such as "text",
            "author.name", "notes[*].text"; "$" is the whole value. `None` means the whole value,
            `False` nothing.
    """

    namespace: Iterable[str]
    key: str
    value: Mapping[str, Any] | None = None
    ttl_s: float | None = None
    index: Literal[False] | Iterable[str] | None = None


@dataclass(frozen=True, slots=True)
class ItemRecord:
    """An item.

    Attributes:
        namespace: Namespace of the item.
        key: Key of the item in the namespace.
        value: Value of the item.
        created: Time of the first put.
        updated: Time of the last put.
        expires: Time of the item's expiry; `None` means never.
        score: Cosine of the angle between item and query in a search by meaning, at most 1; `None`
            if the item was not compared.
    """

    namespace: Namespace
    key: str
    value: dict[str, Any]
    created: datetime
    updated: datetime
    expires: datetime | None
    score: float | None = None


class FoundItems(list[ItemRecord]):
    """The items that a search found.

    Attributes:
        warnings: Warnings about this search, such as a query that was not compared.
    """

    def __init__(
        self, items: Iterable[ItemRecord] = (), *, warnings: tuple[SearchWarning, ...] = ()
    ) -> None:
        super().__init__(items)
        self.warnings = warnings


def putting(changes: Iterable[ItemChange], safe: DurabilityName) -> store.PutItemsRequest:
    """Return the request that puts and deletes items.

    Raises:
        InvalidRequest: A value has a part that JSON cannot express, or an argument cannot be sent.
    """
    request = store.PutItemsRequest(durability=durability(safe))
    for change in changes:
        message = request.changes.add(namespace=_labels("namespace", change.namespace))
        check_text("key", change.key)
        message.key = change.key
        if change.value is None:
            continue
        message.value_json = _value(change.value)
        if change.ttl_s is not None:
            message.ttl.CopyFrom(_duration(change.ttl_s))
        if change.index is False:
            message.unindexed = True
        elif change.index is not None:
            message.index_paths.extend(_labels("index", change.index))
    return request


def getting(
    keys: Sequence[tuple[Iterable[str], str]], *, refresh_ttl: bool
) -> store.GetItemsRequest:
    """Return the request that reads items.

    Raises:
        InvalidRequest: An argument cannot be sent.
    """
    request = store.GetItemsRequest(refresh_ttl=refresh_ttl)
    for namespace, key in keys[:BATCH]:
        check_text("key", key)
        request.keys.add(namespace=_labels("namespace", namespace), key=key)
    return request


def searching(
    namespace_prefix: Iterable[str],
    filter: Mapping[str, Any] | None,
    query: str | None,
    limit: int,
    offset: int,
    *,
    refresh_ttl: bool,
) -> store.SearchItemsRequest:
    """Return the request of a search. Its limit may be above the limit of one answer.

    Raises:
        InvalidRequest: An argument is of a wrong type, or cannot be sent.
    """
    check_text("query", "" if query is None else query)
    return store.SearchItemsRequest(
        namespace_prefix=_labels("namespace_prefix", namespace_prefix),
        filter_json=metadata_json(filter, "filter"),
        query=query or "",
        limit=limit_sent(limit),
        offset=_count("offset", offset),
        refresh_ttl=refresh_ttl,
    )


def page_of(request: store.SearchItemsRequest, count: int) -> store.SearchItemsRequest:
    """Return the request for the next page of a search that has returned `count` items."""
    page = store.SearchItemsRequest()
    page.CopyFrom(request)
    page.offset = min(request.offset + count, MAX_LIMIT)
    page.limit = min(request.limit - count, BATCH)
    return page


def namespaces_page(
    request: store.ListItemNamespacesRequest, count: int
) -> store.ListItemNamespacesRequest:
    """Return the request for the next page of a listing that has returned `count` namespaces."""
    page = store.ListItemNamespacesRequest()
    page.CopyFrom(request)
    page.offset = min(request.offset + count, MAX_LIMIT)
    page.limit = min(request.limit - count, BATCH)
    return page


def listing(
    matching: Iterable[tuple[NamespaceEnd, Iterable[str]]],
    max_depth: int | None,
    limit: int,
    offset: int,
) -> store.ListItemNamespacesRequest:
    """Return the request that lists namespaces.

    Raises:
        InvalidRequest: An argument is of a wrong type, or cannot be sent.
    """
    patterns = []
    for end, labels in matching:
        if end not in _ENDS:
            raise invalid_field("matching", f"it must be 'prefix' or 'suffix', not {end!r:.80}")
        at_end = end == "suffix"
        patterns.append(store.NamespacePattern(labels=_labels("matching", labels), at_end=at_end))
    return store.ListItemNamespacesRequest(
        patterns=patterns,
        max_depth=0 if max_depth is None else limit_sent(max_depth, "max_depth"),
        limit=limit_sent(limit),
        offset=_count("offset", offset),
    )


def item_record(message: store.Item, score: float | None = None) -> ItemRecord:
    """Return the record of an item message."""
    return ItemRecord(
        namespace=tuple(message.namespace),
        key=message.key,
        value=json.loads(message.value_json),
        created=moment(message.create_time),
        updated=moment(message.update_time),
        expires=moment(message.expire_time) if message.HasField("expire_time") else None,
        score=score,
    )


def found_items(answers: Sequence[store.SearchItemsResponse]) -> FoundItems:
    """Return the records in the answers of a search, page after page."""
    records = (
        item_record(result.item, result.score if result.HasField("score") else None)
        for answer in answers
        for result in answer.items
    )
    warnings = dict.fromkeys(
        warning_of(warning) for answer in answers for warning in answer.warnings
    )
    return FoundItems(records, warnings=tuple(warnings))


def _labels(what: str, labels: object) -> list[str]:
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise wrong_type(what, f"it must be a tuple of strings, not {labels!r:.80}")
    listed = list(labels)
    for label in listed:
        check_text(what, label)
    return listed


def _count(what: str, number: int) -> int:
    if number < 0:
        raise invalid_field(what, f"it must be 0 or more, not {number}")
    return limit_sent(number, what) if number else 0


def _duration(ttl_s: object) -> Duration:
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float) or not 0 < ttl_s < 1e10:
        problem = f"it must be a number of seconds above 0, at most 100 years, not {ttl_s!r:.80}"
        raise invalid_field("ttl_s", problem)
    duration = Duration()
    duration.FromTimedelta(max(timedelta(seconds=ttl_s), timedelta(microseconds=1)))
    return duration


def _value(value: Mapping[str, Any]) -> bytes:
    if not isinstance(value, Mapping):
        raise wrong_type("value", f"it must be a mapping, not {type(value).__name__}")
    return encode_json("value", dict(value))
