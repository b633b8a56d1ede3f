"""`WebhookService` on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from google.protobuf.duration_pb2 import Duration

from tuskpoint.v1 import webhook_service_pb2 as pb

from ..core.limits import LIMITS
from ..features.webhooks.deliveries import Delivery
from ..features.webhooks.webhooks import Webhooks, WebhookStatus
from .messages.convert import fill_fields, timestamp
from .messages.validation import Check, Checks
from .middleware.pipeline import Call, Fields

_MAX_NAME = 64


def _named(checks: Checks, request: pb.ListDeliveriesRequest | pb.TestWebhookRequest) -> None:
    checks.text("webhook", request.webhook, _MAX_NAME, required=True)


def _retry(checks: Checks, request: pb.RetryDeliveriesRequest) -> None:
    checks.text("webhook", request.webhook, _MAX_NAME, required=True)
    if checks.at_most("delivery_ids", len(request.delivery_ids), LIMITS.max_batch):
        for number, delivery_id in enumerate(request.delivery_ids):
            checks.at_most(f"delivery_ids[{number}]", delivery_id, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class WebhookServicer:
    """`WebhookService`: shows the webhooks and what waits for them."""

    checks: ClassVar[Mapping[str, Check]] = {
        "ListDeliveriesRequest": _named,
        "RetryDeliveriesRequest": _retry,
        "TestWebhookRequest": _named,
    }
    _webhooks: Webhooks

    async def ListWebhooks(self, request: pb.ListWebhooksRequest, call: Call) -> Fields:
        return {"webhooks": map(_status, await self._webhooks.list(call.tenant))}

    async def ListDeliveries(self, request: pb.ListDeliveriesRequest, call: Call) -> Fields:
        deliveries, next_token = await self._webhooks.deliveries(
            call.tenant,
            request.webhook,
            request.page_size,
            request.page_token,
            parked_only=request.parked_only,
        )
        return {"deliveries": map(self._delivery, deliveries), "next_page_token": next_token}

    async def RetryDeliveries(self, request: pb.RetryDeliveriesRequest, call: Call) -> Fields:
        numbers = list(request.delivery_ids)
        return {"retried": await self._webhooks.retry(call.tenant, request.webhook, numbers)}

    async def TestWebhook(self, request: pb.TestWebhookRequest, call: Call) -> Fields:
        attempt = await self._webhooks.test(call.tenant, request.webhook)
        duration = Duration()
        duration.FromMicroseconds(int(attempt.seconds * 1e6))
        return {
            "accepted": attempt.accepted,
            "status": attempt.status,
            "problem": attempt.problem,
            "duration": duration,
        }

    def _delivery(self, delivery: Delivery) -> pb.Delivery:
        message = fill_fields(pb.Delivery(), delivery)
        message.delivery_id = delivery.number
        message.message_id = self._webhooks.message_id(delivery)
        message.last_error = delivery.error
        if not delivery.parked:
            message.next_attempt_time.CopyFrom(timestamp(delivery.due_us))
        return message


def _status(status: WebhookStatus) -> pb.Webhook:
    """Return the message for a webhook."""
    hook, tally = status.webhook, status.tally
    message = pb.Webhook(
        name=hook.name,
        origin=hook.origin,
        events=[pb.WebhookEvent.Name(event) for event in sorted(hook.events)],
        agents=hook.agents,
        waiting=tally.waiting,
        parked=tally.parked,
        last_error=status.last_error,
    )
    if tally.oldest_us is not None:
        message.oldest_waiting_time.CopyFrom(timestamp(tally.oldest_us))
    return message
