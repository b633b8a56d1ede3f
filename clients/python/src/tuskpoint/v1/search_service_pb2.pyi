from tuskpoint.v1 import checkpoint_pb2 as _checkpoint_pb2
from tuskpoint.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SearchMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEARCH_MODE_UNSPECIFIED: _ClassVar[SearchMode]
    SEARCH_MODE_LEXICAL: _ClassVar[SearchMode]
    SEARCH_MODE_VECTOR: _ClassVar[SearchMode]
    SEARCH_MODE_MEMWAL: _ClassVar[SearchMode]

class SearchMetric(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEARCH_METRIC_UNSPECIFIED: _ClassVar[SearchMetric]
    SEARCH_METRIC_COSINE: _ClassVar[SearchMetric]
    SEARCH_METRIC_L2: _ClassVar[SearchMetric]
SEARCH_MODE_UNSPECIFIED: SearchMode
SEARCH_MODE_LEXICAL: SearchMode
SEARCH_MODE_VECTOR: SearchMode
SEARCH_MODE_MEMWAL: SearchMode
SEARCH_METRIC_UNSPECIFIED: SearchMetric
SEARCH_METRIC_COSINE: SearchMetric
SEARCH_METRIC_L2: SearchMetric

class QueryVector(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class SearchCheckpointsRequest(_message.Message):
    __slots__ = ("text", "vector", "thread_id", "agent_id", "filter_json", "limit", "mode", "metric")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    FILTER_JSON_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    text: str
    vector: QueryVector
    thread_id: str
    agent_id: str
    filter_json: bytes
    limit: int
    mode: SearchMode
    metric: SearchMetric
    def __init__(self, text: _Optional[str] = ..., vector: _Optional[_Union[QueryVector, _Mapping]] = ..., thread_id: _Optional[str] = ..., agent_id: _Optional[str] = ..., filter_json: _Optional[bytes] = ..., limit: _Optional[int] = ..., mode: _Optional[_Union[SearchMode, str]] = ..., metric: _Optional[_Union[SearchMetric, str]] = ...) -> None: ...

class SearchResult(_message.Message):
    __slots__ = ("ref", "summary", "content", "metadata_json", "distance", "truncated")
    REF_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    DISTANCE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    ref: _checkpoint_pb2.CheckpointRef
    summary: str
    content: str
    metadata_json: bytes
    distance: float
    truncated: bool
    def __init__(self, ref: _Optional[_Union[_checkpoint_pb2.CheckpointRef, _Mapping]] = ..., summary: _Optional[str] = ..., content: _Optional[str] = ..., metadata_json: _Optional[bytes] = ..., distance: _Optional[float] = ..., truncated: bool = ...) -> None: ...

class SearchCheckpointsResponse(_message.Message):
    __slots__ = ("results", "mode", "metric", "unindexed_checkpoints", "truncated", "warnings")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    UNINDEXED_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SearchResult]
    mode: SearchMode
    metric: str
    unindexed_checkpoints: int
    truncated: bool
    warnings: _containers.RepeatedCompositeFieldContainer[_errors_pb2.Warning]
    def __init__(self, results: _Optional[_Iterable[_Union[SearchResult, _Mapping]]] = ..., mode: _Optional[_Union[SearchMode, str]] = ..., metric: _Optional[str] = ..., unindexed_checkpoints: _Optional[int] = ..., truncated: bool = ..., warnings: _Optional[_Iterable[_Union[_errors_pb2.Warning, _Mapping]]] = ...) -> None: ...
