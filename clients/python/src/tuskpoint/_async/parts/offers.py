"""Methods about the inboxes of agents: offers of hand-offs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from ..._messages.lineage import offers
from ..._messages.lineage.handoffs import Adoption, AdoptionCollector, AdoptProgress
from ..._messages.lineage.offers import OfferRecord, OfferState
from ..._messages.records import DurabilityName
from ..._transport import methods
from ..._transport.warnings import WARNINGS
from ...v1.handoff_service_pb2 import Handoff
from .part import AsyncPart


@dataclass(frozen=True, slots=True)
class AsyncOffer(OfferRecord):
    """A hand-off in the inbox of an agent, which the agent can adopt."""

    _client: AsyncOffers = field(repr=False, compare=False)

    async def adopt(
        self,
        new_thread_id: str | None = None,
        *,
        request_id: str = "",
        durability: DurabilityName = "certified",
        require_signers: Sequence[str] = (),
    ) -> Adoption:
        """Adopt the offer; see `adopt_offer` of the client."""
        return await self._client.adopt_offer(
            *(self.handoff_id, new_thread_id),
            request_id=request_id,
            durability=durability,
            require_signers=require_signers,
        )

    async def withdraw(self, *, durability: DurabilityName = "journaled") -> AsyncOffer:
        """Withdraw the offer; see `withdraw_handoff` of the client."""
        return await self._client.withdraw_handoff(self.handoff_id, durability=durability)


class AsyncOffers(AsyncPart):
    """Methods about the inboxes of agents: offers of hand-offs."""

    async def list_handoffs(
        self,
        to_agent: str | None = None,
        *,
        thread_id: str = "",
        states: Iterable[OfferState] = (),
    ) -> AsyncIterator[AsyncOffer]:
        """Yield the offers of hand-offs, oldest first.

        Args:
            to_agent: Only offers to this agent; "" for offers that name no agent. Default: offers
                to all agents.
            thread_id: Only offers of checkpoints of this thread.
            states: Only offers in these states, such as ["offered"]. Default: all states.
        """
        request = offers.listing_offers(to_agent, thread_id, states)
        while True:
            page = await self._calls.unary(methods.LIST_HANDOFFS, request)
            WARNINGS.log(self._calls.options.target, page.warnings)
            for message in page.handoffs:
                yield self._offer(message)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def watch_handoffs(
        self,
        to_agent: str,
        *,
        states: Sequence[OfferState] = ("offered",),
        progress_s: float | None = None,
    ) -> AsyncGenerator[AsyncOffer, None]:
        """Yield the open offers to an agent, oldest first, then each new offer as it is made.

        The watch does not end. After a lost connection, a shutdown or a crash of the server, it
        starts again: it yields each open offer once, and misses no open offer, if a server is back
        within minutes. Another agent may adopt an offer first: `adopt` then raises
        `PreconditionFailed`.

        Args:
            to_agent: The agent; "" for offers that name no agent.
            states: Which states to yield. With "adopted", "withdrawn" or "expired", an offer
                comes again when it is closed, unless that happens while the connection is lost.
            progress_s: Seconds, 1 or more, after which a silent server shows that it is there.

        Raises:
            Unavailable: No server answered for minutes.
        """
        request = offers.watching_offers(to_agent, states, progress_s)
        async with aclosing(self._calls.watch_handoffs(request)) as messages:
            async for message in messages:
                if message.HasField("handoff"):
                    offer = self._offer(message.handoff)
                    if offer.state in states:
                        yield offer

    async def adopt_offer(
        self,
        handoff_id: str,
        new_thread_id: str | None = None,
        *,
        request_id: str = "",
        on_progress: Callable[[AdoptProgress], object] | None = None,
        durability: DurabilityName = "certified",
        require_signers: Sequence[str] = (),
    ) -> Adoption:
        """Create a thread from an open offer, which exactly one call can adopt.

        Args:
            handoff_id: The offer.
            new_thread_id: Name of the new thread. Default: the server generates one.
            request_id: A name that this worker gives to this adoption, and gives again after a
                crash: the repeat gets the first adoption. Default: only retries of this call get
                the first adoption.
            on_progress: As in `adopt`.
            durability: As in `adopt`.
            require_signers: As in `adopt`.

        Raises:
            NotFound: The offer does not exist, or was removed with its thread.
            PreconditionFailed: The offer was adopted or withdrawn, or has expired. The error's
                metadata has `state` and `adopted_thread_id`.
            AlreadyExists: The new thread has checkpoints.
        """
        collector = AdoptionCollector(on_progress)
        request = offers.adopting_offer(
            *(handoff_id, new_thread_id, durability, require_signers, request_id)
        )
        async with aclosing(self._calls.adopt_handoff(request)) as frames:
            async for frame in frames:
                collector.add(frame)
        return collector.end()

    async def withdraw_handoff(
        self, handoff_id: str, *, durability: DurabilityName = "journaled"
    ) -> AsyncOffer:
        """Withdraw an open offer, so that nobody adopts it; return the offer.

        An agent that has the descriptor can still adopt with it. The call is idempotent.

        Args:
            handoff_id: The offer.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: The offer does not exist, or was removed with its thread.
            PreconditionFailed: The offer was adopted, or has expired.
        """
        request = offers.withdrawing(handoff_id, durability)
        answer = await self._calls.unary(methods.WITHDRAW_HANDOFF, request)
        return self._offer(answer.handoff)

    def _offer(self, message: Handoff) -> AsyncOffer:
        return AsyncOffer(**offers.members_of(offers.offer_record(message)), _client=self)
