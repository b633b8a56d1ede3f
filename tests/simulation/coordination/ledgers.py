"""The ledgers of each server, and the check of each answer that depends on leases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.simulation.coordination.lease_ledger import During, LeaseLedger
from tests.simulation.coordination.offer_ledger import OfferLedger
from tests.simulation.promises.model import Model
from tests.simulation.promises.violation import check
from tests.simulation.server import Server
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.features.inbox.offers import keeps_offers


@dataclass
class Ledger:
    """The leases and the offers of one journal; `model` is what else its clients know."""

    model: Model
    leases: LeaseLedger = field(default_factory=LeaseLedger)
    offers: OfferLedger = field(default_factory=OfferLedger)


class Ledgers:
    """The ledgers of all servers. A replaced journal gets a new ledger."""

    def __init__(self) -> None:
        self._by_server: dict[str, Ledger] = {}

    def of(self, server: Server) -> Ledger:
        """Return the ledger of a server."""
        ledger = self._by_server.get(server.name)
        if ledger is None or ledger.model is not server.model:
            ledger = self._by_server[server.name] = Ledger(server.model)
        return ledger

    def compare(self, server: Server) -> None:
        """Compare a ledger with the journal."""
        ledger = self.of(server)
        ledger.leases.compare(server)
        ledger.offers.compare(server)

    @contextmanager
    def recovery(self, server: Server, *, rises: bool) -> Iterator[None]:
        """Recover a journal, which has no lease; `rises`: and whose fences continue to rise."""
        fences = self.of(server).leases.fences
        yield
        leases = self.of(server).leases
        leases.compare(server)
        check(not leases.held, "the leases", leases.held, "were recovered")
        if rises:
            leases.fences = fences

    @contextmanager
    def change(self, server: Server, name: str, lease_id: str = "") -> Iterator[None]:
        """Check that the lease of a thread allows the change that is made inside the context."""
        leases, seq = self.of(server).leases, _seq(server, name)
        with self.ask(server, name, lease_id) as during:
            yield
        if leases.is_sure(name) and _seq(server, name) != seq:
            leases.changed(name, lease_id, during())

    @contextmanager
    def ask(self, server: Server, name: str, lease_id: str = "") -> Iterator[Callable[[], During]]:
        """Make a call that depends on the lease of a thread, and check its refusal.

        Yields a function that returns the time of the call so far. After a call without an answer,
        the journal says which lease the thread has.
        """
        leases, start_us = self.of(server).leases, server.now_us()
        is_sure = leases.is_sure(name)
        leases.unclear.add(name)
        try:
            yield lambda: During(start_us, server.now_us())
        except Refusal as refusal:
            if is_sure and refusal.reason is not Reason.JOURNAL_UNAVAILABLE:
                leases.unclear.discard(name)
                leases.refused(name, lease_id, refusal.reason, During(start_us, server.now_us()))
            raise
        if is_sure:
            leases.unclear.discard(name)

    @contextmanager
    def ask_inbox(self, server: Server, inbox: str) -> Iterator[None]:
        """Make a call that changes an inbox; after a call without an answer, the journal says what
        the inbox has."""
        unclear = self.of(server).offers.unclear
        was_clear = inbox not in unclear
        unclear.add(inbox)
        try:
            yield
        except Refusal as refusal:
            if was_clear and refusal.reason is not Reason.JOURNAL_UNAVAILABLE:
                unclear.discard(inbox)
            raise
        if was_clear:
            unclear.discard(inbox)

    @contextmanager
    def end(self, server: Server, name: str) -> Iterator[None]:
        """Delete a thread, which ends its lease and removes its offers."""
        ledger = self.of(server)
        inboxes = {inbox for inbox in server.shadow.threads if keeps_offers(inbox)}
        new = inboxes - ledger.offers.unclear
        ledger.offers.unclear |= new
        with self.ask(server, name):
            yield
        ledger.leases.forget(name)
        ledger.offers.ended(name)
        ledger.offers.unclear -= new


def _seq(server: Server, name: str) -> int:
    thread = server.shadow.threads.get(name)
    return thread.seq if thread is not None else 0
