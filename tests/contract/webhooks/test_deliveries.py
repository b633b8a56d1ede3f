"""Events that wait for webhooks: who gets them, and when they are dropped."""

from __future__ import annotations

import pytest

from tests.contract.leases.kit import acquire, keep, release
from tests.kit.drafts import TENANT
from tests.kit.journal import Clock, Journal
from tuskpoint_server.core.effects.decisions import BeginEffect
from tuskpoint_server.core.webhooks import EVERY_TENANT, Webhook, WebhookEvent
from tuskpoint_server.features.webhooks.deliveries import DAY_US, KEPT_DAYS, DeliveryRows

HOUR_US = 3600 * 1_000_000


@pytest.fixture
def deliveries(journal: Journal) -> DeliveryRows:
    use(journal, "ops", "left")
    return DeliveryRows(journal.database)


def use(journal: Journal, *names: str) -> None:
    """Send all events to webhooks of these names from now on."""
    url, events = "https://hooks.example.com/", frozenset(WebhookEvent)
    journal.database.subscriptions.replace(
        [Webhook(name, url, events, EVERY_TENANT, (), ()) for name in names], ""
    )


async def take_over(journal: Journal) -> None:
    """Make an event."""
    for owner in ("one", "two"):
        await acquire(journal, owner, takes_over=True)


async def waiting(deliveries: DeliveryRows, webhook: str) -> list[int]:
    """Return the numbers of a webhook's events."""
    page = await deliveries.page(TENANT, webhook, parked_only=False, after=0, most=100)
    return [event.number for event in page]


async def test_events_of_a_webhook_that_left_the_file_are_dropped_after_30_days(
    journal: Journal, deliveries: DeliveryRows, clock: Clock
) -> None:
    await take_over(journal)
    use(journal, "ops")
    for name in ("ops", "left"):
        assert len(await waiting(deliveries, name)) == 1
    assert [event.webhook for event in await deliveries.due(["ops"], clock(), 10)] == ["ops"]
    clock.advance(KEPT_DAYS * DAY_US / 1e6)
    assert await deliveries.sweep() == 0
    await take_over(journal)
    [event, *_] = await deliveries.due(["ops"], clock(), 10)
    await deliveries.accepted(event.number)
    clock.advance(1)
    assert await deliveries.sweep() == 1
    assert await waiting(deliveries, "left") == []
    assert len(await waiting(deliveries, "ops")) == 1


async def test_the_event_of_an_effect_is_due_when_its_lease_ends(
    journal: Journal, deliveries: DeliveryRows, clock: Clock
) -> None:
    lease = await acquire(journal, ttl_s=10)
    until_us = clock() + 10_000_000
    asked = BeginEffect("charge", "", b"", "r", "me", lease.lease_id, HOUR_US)
    await journal.effects.begin(TENANT, "t", asked, None)
    assert await deliveries.next_due_us(["ops"], clock()) == until_us
    clock.advance(5)
    await keep(journal, lease)  # the event is looked at when the former time is over
    effect = await journal.effects.get(TENANT, "t", "charge")
    assert effect.unknown_us == until_us + 5_000_000
    assert await deliveries.due(["ops"], clock(), 10) == []
    assert await release(journal, lease)
    [event] = await deliveries.due(["ops"], clock(), 10)
    assert (event.event, event.due_us) == (WebhookEvent.EFFECT_UNKNOWN, clock())


async def test_the_event_of_an_effect_without_a_lease_is_due_when_its_time_is_over(
    journal: Journal, deliveries: DeliveryRows, clock: Clock
) -> None:
    asked = BeginEffect("charge", "", b"", "r", "me", "", HOUR_US)
    await journal.effects.begin(TENANT, "t", asked, None)
    await release(journal, await acquire(journal, ttl_s=10))
    effect = await journal.effects.get(TENANT, "t", "charge")
    assert effect.unknown_us == clock() + HOUR_US
    [event] = await deliveries.due(["ops"], clock(), 10)  # looked at early, and put off again
    await deliveries.postponed(event.number, effect.unknown_us)
    assert await deliveries.due(["ops"], clock(), 10) == []
    assert await deliveries.next_due_us(["ops"], clock()) == effect.unknown_us
    clock.advance(3600)
    assert [late.number for late in await deliveries.due(["ops"], clock(), 10)] == [event.number]
