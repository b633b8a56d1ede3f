"""Calls on the offers of hand-offs: list, watch, withdraw."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass, replace

from ...archive.archive import Archive
from ...core.model import Durability
from ..checkpoints.completing import reach
from ..cursors import decode_cursor, encode_cursor, page_size
from .offer_rows import OfferQuery, OfferRows
from .offers import HandoffState, Offer, inbox_of

_log = logging.getLogger(__name__)

_LISTED_AT_ONCE = 256
_SHORTEST_WAIT_S = 0.01  # between two looks at offers that expire
_OPEN = frozenset({HandoffState.OFFERED})


@dataclass(frozen=True, slots=True)
class OfferPage:
    """A page of offers, oldest first."""

    offers: list[Offer]
    token: str  # of the next page; empty on the last page
    damaged: tuple[str, ...]  # why offers were left out: their rows were changed


@dataclass(frozen=True, slots=True)
class Inbox:
    """The inboxes of all agents of all tenants."""

    _journal: OfferRows
    _archive: Archive

    async def list(self, tenant: str, query: OfferQuery, size: int, token: str) -> OfferPage:
        """Return a page of offers."""
        states = ",".join(str(int(state)) for state in sorted(query.states))
        agent = "*" if query.to_agent is None else f"={query.to_agent}"
        listing = ("handoffs", self._journal.journal_id, tenant, agent, query.thread_id, states)
        after = decode_cursor(listing, token, str)[0] if token else ""
        size = page_size(size)
        read = await self._journal.listed(tenant, query, after, size + 1)
        offers = read.offers[:size]
        has_more = len(read.offers) > size
        token = encode_cursor(listing, (offers[-1].handoff_id,)) if has_more else ""
        return OfferPage(offers, token, read.damaged)

    async def withdraw(self, tenant: str, handoff_id: str, wanted: Durability) -> Offer:
        """Withdraw an open offer; a withdrawn offer stays as it is."""
        offer = await self._journal.withdraw(tenant, handoff_id)
        await reach(self._archive, tenant, wanted, {inbox_of(offer.to_agent)}.__contains__)
        return offer

    async def watch(
        self, tenant: str, to_agent: str, states: Collection[HandoffState], progress_s: float
    ) -> AsyncGenerator[Offer | None, None]:
        """Yield the open offers to an agent, then each offer whose state changes; endless.

        `None` follows the open offers, and each `progress_s` seconds without an offer. No states:
        all states. Offers are read from the journal on demand: a slow watcher holds only the IDs
        of the open ones.
        """
        clock = asyncio.get_running_loop().time
        shown: dict[str, Offer] = {}
        # Subscribe before the first read, so that no change is missed between read and wait.
        with self._journal.subscribe(tenant, to_agent) as waiter:
            seq = await self._journal.seq(tenant, to_agent)
            after, is_last = "", False
            while not is_last:
                query = OfferQuery(to_agent, states=_OPEN)
                read = await self._journal.listed(tenant, query, after, _LISTED_AT_ONCE)
                is_last = len(read.offers) < _LISTED_AT_ONCE
                _report(read.damaged)
                for offer in read.offers:
                    shown[offer.handoff_id] = _brief(offer)
                    if not states or offer.state in states:
                        yield offer
                    after = offer.handoff_id
            yield None
            heard = clock()
            expiring = [_expiry(offer) for offer in shown.values() if offer.expire_us is not None]
            heapq.heapify(expiring)
            while True:
                news = await self._journal.news(tenant, to_agent, seq, shown)
                has_news, seq = news.seq > seq, news.seq
                _report(news.changed.damaged)
                now_us = self._journal.now_us()
                changed = {offer.handoff_id: offer.at(now_us) for offer in news.changed.offers}
                for handoff_id in news.removed:
                    removed = replace(shown[handoff_id], state=HandoffState.WITHDRAWN)
                    changed[handoff_id] = removed
                due: list[str] = []
                while expiring and expiring[0][0] <= now_us:
                    due.append(heapq.heappop(expiring)[1])
                due = [name for name in due if name in shown and name not in changed]
                past = await self._journal.read(tenant, to_agent, due)
                changed |= {offer.handoff_id: offer.at(now_us) for offer in past}
                for offer in changed.values():
                    if offer.state is not HandoffState.OFFERED:
                        shown.pop(offer.handoff_id, None)
                    elif offer.handoff_id in shown:
                        continue  # delivered with the open offers
                    else:
                        shown[offer.handoff_id] = _brief(offer)
                        if offer.expire_us is not None:
                            heapq.heappush(expiring, _expiry(offer))
                    if not states or offer.state in states:
                        yield offer
                        heard = clock()
                if clock() >= heard + progress_s:
                    yield None
                    heard = clock()
                if not has_news:
                    wait_s = heard + progress_s - clock()
                    if expiring:
                        left_s = (expiring[0][0] - self._journal.now_us()) / 1e6
                        wait_s = min(wait_s, max(left_s, _SHORTEST_WAIT_S))
                    await waiter.wait(wait_s)


def _brief(offer: Offer) -> Offer:
    """Return what a watch remembers of an open offer."""
    return replace(offer, descriptor=None)


def _expiry(offer: Offer) -> tuple[int, str]:
    return offer.expire_us or 0, offer.handoff_id


def _report(damaged: Collection[str]) -> None:
    for problem in damaged:
        _log.error("left out of a watch of hand-offs: %s", problem)
