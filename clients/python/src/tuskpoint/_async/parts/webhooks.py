"""Methods about webhooks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from ..._messages.arguments import check_texts
from ..._messages.webhooks import (
    WebhookDelivery,
    WebhookRecord,
    WebhookTest,
    webhook_delivery,
    webhook_record,
    webhook_test,
)
from ..._transport import methods
from ...v1.webhook_service_pb2 import (
    ListDeliveriesRequest,
    ListWebhooksRequest,
    RetryDeliveriesRequest,
    TestWebhookRequest,
)
from .part import AsyncPart


class AsyncWebhooks(AsyncPart):
    """Methods about webhooks. All need the scope "admin"."""

    async def webhooks(self) -> list[WebhookRecord]:
        """Return the webhooks of the server, ordered by name."""
        answer = await self._calls.unary(methods.LIST_WEBHOOKS, ListWebhooksRequest())
        return [webhook_record(message) for message in answer.webhooks]

    async def webhook_events(
        self, webhook: str, *, parked_only: bool = False
    ) -> AsyncIterator[WebhookDelivery]:
        """Yield the events that a webhook has not accepted, oldest first.

        Raises:
            NotFound: The server has no webhook of this name, and no event waits for one.
        """
        check_texts(webhook=webhook)
        request = ListDeliveriesRequest(webhook=webhook, parked_only=parked_only)
        while True:
            page = await self._calls.unary(methods.LIST_DELIVERIES, request)
            for message in page.deliveries:
                yield webhook_delivery(message)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def retry_webhook(self, webhook: str, delivery_ids: Sequence[int] = ()) -> int:
        """Post parked events again; return their number.

        Args:
            webhook: Name of the webhook.
            delivery_ids: The events; default: all parked events of the webhook.

        Raises:
            NotFound: The server has no webhook of this name.
        """
        check_texts(webhook=webhook)
        request = RetryDeliveriesRequest(webhook=webhook, delivery_ids=delivery_ids)
        return (await self._calls.unary(methods.RETRY_DELIVERIES, request)).retried

    async def test_webhook(self, webhook: str) -> WebhookTest:
        """Post an event of the type `test` once, and return how the webhook answered.

        Raises:
            NotFound: The server has no webhook of this name.
        """
        check_texts(webhook=webhook)
        request = TestWebhookRequest(webhook=webhook)
        return webhook_test(await self._calls.unary(methods.TEST_WEBHOOK, request))
