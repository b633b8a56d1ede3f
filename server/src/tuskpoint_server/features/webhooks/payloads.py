"""Payloads of events: what a receiver needs to act, and a link; no state of an agent.

A payload is made for each attempt from what the thread says then: the outbox has no content, so the
erasure of a thread leaves nothing of its content there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

from ...core.effects.records import EffectRecord
from ...core.threads import Thread
from ...core.webhooks import WebhookEvent
from ..inbox.offers import Offer
from .deliveries import Delivery


def message_id(journal_id: str, number: int) -> str:
    """Return the `webhook-id` of an event: the same for each attempt, on each server."""
    return f"msg_{journal_id.replace('-', '')}_{number}"


def payload(
    delivery: Delivery,
    thread: Thread,
    console_url: str,
    offer: Offer | None = None,
    effect: EffectRecord | None = None,
) -> bytes:
    """Return the payload of an event: a JSON object with `type`, `timestamp` and `data`.

    `console_url` is the address of the console; without it the payload has no link. `offer` is the
    offer of a hand-off, and `effect` the unknown effect.
    """
    data: dict[str, object] = {
        "tenant": delivery.tenant,
        "thread_id": delivery.thread_id,
        "agent_id": thread.agent_id,
        "seq": delivery.seq,
    }
    if offer is not None:
        data["handoff"] = {
            "handoff_id": offer.handoff_id,
            "to_agent": offer.to_agent,
            "state": offer.state.name.lower(),
        }
    elif effect is not None:
        data["effect"] = {
            "key": effect.key,
            "name": effect.name,
            "attempt": effect.attempt,
            "owner": effect.owner,
            "idempotency_key": effect.idempotency_key,
            "attempt_time": _time(effect.attempt_us),
        }
    elif delivery.checkpoint_id:
        data["checkpoint_id"] = delivery.checkpoint_id
        data["is_latest"] = delivery.checkpoint_id == thread.head_id
    if thread.summary:
        data["summary"] = thread.summary
    if delivery.event is WebhookEvent.THREAD_WAITING and thread.question is not None:
        question = thread.question
        data["question"] = {
            "interrupt_id": question.interrupt_id,
            "node": question.node,
            "text": question.text,
        }
    if delivery.event is WebhookEvent.THREAD_FAILED and thread.failure is not None:
        failure = thread.failure
        data["failure"] = {"node": failure.node, "type": failure.type, "message": failure.message}
    if delivery.event is WebhookEvent.LEASE_TAKEN_OVER and thread.lease is not None:
        data["lease"] = {"owner": thread.lease.owner}
    if console_url:
        data["url"] = f"{console_url.rstrip('/')}/thread?{urlencode(_page(data))}"
    return _encoded(delivery.event.type, delivery.created_us, data)


def _page(data: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters of the console's page: of the thread, or of an earlier checkpoint."""
    parameters = {"id": data["thread_id"]}
    if data.get("is_latest") is False:
        parameters["checkpoint"] = data["checkpoint_id"]
    return parameters


def test_payload(tenant: str, now_us: int) -> bytes:
    """Return the payload of a test, which is of no thread."""
    return _encoded("test", now_us, {"tenant": tenant})


def _encoded(kind: str, time_us: int, data: dict[str, object]) -> bytes:
    content = {"type": kind, "timestamp": _time(time_us), "data": data}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _time(time_us: int) -> str:
    time = datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="microseconds")
    return time.replace("+00:00", "Z")
