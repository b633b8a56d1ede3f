import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WebhookEvent(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WEBHOOK_EVENT_UNSPECIFIED: _ClassVar[WebhookEvent]
    WEBHOOK_EVENT_THREAD_WAITING: _ClassVar[WebhookEvent]
    WEBHOOK_EVENT_THREAD_FAILED: _ClassVar[WebhookEvent]
    WEBHOOK_EVENT_THREAD_CERTIFIED: _ClassVar[WebhookEvent]
    WEBHOOK_EVENT_HANDOFF_OFFERED: _ClassVar[WebhookEvent]
    WEBHOOK_EVENT_EFFECT_UNKNOWN: _ClassVar[WebhookEvent]
    WEBHOOK_EVENT_LEASE_TAKEN_OVER: _ClassVar[WebhookEvent]
WEBHOOK_EVENT_UNSPECIFIED: WebhookEvent
WEBHOOK_EVENT_THREAD_WAITING: WebhookEvent
WEBHOOK_EVENT_THREAD_FAILED: WebhookEvent
WEBHOOK_EVENT_THREAD_CERTIFIED: WebhookEvent
WEBHOOK_EVENT_HANDOFF_OFFERED: WebhookEvent
WEBHOOK_EVENT_EFFECT_UNKNOWN: WebhookEvent
WEBHOOK_EVENT_LEASE_TAKEN_OVER: WebhookEvent

class Webhook(_message.Message):
    __slots__ = ("name", "origin", "events", "agents", "waiting", "parked", "oldest_waiting_time", "last_error")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_WAITING_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    origin: str
    events: _containers.RepeatedScalarFieldContainer[WebhookEvent]
    agents: _containers.RepeatedScalarFieldContainer[str]
    waiting: int
    parked: int
    oldest_waiting_time: _timestamp_pb2.Timestamp
    last_error: str
    def __init__(self, name: _Optional[str] = ..., origin: _Optional[str] = ..., events: _Optional[_Iterable[_Union[WebhookEvent, str]]] = ..., agents: _Optional[_Iterable[str]] = ..., waiting: _Optional[int] = ..., parked: _Optional[int] = ..., oldest_waiting_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_error: _Optional[str] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("delivery_id", "message_id", "event", "thread_id", "create_time", "attempts", "next_attempt_time", "parked", "last_error")
    DELIVERY_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_ATTEMPT_TIME_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    delivery_id: int
    message_id: str
    event: WebhookEvent
    thread_id: str
    create_time: _timestamp_pb2.Timestamp
    attempts: int
    next_attempt_time: _timestamp_pb2.Timestamp
    parked: bool
    last_error: str
    def __init__(self, delivery_id: _Optional[int] = ..., message_id: _Optional[str] = ..., event: _Optional[_Union[WebhookEvent, str]] = ..., thread_id: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attempts: _Optional[int] = ..., next_attempt_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., parked: bool = ..., last_error: _Optional[str] = ...) -> None: ...

class ListWebhooksRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWebhooksResponse(_message.Message):
    __slots__ = ("webhooks",)
    WEBHOOKS_FIELD_NUMBER: _ClassVar[int]
    webhooks: _containers.RepeatedCompositeFieldContainer[Webhook]
    def __init__(self, webhooks: _Optional[_Iterable[_Union[Webhook, _Mapping]]] = ...) -> None: ...

class ListDeliveriesRequest(_message.Message):
    __slots__ = ("webhook", "parked_only", "page_size", "page_token")
    WEBHOOK_FIELD_NUMBER: _ClassVar[int]
    PARKED_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    webhook: str
    parked_only: bool
    page_size: int
    page_token: str
    def __init__(self, webhook: _Optional[str] = ..., parked_only: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListDeliveriesResponse(_message.Message):
    __slots__ = ("deliveries", "next_page_token")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    next_page_token: str
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RetryDeliveriesRequest(_message.Message):
    __slots__ = ("webhook", "delivery_ids")
    WEBHOOK_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_IDS_FIELD_NUMBER: _ClassVar[int]
    webhook: str
    delivery_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, webhook: _Optional[str] = ..., delivery_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class RetryDeliveriesResponse(_message.Message):
    __slots__ = ("retried",)
    RETRIED_FIELD_NUMBER: _ClassVar[int]
    retried: int
    def __init__(self, retried: _Optional[int] = ...) -> None: ...

class TestWebhookRequest(_message.Message):
    __slots__ = ("webhook",)
    WEBHOOK_FIELD_NUMBER: _ClassVar[int]
    webhook: str
    def __init__(self, webhook: _Optional[str] = ...) -> None: ...

class TestWebhookResponse(_message.Message):
    __slots__ = ("accepted", "status", "problem", "duration")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    status: int
    problem: str
    duration: _duration_pb2.Duration
    def __init__(self, accepted: bool = ..., status: _Optional[int] = ..., problem: _Optional[str] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
