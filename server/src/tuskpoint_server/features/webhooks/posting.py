"""The task that posts events to webhooks: a duty of the leader."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from ...core.effects.records import EffectState
from ...core.errors import Reason, Refusal
from ...core.pacing import doubled_pause
from ...core.webhooks import Subscriptions, Webhook, WebhookEvent
from ...journal.database.database import Waiter
from ...journal.failpoints import failpoint
from ..checkpoints.checkpoint_rows import CheckpointRows
from ..effects.effect_rows import EffectRows
from ..inbox.offer_rows import OfferRows
from .attempts import Attempt
from .deliveries import DAY_US, Delivery, DeliveryRows
from .payloads import message_id, payload
from .sending import Sender
from .telemetry import Totals, WebhookInstruments

AT_ONCE = 16  # attempts at the same time; fewer slow threads hold no other thread up
FIRST_RETRY_S, LONGEST_RETRY_S = 5.0, 3600.0
GATHER_S = 0.1  # least time between two looks for events
_LOOK_S = 1.0  # longest time between two looks: another server may have made an event
_COUNT_S = 5.0  # time between two counts of what waits, which read all events
_AFTER_TROUBLE_S = 5.0
_MILLION = 1_000_000
_GONE = (Reason.EFFECT_NOT_FOUND, Reason.THREAD_NOT_FOUND)

_log = logging.getLogger(__name__)


class _EarlyError(Exception):
    """An event is not true yet: the lease of its effect was extended."""

    def __init__(self, due_us: int) -> None:
        super().__init__()
        self.due_us = due_us


class WebhookPoster:
    """Posts events until cancelled. Events of a thread go to a webhook one after another."""

    def __init__(
        self,
        rows: DeliveryRows,
        threads: CheckpointRows,
        offers: OfferRows,
        effects: EffectRows,
        subscriptions: Subscriptions,
        sender: Sender,
        listen: Callable[[], AbstractContextManager[Waiter]],
    ) -> None:
        self._rows = rows
        self._threads = threads
        self._offers = offers
        self._effects = effects
        self._subscriptions = subscriptions
        self._sender = sender
        self._listen = listen
        self._totals: Totals = []
        self._changes: Waiter | None = None
        self._counted_s = -math.inf
        self._seen = -1  # events that the last look has seen
        self._running: dict[int, asyncio.Task[None]] = {}
        self._instruments = WebhookInstruments(lambda: self._totals, rows.now_us)

    async def run(self) -> None:
        """Post events as they come, and again after failures."""
        try:
            with self._listen() as changes:
                self._changes = changes
                while True:
                    await self._look(changes)
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _look(self, changes: Waiter) -> None:
        """Start what is due, then wait for a change, an outcome, or the next time."""
        wait_s = _LOOK_S
        try:
            hooks = {hook.name: hook for hook in self._subscriptions.webhooks}
            if hooks:
                wait_s = await self._start(hooks)
        except Refusal as refusal:
            _log.warning("events wait for webhooks: %s", refusal)
            wait_s = _AFTER_TROUBLE_S
        except Exception:  # noqa: BLE001 - a defect must not end the posting for good; it is logged
            _log.exception("the posting to webhooks failed")
            wait_s = _AFTER_TROUBLE_S
        end_s = time.monotonic() + max(wait_s, GATHER_S)
        while (left_s := end_s - time.monotonic()) > 0 and not self._has_news:
            await changes.wait(left_s)  # most changes make no event
        await asyncio.sleep(GATHER_S)

    @property
    def _has_news(self) -> bool:
        return self._seen != self._subscriptions.events

    async def _start(self, hooks: dict[str, Webhook]) -> float:
        """Start attempts; return the seconds until the next look."""
        self._seen = self._subscriptions.events
        if time.monotonic() - self._counted_s >= _COUNT_S:
            self._totals = await self._rows.totals()
            self._counted_s = time.monotonic()
        now_us = self._rows.now_us()  # one moment: nothing becomes due between the two reads
        free = AT_ONCE - len(self._running)
        if free > 0:
            for delivery in await self._rows.due(hooks, now_us, AT_ONCE + free):
                if delivery.number not in self._running and len(self._running) < AT_ONCE:
                    task = asyncio.create_task(self._post(hooks[delivery.webhook], delivery))
                    self._running[delivery.number] = task
        next_us = await self._rows.next_due_us(hooks, now_us)
        if next_us is None:
            return _LOOK_S
        return min(_LOOK_S, max(GATHER_S, (next_us - now_us) / _MILLION))

    async def _post(self, hook: Webhook, delivery: Delivery) -> None:
        """Post one event, and record the outcome."""
        try:
            await self._posted(hook, delivery)
        except Refusal as refusal:
            _log.warning("an event waits for webhook '%s': %s", hook.name, refusal)
            await asyncio.sleep(_AFTER_TROUBLE_S)
        except Exception:  # noqa: BLE001 - a defect must not end the posting for good; it is logged
            _log.exception("the posting to webhook '%s' failed", hook.name)
            await asyncio.sleep(_AFTER_TROUBLE_S)
        finally:
            del self._running[delivery.number]
            self._seen = -1  # the next event of the thread may go now
            if self._changes is not None:
                self._changes.wake()

    async def _posted(self, hook: Webhook, delivery: Delivery) -> None:
        try:
            body = await self._payload(delivery)
        except _EarlyError as early:
            due_us = max(early.due_us, self._rows.now_us() + int(_LOOK_S * _MILLION))
            await self._rows.postponed(delivery.number, due_us)
            return
        except Refusal as refusal:
            if refusal.reason in _GONE:  # removed since, and the event is void
                await self._rows.accepted(delivery.number)
                return
            if refusal.reason is not Reason.JOURNAL_DAMAGED:
                raise
            await self._failed(hook, delivery, Attempt(problem=str(refusal)))
            return
        if body is None:
            await self._rows.accepted(delivery.number)
            return
        attempt = await self._sender.post(
            hook, message_id(self._rows.journal_id, delivery.number), body
        )
        failpoint("webhooks.before_recorded")
        if attempt.accepted:
            await self._rows.accepted(delivery.number)
            self._instruments.attempted(hook.name, "accepted")
        else:
            await self._failed(hook, delivery, attempt)

    async def _payload(self, delivery: Delivery) -> bytes | None:
        """Return the payload of an event; `None` if the event is void.

        An event is void if its thread or its offer was removed, or its effect has ended.

        Raises:
            _EarlyError: The effect still runs.
        """
        detail = await self._threads.thread(delivery.tenant, delivery.thread_id)
        if detail is None:
            return None
        offer = effect = None
        if delivery.event is WebhookEvent.HANDOFF_OFFERED:
            stored = await self._offers.find(delivery.tenant, delivery.checkpoint_id)
            if stored is None:
                return None
            offer = stored.at(self._rows.now_us())
        if delivery.event is WebhookEvent.EFFECT_UNKNOWN:
            names = (delivery.tenant, delivery.thread_id, delivery.checkpoint_id)
            shown = await self._effects.get(*names)
            effect = shown.record
            # A later attempt, or a report that its outcome is unknown, makes another event.
            is_latest = delivery.created_us >= (effect.end_us or effect.attempt_us)
            if not is_latest or shown.state in (EffectState.DONE, EffectState.FAILED):
                return None
            if shown.state is EffectState.RUNNING:
                raise _EarlyError(shown.unknown_us)
        return payload(delivery, detail.thread, self._subscriptions.console_url, offer, effect)

    async def _failed(self, hook: Webhook, delivery: Delivery, attempt: Attempt) -> None:
        pause_s = doubled_pause(FIRST_RETRY_S, LONGEST_RETRY_S, delivery.attempts + 1)
        due_us = self._rows.now_us() + int(max(pause_s, attempt.retry_after_s) * _MILLION)
        parked = attempt.is_final or due_us - delivery.created_us > DAY_US
        await self._rows.failed(delivery.number, attempt.problem, due_us, parked=parked)
        self._instruments.attempted(hook.name, "parked" if parked else "failed")
        if parked or not delivery.attempts:
            _log.warning(
                "webhook '%s' did not accept event %s of tenant '%s' (%s); %s",
                *(
                    hook.name,
                    message_id(self._rows.journal_id, delivery.number),
                    delivery.tenant,
                    attempt.problem,
                ),
                "it is parked" if parked else "the server tries again",
            )
