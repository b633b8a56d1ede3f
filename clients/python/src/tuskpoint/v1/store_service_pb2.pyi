import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tuskpoint.v1 import checkpoint_pb2 as _checkpoint_pb2
from tuskpoint.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Item(_message.Message):
    __slots__ = ("namespace", "key", "value_json", "create_time", "update_time", "expire_time")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_JSON_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    namespace: _containers.RepeatedScalarFieldContainer[str]
    key: str
    value_json: bytes
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    def __init__(self, namespace: _Optional[_Iterable[str]] = ..., key: _Optional[str] = ..., value_json: _Optional[bytes] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ItemChange(_message.Message):
    __slots__ = ("namespace", "key", "value_json", "ttl", "index_paths", "unindexed")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_JSON_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    INDEX_PATHS_FIELD_NUMBER: _ClassVar[int]
    UNINDEXED_FIELD_NUMBER: _ClassVar[int]
    namespace: _containers.RepeatedScalarFieldContainer[str]
    key: str
    value_json: bytes
    ttl: _duration_pb2.Duration
    index_paths: _containers.RepeatedScalarFieldContainer[str]
    unindexed: bool
    def __init__(self, namespace: _Optional[_Iterable[str]] = ..., key: _Optional[str] = ..., value_json: _Optional[bytes] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., index_paths: _Optional[_Iterable[str]] = ..., unindexed: bool = ...) -> None: ...

class PutItemsRequest(_message.Message):
    __slots__ = ("changes", "durability")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[ItemChange]
    durability: _checkpoint_pb2.Durability
    def __init__(self, changes: _Optional[_Iterable[_Union[ItemChange, _Mapping]]] = ..., durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ...) -> None: ...

class PutItemsResponse(_message.Message):
    __slots__ = ("durability", "warnings")
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    durability: _checkpoint_pb2.Durability
    warnings: _containers.RepeatedCompositeFieldContainer[_errors_pb2.Warning]
    def __init__(self, durability: _Optional[_Union[_checkpoint_pb2.Durability, str]] = ..., warnings: _Optional[_Iterable[_Union[_errors_pb2.Warning, _Mapping]]] = ...) -> None: ...

class ItemKey(_message.Message):
    __slots__ = ("namespace", "key")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    namespace: _containers.RepeatedScalarFieldContainer[str]
    key: str
    def __init__(self, namespace: _Optional[_Iterable[str]] = ..., key: _Optional[str] = ...) -> None: ...

class GetItemsRequest(_message.Message):
    __slots__ = ("keys", "refresh_ttl")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    REFRESH_TTL_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[ItemKey]
    refresh_ttl: bool
    def __init__(self, keys: _Optional[_Iterable[_Union[ItemKey, _Mapping]]] = ..., refresh_ttl: bool = ...) -> None: ...

class GetItemsResponse(_message.Message):
    __slots__ = ("items", "answered_keys")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_KEYS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Item]
    answered_keys: int
    def __init__(self, items: _Optional[_Iterable[_Union[Item, _Mapping]]] = ..., answered_keys: _Optional[int] = ...) -> None: ...

class SearchItemsRequest(_message.Message):
    __slots__ = ("namespace_prefix", "filter_json", "query", "limit", "offset", "refresh_ttl")
    NAMESPACE_PREFIX_FIELD_NUMBER: _ClassVar[int]
    FILTER_JSON_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    REFRESH_TTL_FIELD_NUMBER: _ClassVar[int]
    namespace_prefix: _containers.RepeatedScalarFieldContainer[str]
    filter_json: bytes
    query: str
    limit: int
    offset: int
    refresh_ttl: bool
    def __init__(self, namespace_prefix: _Optional[_Iterable[str]] = ..., filter_json: _Optional[bytes] = ..., query: _Optional[str] = ..., limit: _Optional[int] = ..., offset: _Optional[int] = ..., refresh_ttl: bool = ...) -> None: ...

class FoundItem(_message.Message):
    __slots__ = ("item", "score")
    ITEM_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    item: Item
    score: float
    def __init__(self, item: _Optional[_Union[Item, _Mapping]] = ..., score: _Optional[float] = ...) -> None: ...

class SearchItemsResponse(_message.Message):
    __slots__ = ("items", "cut", "warnings")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[FoundItem]
    cut: bool
    warnings: _containers.RepeatedCompositeFieldContainer[_errors_pb2.Warning]
    def __init__(self, items: _Optional[_Iterable[_Union[FoundItem, _Mapping]]] = ..., cut: bool = ..., warnings: _Optional[_Iterable[_Union[_errors_pb2.Warning, _Mapping]]] = ...) -> None: ...

class NamespacePattern(_message.Message):
    __slots__ = ("labels", "at_end")
    LABELS_FIELD_NUMBER: _ClassVar[int]
    AT_END_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.RepeatedScalarFieldContainer[str]
    at_end: bool
    def __init__(self, labels: _Optional[_Iterable[str]] = ..., at_end: bool = ...) -> None: ...

class ListItemNamespacesRequest(_message.Message):
    __slots__ = ("patterns", "max_depth", "limit", "offset")
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    patterns: _containers.RepeatedCompositeFieldContainer[NamespacePattern]
    max_depth: int
    limit: int
    offset: int
    def __init__(self, patterns: _Optional[_Iterable[_Union[NamespacePattern, _Mapping]]] = ..., max_depth: _Optional[int] = ..., limit: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ItemNamespace(_message.Message):
    __slots__ = ("labels",)
    LABELS_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, labels: _Optional[_Iterable[str]] = ...) -> None: ...

class ListItemNamespacesResponse(_message.Message):
    __slots__ = ("namespaces",)
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    namespaces: _containers.RepeatedCompositeFieldContainer[ItemNamespace]
    def __init__(self, namespaces: _Optional[_Iterable[_Union[ItemNamespace, _Mapping]]] = ...) -> None: ...
