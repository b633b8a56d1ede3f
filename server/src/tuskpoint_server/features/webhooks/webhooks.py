"""Calls on webhooks: list them and what waits, retry, test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.errors import Reason, Refusal
from ...core.webhooks import Subscriptions, Webhook
from ..cursors import page
from .attempts import Attempt
from .deliveries import Delivery, DeliveryRows, Tally
from .payloads import message_id, test_payload

if TYPE_CHECKING:  # it loads an HTTP client
    from .sending import Sender


@dataclass(frozen=True, slots=True)
class WebhookStatus:
    """A webhook, and what waits for it."""

    webhook: Webhook
    tally: Tally
    last_error: str


@dataclass(frozen=True, slots=True)
class Webhooks:
    """The webhooks of all tenants; `_sender` is `None` if the server has no webhooks."""

    _rows: DeliveryRows
    _subscriptions: Subscriptions
    _sender: Sender | None

    async def list(self, tenant: str) -> list[WebhookStatus]:
        """Return the webhooks that get events of a tenant, by name."""
        tallies = await self._rows.tallies(tenant)
        return [
            WebhookStatus(
                hook,
                tallies.get(hook.name, Tally()),
                await self._rows.last_error(tenant, hook.name) if hook.name in tallies else "",
            )
            for hook in sorted(self._subscriptions.webhooks, key=lambda hook: hook.name)
            if hook.is_for(tenant)
        ]

    async def deliveries(
        self, tenant: str, webhook: str, size: int, token: str, *, parked_only: bool
    ) -> tuple[Sequence[Delivery], str]:
        """Return a page of events that a webhook has not accepted, and the token of the next."""
        known = self._subscriptions.find(tenant, webhook) is not None
        # A webhook that left the file may have left events.
        if not known and webhook not in await self._rows.tallies(tenant):
            raise _not_found(webhook)
        listing = ("deliveries", self._rows.journal_id, tenant, webhook, parked_only)

        async def read(after: tuple[int] | tuple[()], most: int) -> Sequence[Delivery]:
            above = after[0] if after else 0
            return await self._rows.page(
                tenant, webhook, parked_only=parked_only, after=above, most=most
            )

        return await page(listing, size, token, read, lambda row: (row.number,), int)

    async def retry(self, tenant: str, webhook: str, numbers: Sequence[int]) -> int:
        """Let parked events wait again; without numbers all of the webhook's."""
        self._find(tenant, webhook)
        return await self._rows.retry(tenant, webhook, numbers)

    async def test(self, tenant: str, webhook: str) -> Attempt:
        """Post an event of a test once, and return how the webhook answered."""
        hook, now_us = self._find(tenant, webhook), self._rows.now_us()
        if self._sender is None:
            raise _not_found(webhook)
        body = test_payload(tenant, now_us)
        return await self._sender.post(hook, f"msg_test_{now_us}", body)

    def message_id(self, delivery: Delivery) -> str:
        """Return the `webhook-id` of an event."""
        return message_id(self._rows.journal_id, delivery.number)

    def _find(self, tenant: str, webhook: str) -> Webhook:
        hook = self._subscriptions.find(tenant, webhook)
        if hook is None:
            raise _not_found(webhook)
        return hook


def _not_found(webhook: str) -> Refusal:
    return Refusal(Reason.WEBHOOK_NOT_FOUND, webhook=webhook)
