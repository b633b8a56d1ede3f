"""Records about webhooks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ..v1 import webhook_service_pb2 as pb
from .records import moment


@dataclass(frozen=True, slots=True)
class WebhookRecord:
    """A webhook of the server.

    Attributes:
        name: Name of the webhook in the server's file.
        origin: Scheme, host and port of the address; the path may be a secret.
        events: Types of the events that the webhook gets, such as "thread.waiting".
        agents: Agents whose threads the webhook is for; empty: all.
        waiting: Number of events that wait and are not parked.
        parked: Number of parked events.
        oldest_waiting: Time of the oldest waiting event; `None` if none waits.
        last_error: Problem of the last failed attempt; empty if none failed.
    """

    name: str
    origin: str
    events: tuple[str, ...]
    agents: tuple[str, ...]
    waiting: int
    parked: int
    oldest_waiting: datetime | None
    last_error: str


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """An event that a webhook has not accepted.

    Attributes:
        delivery_id: Number of the delivery.
        message_id: The `webhook-id` of each attempt.
        event: Type of the event, such as "thread.waiting".
        thread_id: Thread of the event.
        created: Time of the event.
        attempts: Number of attempts so far.
        next_attempt: Earliest time of the next attempt; `None` if the event is parked.
        parked: Whether the event is parked.
        last_error: Problem of the last attempt; empty before the first.
    """

    delivery_id: int
    message_id: str
    event: str
    thread_id: str
    created: datetime
    attempts: int
    next_attempt: datetime | None
    parked: bool
    last_error: str


@dataclass(frozen=True, slots=True)
class WebhookTest:
    """How a webhook answered a test.

    Attributes:
        accepted: Whether the webhook accepted the event.
        status: HTTP status of the answer; 0 without an answer.
        problem: Problem, for people; empty if the event was accepted.
        duration: Time of the attempt.
    """

    accepted: bool
    status: int
    problem: str
    duration: timedelta


def webhook_record(message: pb.Webhook) -> WebhookRecord:
    """Return the record of a webhook."""
    has_oldest = message.HasField("oldest_waiting_time")
    return WebhookRecord(
        message.name,
        message.origin,
        tuple(map(event_type, message.events)),
        tuple(message.agents),
        message.waiting,
        message.parked,
        moment(message.oldest_waiting_time) if has_oldest else None,
        message.last_error,
    )


def webhook_delivery(message: pb.Delivery) -> WebhookDelivery:
    """Return the record of an event that a webhook has not accepted."""
    has_next = message.HasField("next_attempt_time")
    return WebhookDelivery(
        message.delivery_id,
        message.message_id,
        event_type(message.event),
        message.thread_id,
        moment(message.create_time),
        message.attempts,
        moment(message.next_attempt_time) if has_next else None,
        message.parked,
        message.last_error,
    )


def webhook_test(message: pb.TestWebhookResponse) -> WebhookTest:
    """Return the record of a test."""
    duration = message.duration.ToTimedelta()
    return WebhookTest(message.accepted, message.status, message.problem, duration)


def event_type(event: int) -> str:
    """Return the type of an event, or its number if only newer servers have the event."""
    if event not in pb.WebhookEvent.values():
        return str(event)
    name = pb.WebhookEvent.Name(pb.WebhookEvent.ValueType(event))
    return name.removeprefix("WEBHOOK_EVENT_").lower().replace("_", ".", 1)
