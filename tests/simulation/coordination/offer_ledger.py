"""The offers that agents were told of: the journal must have exactly these, in these states."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.simulation.at_rest.damage import concerns
from tests.simulation.coordination.lease_ledger import During
from tests.simulation.promises.violation import check
from tests.simulation.server import Server
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import SaveOutcome
from tuskpoint_server.features.inbox.offers import (
    KEPT_US,
    HandoffState,
    Offer,
    decode,
    inbox_of,
    keeps_offers,
)

OFFERED, ADOPTED, WITHDRAWN, EXPIRED = HandoffState


def source_of(offer: Offer) -> str:
    """Return the thread of the handed-off checkpoint."""
    assert offer.descriptor is not None
    return offer.descriptor.thread_id


def stored_offers(server: Server) -> dict[str, Offer]:
    """Return the offers of a journal at its last commit, by ID."""
    return {
        handoff_id: decode(name, handoff_id, row[3])
        for name, thread in server.shadow.threads.items()
        if keeps_offers(name)
        for (_, handoff_id), row in thread.rows.items()
    }


@dataclass
class OfferLedger:
    """The offers of a server, as its answers say.

    Attributes:
        offers: Offers by ID, without the time at which they were closed.
        unclear: Inboxes whose offers must be read from the journal, because a call has no answer or
            their rows were edited.
        is_read: Whether the offers of the journal were read since it was replaced.
    """

    offers: dict[str, Offer] = field(default_factory=dict)
    unclear: set[str] = field(default_factory=set)
    is_read: bool = False

    def made(self, server: Server, handoff_id: str) -> None:
        """Record an offer that an agent made."""
        offer = stored_offers(server).get(handoff_id)
        check(offer is not None, "offer", handoff_id, "was acknowledged and is not there")
        assert offer is not None
        check(offer.state is OFFERED, "offer", handoff_id, "was closed before it was made")
        self.offers[handoff_id] = offer

    def adopted(self, handoff_id: str, saved: SaveOutcome, request_id: str, during: During) -> None:
        """Record that a thread adopted an offer."""
        offer = self.offers.get(handoff_id)
        check(offer is not None, "offer", handoff_id, "was removed, and adopted by", saved)
        assert offer is not None
        if offer.is_repeated_by(request_id):
            check(offer.adopted == saved, "a repeated adoption is", saved, "after", offer)
            return
        check(offer.state is OFFERED, "offer", offer, "was closed, and adopted again by", saved)
        check(offer.lives_at(during.start_us), "offer", offer, "expired, and was adopted")
        self.offers[handoff_id] = replace(
            offer, state=ADOPTED, adopted=saved, request_id=request_id
        )

    def withdrawn(self, handoff_id: str, during: During) -> None:
        """Record that an offer was withdrawn."""
        offer = self.offers.get(handoff_id)
        check(offer is not None, "offer", handoff_id, "was removed, and withdrawn")
        assert offer is not None
        if offer.state is not WITHDRAWN:
            check(offer.state is OFFERED, "offer", offer, "was closed, and withdrawn")
            check(offer.lives_at(during.start_us), "offer", offer, "expired, and was withdrawn")
            self.offers[handoff_id] = replace(offer, state=WITHDRAWN)

    def refused(self, handoff_id: str, refusal: Refusal, during: During) -> None:
        """Check the refusal of a call on an offer."""
        offer = self.offers.get(handoff_id)
        if refusal.reason is Reason.HANDOFF_NOT_FOUND:
            check(offer is None, "offer", offer, "is there, and was not found")
        elif refusal.reason is Reason.HANDOFF_CLOSED:
            check(offer is not None, "offer", handoff_id, "was removed, and is", refusal)
            assert offer is not None
            is_expired = offer.state is OFFERED and not offer.lives_at(during.end_us)
            state = EXPIRED if is_expired else offer.state
            told = refusal.metadata["state"], refusal.metadata["adopted_thread_id"]
            check(
                told == (state.name, offer.adopted_thread_id), "offer", offer, "was told as", told
            )

    def ended(self, thread_id: str) -> None:
        """Record the end of a thread, which removes its offers."""
        self.offers = {
            handoff_id: offer
            for handoff_id, offer in self.offers.items()
            if source_of(offer) != thread_id
        }

    def compare(self, server: Server) -> None:
        """Compare the offers with their rows, and with the threads that they hand off."""
        rows, edited = stored_offers(server), concerns(server).keys()
        before_us = server.now_us() - KEPT_US
        for handoff_id in rows.keys() | self.offers.keys():
            row, offer = rows.get(handoff_id), self.offers.get(handoff_id)
            either = row or offer
            assert either is not None
            unsure = inbox_of(either.to_agent) in self.unclear | edited
            is_swept = offer is not None and (offer.at(before_us).closed_us or before_us + 1)
            if unsure or not self.is_read or (row is None and is_swept and is_swept <= before_us):
                self.offers.pop(handoff_id, None)
            else:
                known = offer and replace(offer, closed_us=row.closed_us if row else None)
                check(row == known, "offer", handoff_id, "is", row, "and not", known)
            if row is not None:
                self.offers[handoff_id] = row
                source = server.shadow.threads.get(source_of(row))
                lives = source is not None and not source.deleted
                lives = lives and source is not None and source.incarnation == row.incarnation
                sure = not {source_of(row), inbox_of(row.to_agent)} & edited
                check(lives or not sure, "offer", row, "outlived its thread")
        self.unclear, self.is_read = {name for name in edited if keeps_offers(name)}, True

    def is_sure(self, name: str) -> bool:
        """Return whether the answers say which offers an inbox has."""
        return self.is_read and name not in self.unclear
