"""Random calls of drivers on leases, and of agents on offers; clocks that jump."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.kit.drafts import TENANT
from tests.simulation.bundles import store_bundle
from tests.simulation.clients import NAMES, THREADS, Clients
from tests.simulation.coordination.lease_ledger import During
from tests.simulation.coordination.offer_ledger import OFFERED, stored_offers
from tests.simulation.plan import Plan
from tests.simulation.promises.committed_rows import Place
from tests.simulation.promises.model import Known
from tests.simulation.server import Server
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.leases import Lease, LeaseRequest
from tuskpoint_server.core.lineage import Descriptor, decode_offered, encode_descriptor
from tuskpoint_server.core.model import BlobLocation, SaveOutcome
from tuskpoint_server.features.call_memory import Holder
from tuskpoint_server.features.inbox.offer_rows import Claim
from tuskpoint_server.features.inbox.offers import inbox_of
from tuskpoint_server.features.lineage.first_answers import request
from tuskpoint_server.features.lineage.handoff_rows import OfferDraft

_WEIGHTS = {
    "acquire": 4.0, "keep": 1.5, "release": 1.5, "save_under_lease": 8.0, "offer": 4.0,
    "take_offer": 6.0, "withdraw": 1.0, "sweep_offers": 0.3, "clock_jumps": 0.5,
}  # fmt: skip
_AGENTS = ("planner", "writer")
_TTLS_S = (1, 5, 60, 1000)
_JUMPS_S = (-600.0, -30.0, -1.0, 1.0, 30.0, 600.0)


def with_coordination(plan: Plan, seed: int) -> Plan:
    """Add leases and offers to half of the schedules."""
    rng = random.Random(f"{seed} coordination")
    return coordinated(plan, rng.choice((0.5, 2.0))) if rng.random() < 0.5 else plan


def coordinated(plan: Plan, often: float) -> Plan:
    """Add leases and offers, with a factor of their frequency."""
    added = {name: usual * often for name, usual in _WEIGHTS.items()}
    return replace(plan, weights=plan.weights | added)


def uncoordinated(plan: Plan) -> Plan:
    """Leave out leases and offers."""
    kept = {name: weight for name, weight in plan.weights.items() if name not in _WEIGHTS}
    return replace(plan, weights=kept)


def mostly_coordinated(plan: Plan) -> Plan:
    """Make a long schedule of little but leases, offers, and ends of their threads."""
    plan = replace(plan, steps=60, weights=plan.weights | {"delete": 5.0})
    return coordinated(plan, 5.0)


class Coordination:
    """Drivers that acquire, keep, release and use leases, and agents that hand off and adopt.

    Args:
        clients: The clients, who make all other calls.
        seed: Draws the calls.
    """

    def __init__(self, clients: Clients, seed: int) -> None:
        self._clients = clients
        self._ledgers = clients.ledgers
        self._rng = random.Random(f"{seed} drivers")
        # What drivers remember outlives servers, journals and the leases themselves.
        self._leases: dict[tuple[str, str], list[Lease]] = defaultdict(list)
        self._requests: dict[tuple[str, str], LeaseRequest] = {}
        self._contents: dict[str, Mapping[Place, Known]] = {}

    # --- leases --------------------------------------------------------------------------

    async def acquire(self, server: Server) -> None:
        """Acquire the lease of a thread, perhaps by a repeat of the last request."""
        rng, name = self._rng, self._thread()
        new = LeaseRequest(
            owner=rng.choice(_AGENTS),
            ttl_us=rng.choice(_TTLS_S) * 1_000_000,
            advisory=rng.random() < 0.2,
            request_id=str(rng.getrandbits(62)) if rng.random() < 0.5 else "",
            takes_over=rng.random() < 0.3,
        )
        asked = self._requests.get((server.name, name), new) if rng.random() < 0.3 else new
        self._requests[server.name, name] = asked
        with self._clients.doubt(server, name), self._ledgers.ask(server, name) as during:
            lease = await server.leases.acquire(TENANT, name, asked)
        ledger = self._ledgers.of(server).leases
        if ledger.is_sure(name):
            ledger.acquired(name, asked, lease, during())
        self._leases[server.name, name].append(lease)

    async def keep(self, server: Server) -> None:
        """Extend a lease, which may have ended."""
        name, lease = self._some_lease(server)
        if lease is None:
            return
        ttl_us = self._rng.choice((None, *_TTLS_S))
        ttl_us = ttl_us and ttl_us * 1_000_000
        lease_id = lease.lease_id
        with self._clients.doubt(server, name), self._ledgers.ask(server, name, lease_id) as during:
            extended = await server.leases.keep(TENANT, name, lease_id, ttl_us)
        ledger = self._ledgers.of(server).leases
        if ledger.is_sure(name):
            ledger.kept(name, lease, extended, during())

    async def release(self, server: Server) -> None:
        """Release a lease, which may have ended."""
        name, lease = self._some_lease(server)
        if lease is None:
            return
        with self._clients.doubt(server, name), self._ledgers.ask(server, name) as during:
            held = await server.leases.release(TENANT, name, lease.lease_id)
        ledger = self._ledgers.of(server).leases
        if ledger.is_sure(name):
            ledger.released(name, lease, during(), held=held)

    async def save_under_lease(self, server: Server) -> None:
        """Save a checkpoint or writes under a lease, which may have ended."""
        name, lease = self._some_lease(server)
        if lease is not None:
            await self._clients.save_under(server, name, lease.lease_id)

    def _thread(self) -> str:
        return self._rng.choice((*THREADS, NAMES[0]))

    def _some_lease(self, server: Server) -> tuple[str, Lease | None]:
        """Return a thread, and mostly one of its last two leases."""
        names = sorted({name for at, name in self._leases if at == server.name})
        if not names:
            return "", None
        name = self._rng.choice(names)
        leases = self._leases[server.name, name]
        return name, self._rng.choice(leases[-2:] if self._rng.random() < 0.8 else leases)

    # --- offers --------------------------------------------------------------------------

    async def offer(self, server: Server) -> None:
        """Hand off a checkpoint, with an offer."""
        key = self._clients.some_key(server)
        bundle = await store_bundle(server, key) if key is not None else None
        if key is None or bundle is None:
            return
        to_agent, ttl_s = self._rng.choice(_AGENTS), self._rng.choice((0, 0, 30, 3600))
        descriptor = Descriptor(
            source=str(key),
            thread_id=key.thread_id,
            checkpoint_id=key.checkpoint_id,
            blob_id=bundle.location.blob_id,
            blob_sha256=bundle.location.sha256.hex(),
            to_agent=to_agent,
            summary="",
        )
        self._contents[descriptor.blob_sha256] = bundle.known
        with self._offers(server, to_agent):
            answer = await server.handoffs.keep_handoff(
                *(request(TENANT, "", "CreateHandoff"), key, bundle.location, bundle.parts),
                encode_descriptor(descriptor),
                content_seq=bundle.seq,
                draft=OfferDraft(descriptor, ttl_s * 1_000_000),
            )
        ledger = self._ledgers.of(server).offers
        if ledger.is_sure(inbox_of(to_agent)):
            ledger.made(server, decode_offered(answer)[1])

    async def take_offer(self, server: Server) -> None:
        """Let one or two agents adopt an offer, which may be closed."""
        handoff_id = self._some_offer(server)
        ledger, start_us = self._ledgers.of(server).offers, server.now_us()
        offer = ledger.offers.get(handoff_id)
        if offer is None:
            return
        requests = [("", self._rng.choice(NAMES)) for _ in range(self._rng.choice((1, 1, 2)))]
        if self._rng.random() < 0.4:  # by one request, which an agent may repeat
            requests = [(f"of {handoff_id}", NAMES[-1])] * len(requests)
        sure = ledger.is_sure(inbox_of(offer.to_agent))
        targets = {target for _, target in requests}
        with self._offers(server, offer.to_agent), self._clients.doubt(server, *targets):
            calls = (self._take(server, handoff_id, *asked) for asked in requests)
            answers = await asyncio.gather(*calls, return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException) and not _is_answer(answer):
                    raise answer
        during = During(start_us, server.now_us())
        refusals = [answer for answer in answers if isinstance(answer, Refusal)]
        for (request_id, _), answer in zip(requests, answers, strict=True):
            if sure and isinstance(answer, SaveOutcome):
                ledger.adopted(handoff_id, answer, request_id, during)
        for refusal in refusals:
            if sure:
                ledger.refused(handoff_id, refusal, during)
            raise refusal

    async def _take(
        self, server: Server, handoff_id: str, request_id: str, target: str
    ) -> SaveOutcome:
        """Adopt an offer as the service does."""
        offer, first, _ = await server.lineage.offered(TENANT, handoff_id, target, request_id)
        if first is not None:
            return first
        assert offer is not None
        descriptor = offer.descriptor
        assert descriptor is not None
        named = BlobLocation(bytes.fromhex(descriptor.blob_sha256), 0, descriptor.blob_id)
        holder, blobs = Holder(), server.archive.standalone
        data = await blobs.fetch(named, lambda count: None, holder)
        closure = await blobs.open(TENANT, data, named, holder)
        arguments = (descriptor.blob_sha256, target, descriptor.to_agent, request_id)
        claim = Claim(descriptor, request_id, offer)
        saved = await server.lineage.adopt(TENANT, closure, *arguments, claim)
        if saved.key.thread_id == target:
            self._clients.derive(server, target, self._contents[descriptor.blob_sha256])
        return saved

    async def withdraw(self, server: Server) -> None:
        """Withdraw an offer, which may be closed."""
        handoff_id = self._some_offer(server)
        ledger, start_us = self._ledgers.of(server).offers, server.now_us()
        offer = ledger.offers.get(handoff_id)
        if offer is None:
            return
        sure = ledger.is_sure(inbox_of(offer.to_agent))
        try:
            with self._offers(server, offer.to_agent):
                await server.offers.withdraw(TENANT, handoff_id)
        except Refusal as refusal:
            if sure:
                ledger.refused(handoff_id, refusal, During(start_us, server.now_us()))
            raise
        if sure:
            ledger.withdrawn(handoff_id, During(start_us, server.now_us()))

    async def sweep_offers(self, server: Server) -> None:
        """Remove the offers that were closed long ago."""
        await server.offers.sweep()

    def _offers(self, server: Server, to_agent: str) -> Any:
        return self._ledgers.ask_inbox(server, inbox_of(to_agent))

    def _some_offer(self, server: Server) -> str:
        """Return the ID of an offer, mostly an open one; empty if there is none."""
        offers = stored_offers(server)
        open_ids = sorted(name for name, offer in offers.items() if offer.state is OFFERED)
        ids = open_ids if open_ids and self._rng.random() < 0.7 else sorted(offers)
        return self._rng.choice(ids) if ids else ""

    # --- clocks --------------------------------------------------------------------------

    async def clock_jumps(self, server: Server) -> None:
        """Set the clock of a server."""
        server.skew_us += int(self._rng.choice(_JUMPS_S) * 1e6)

    def events(self) -> dict[str, Any]:
        """Return the possible events, by name."""
        return {name: getattr(self, name) for name in _WEIGHTS}


def _is_answer(error: BaseException) -> bool:
    """Return whether an error says that a call has changed nothing."""
    if isinstance(error, Refusal):
        return error.reason is not Reason.JOURNAL_UNAVAILABLE
    return isinstance(error, OSError)
