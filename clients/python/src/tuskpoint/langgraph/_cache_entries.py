"""Entries of LangGraph's caches as items: namespaces, keys and values."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

from langgraph.cache.base import BaseCache, FullKey, Namespace, ValueT

from .._async.client import AsyncClient
from .._messages.arguments import invalid_field, is_unicode, wrong_type
from .._messages.items import ItemChange, ItemRecord
from .._messages.records import DurabilityName
from .._messages.requests import BATCH
from .._sync.client import Client

CACHE_LABEL = "langgraph.cache"
"""First label of the namespaces of all caches. LangGraph's stores refuse labels with a period."""

MAX_VALUE_BYTES = 786_000
"""Most bytes of a serialized value: base64 of more bytes is larger than an item may be."""

MAX_NAME_BYTES = 128
DAMAGED = "JOURNAL_DAMAGED"
CLEARED_ITEMS = 100  # items that a clear deletes with one call, because a search returns values
CENTURY_S = 100 * 365 * 86_400

_TYPE = CACHE_LABEL  # key of an item's value; searches of stores omit items with this key
_DATA = "data"
_HASHED = "sha256:"
_MAX_LABEL_BYTES = 350  # with the other labels, within the limit of a namespace
_MAX_KEY_BYTES = 512
_REQUEST_BYTES = 2 * 1024 * 1024

_log = logging.getLogger(__name__)

ItemName = tuple[Namespace, str]


class CacheBase(BaseCache[ValueT]):
    """State of a cache, which never changes, and the conversion between entries and items."""

    _client: Client
    _async_client: AsyncClient
    _durability: DurabilityName
    _name: str

    def _prefixes(self, namespaces: Sequence[Namespace] | None) -> list[Namespace]:
        """Return the namespaces of the items to clear; `None` means all items of this cache."""
        if namespaces is None:
            return [(CACHE_LABEL, self._name)]
        return [self._item_namespace(namespace) for namespace in namespaces]

    def _item_names(self, keys: Iterable[FullKey]) -> dict[FullKey, ItemName]:
        return {
            (tuple(namespace), key): (self._item_namespace(namespace), _item_key(key))
            for namespace, key in keys
        }

    def _item_namespace(self, namespace: Sequence[str]) -> Namespace:
        if isinstance(namespace, str) or not all(isinstance(label, str) for label in namespace):
            raise wrong_type("namespace", f"it must be a tuple of strings, not {namespace!r:.80}")
        text = json.dumps(list(namespace))
        label = text if len(text) <= _MAX_LABEL_BYTES else _digest(text)
        return (CACHE_LABEL, self._name, label)

    def _values(
        self, names: Iterable[FullKey], records: Iterable[ItemRecord | None]
    ) -> dict[FullKey, ValueT]:
        """Return the values of the entries that exist and can be decoded."""
        values: dict[FullKey, ValueT] = {}
        for name, record in zip(names, records, strict=True):
            if record is None:
                continue
            try:
                data = base64.b64decode(record.value[_DATA], validate=True)
                values[name] = self.serde.loads_typed((record.value[_TYPE], data))
            except Exception as error:  # noqa: BLE001 - a serializer may raise any error
                log_miss(record.namespace, record.key, error)
        return values

    def _requests(
        self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]
    ) -> Iterator[list[ItemChange]]:
        """Yield the changes that store entries, in groups that fit into a request each."""
        names = self._item_names(pairs)
        group, size = list[ItemChange](), 0
        for (namespace, key), (value, ttl) in pairs.items():
            change, change_bytes = self._change(names[tuple(namespace), key], value, ttl)
            if group and (len(group) == BATCH or size + change_bytes > _REQUEST_BYTES):
                yield group
                group, size = [], 0
            group.append(change)
            size += change_bytes
        if group:
            yield group

    def _change(self, name: ItemName, value: ValueT, ttl: int | None) -> tuple[ItemChange, int]:
        """Return the change that stores an entry, and its bytes.

        An entry that has expired already or is too large becomes a deletion.
        """
        if ttl is not None and ttl <= 0:
            return ItemChange(*name), 0
        kind, data = self.serde.dumps_typed(value)
        if len(kind) + len(data) > MAX_VALUE_BYTES:
            _log.warning(
                "cache entry %s of %s is not stored: %d bytes, and at most %d fit into an item",
                *(name[1], name[0], len(data), MAX_VALUE_BYTES),
            )
            return ItemChange(*name), 0
        text = base64.b64encode(data).decode()
        ttl_s = None if ttl is None or ttl > CENTURY_S else ttl
        return ItemChange(*name, {_TYPE: kind, _DATA: text}, ttl_s, index=False), len(text)


def check_name(name: object) -> str:
    """Return the name of a cache.

    Raises:
        InvalidRequest: The name is not a string, it is empty, too long, or has characters that a
            label of a namespace must not have.
    """
    if not isinstance(name, str):
        raise wrong_type("name", f"it must be a string, not {name!r:.80}")
    if not _is_plain(name, MAX_NAME_BYTES):
        problem = f"it must have 1 to {MAX_NAME_BYTES} bytes of UTF-8 without NUL, not {name!r:.80}"
        raise invalid_field("name", problem)
    return name


def log_miss(namespace: Namespace, key: str, error: Exception) -> None:
    """Log that an entry exists but counts as a miss."""
    _log.warning(
        "cache entry %s of %s cannot be read and counts as a miss: %s: %s",
        *(key, namespace, type(error).__name__, error),
    )


def log_damage(change: ItemChange, error: Exception) -> None:
    """Log that an entry is damaged and cannot be replaced."""
    _log.warning("cache entry %s of %s is not stored: %s", change.key, change.namespace, error)


def _item_key(key: str) -> str:
    if not isinstance(key, str):
        raise wrong_type("key", f"it must be a string, not {key!r:.80}")
    if _is_plain(key, _MAX_KEY_BYTES) and not key.startswith(_HASHED):
        return key
    return _digest(json.dumps(key))  # JSON in ASCII has a form for every string


def _is_plain(text: str, max_bytes: int) -> bool:
    return is_unicode(text) and 0 < len(text.encode()) <= max_bytes and "\0" not in text


def _digest(text: str) -> str:
    return _HASHED + hashlib.sha256(text.encode()).hexdigest()
