from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Step(_message.Message):
    __slots__ = ("nodes", "changed_channels", "next_nodes", "questions", "failures", "tokens")
    NODES_FIELD_NUMBER: _ClassVar[int]
    CHANGED_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    NEXT_NODES_FIELD_NUMBER: _ClassVar[int]
    QUESTIONS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    changed_channels: _containers.RepeatedScalarFieldContainer[str]
    next_nodes: _containers.RepeatedScalarFieldContainer[str]
    questions: _containers.RepeatedCompositeFieldContainer[Question]
    failures: _containers.RepeatedCompositeFieldContainer[Failure]
    tokens: TokenUsage
    def __init__(self, nodes: _Optional[_Iterable[str]] = ..., changed_channels: _Optional[_Iterable[str]] = ..., next_nodes: _Optional[_Iterable[str]] = ..., questions: _Optional[_Iterable[_Union[Question, _Mapping]]] = ..., failures: _Optional[_Iterable[_Union[Failure, _Mapping]]] = ..., tokens: _Optional[_Union[TokenUsage, _Mapping]] = ...) -> None: ...

class Question(_message.Message):
    __slots__ = ("interrupt_id", "node", "text", "answered")
    INTERRUPT_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    interrupt_id: str
    node: str
    text: str
    answered: bool
    def __init__(self, interrupt_id: _Optional[str] = ..., node: _Optional[str] = ..., text: _Optional[str] = ..., answered: bool = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("node", "type", "message")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    node: str
    type: str
    message: str
    def __init__(self, node: _Optional[str] = ..., type: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class TokenUsage(_message.Message):
    __slots__ = ("input_tokens", "output_tokens")
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    input_tokens: int
    output_tokens: int
    def __init__(self, input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ...) -> None: ...
