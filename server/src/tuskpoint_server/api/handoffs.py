"""`HandoffService` on the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, fields
from typing import ClassVar

from tuskpoint.v1 import errors_pb2
from tuskpoint.v1 import handoff_service_pb2 as handoff_pb

from ..core.limits import LIMITS
from ..core.lineage import Descriptor
from ..features.inbox.inbox import Inbox
from ..features.inbox.offer_rows import OfferQuery
from ..features.inbox.offers import HandoffState, Offer
from ..features.lineage.handoffs import Handoffs
from .messages import convert
from .messages.validation import Check, Checks, is_within
from .middleware.pipeline import Call, Fields, Frames, mark_endless

_MAX_BLOB_ID = 256  # bytes of a blob ID; the known stores use 43
_SHA256 = re.compile(r"[0-9a-f]{64}")  # hex digits of a key
_SIGNATURE = re.compile(r"[0-9a-f]{128}")
_RECIPIENT = re.compile(r"age1[02-9ac-hj-np-z]{58}")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_MAX_SEALED_KEY = 4096  # bytes of a descriptor; servers create at most about 600
_MAX_SIGNERS = 64
_NOT_OFFERED = errors_pb2.Warning(
    kind=errors_pb2.WARNING_KIND_NOT_OFFERED,
    message="the hand-off is not in the inbox of its receiver, because a server of an older "
    "version uses the journal, too; send the descriptor, or hand off again after the upgrade",
)


def _create(checks: Checks, request: handoff_pb.CreateHandoffRequest) -> None:
    if request.recipient and not _RECIPIENT.fullmatch(request.recipient):
        checks.fail(
            "recipient",
            'must be an X25519 public key of age, "age1" and 58 characters, as in `recipients` of '
            "the receiver's server",
        )
    if request.recipient and request.include_key:
        checks.fail("recipient", "must not come with include_key, which lets everybody read it")
    most = LIMITS.max_retention_s
    if request.HasField("expires_in") and not is_within(request.expires_in, 1e-6, most):
        checks.fail("expires_in", f"must be above 0, at most {most} seconds")


def _adopt(checks: Checks, request: handoff_pb.AdoptHandoffRequest) -> None:
    if not request.handoff_id:
        _check_descriptor(checks, request.descriptor)
    elif request.HasField("descriptor"):
        checks.fail("handoff_id", "must not come with a descriptor; the offer has its own")
    if len(request.required_signers) > _MAX_SIGNERS:
        checks.fail("required_signers", f"must have at most {_MAX_SIGNERS}")
    for number, signer in enumerate(request.required_signers[:_MAX_SIGNERS]):
        if not _SHA256.fullmatch(signer):
            checks.fail(f"required_signers[{number}]", "must be 64 lowercase hex digits")


def _check_descriptor(checks: Checks, descriptor: handoff_pb.HandoffDescriptor) -> None:
    if not _SHA256.fullmatch(descriptor.blob_sha256):
        checks.fail(
            "descriptor.blob_sha256",
            "must be the SHA-256 of the blob, 64 lowercase hex digits: nothing is adopted "
            "without it",
        )
    checks.text("descriptor.blob_id", descriptor.blob_id, _MAX_BLOB_ID, required=True)
    checks.thread("descriptor.thread_id", descriptor.thread_id)
    field, longest = "descriptor.checkpoint_id", LIMITS.max_checkpoint_id
    checks.text(field, descriptor.checkpoint_id, longest, required=True)
    if descriptor.source != f"{descriptor.thread_id}:{descriptor.checkpoint_id}":
        checks.fail("descriptor.source", 'must be "thread:checkpoint", as the other fields say')
    checks.text("descriptor.to_agent", descriptor.to_agent, LIMITS.max_agent_id)
    checks.text("descriptor.summary", descriptor.summary, LIMITS.max_summary)
    if descriptor.key and not _SHA256.fullmatch(descriptor.key):
        checks.fail("descriptor.key", "must be empty or 64 lowercase hex digits")
    if descriptor.sealed_key:
        checks.text("descriptor.sealed_key", descriptor.sealed_key, _MAX_SEALED_KEY)
        if not _BASE64.fullmatch(descriptor.sealed_key):
            checks.fail("descriptor.sealed_key", "must be empty or base64")
        if descriptor.key:
            checks.fail("descriptor.sealed_key", "must not come with descriptor.key")
    if bool(descriptor.signer) != bool(descriptor.signature):
        checks.fail("descriptor.signature", "must come with descriptor.signer, or neither")
    if descriptor.signer and not _SHA256.fullmatch(descriptor.signer):
        checks.fail("descriptor.signer", "must be empty or 64 lowercase hex digits")
    if descriptor.signature and not _SIGNATURE.fullmatch(descriptor.signature):
        checks.fail("descriptor.signature", "must be empty or 128 lowercase hex digits")


def _states(checks: Checks, states: Sequence[int]) -> None:
    values = {int(state) for state in HandoffState}
    for number, state in enumerate(states):
        if state not in values:
            checks.fail(f"states[{number}]", f"{state} is not a value of its enum")


def _list(checks: Checks, request: handoff_pb.ListHandoffsRequest) -> None:
    _states(checks, request.states)


def _watch(checks: Checks, request: handoff_pb.WatchHandoffsRequest) -> None:
    _states(checks, request.states)
    checks.interval(request)


@dataclass(frozen=True, slots=True)
class HandoffServicer:
    """`HandoffService`: hands checkpoints off, and adopts them."""

    checks: ClassVar[Mapping[str, Check]] = {
        "CreateHandoffRequest": _create,
        "AdoptHandoffRequest": _adopt,
        "ListHandoffsRequest": _list,
        "WatchHandoffsRequest": _watch,
    }
    _handoffs: Handoffs
    _inbox: Inbox

    async def CreateHandoff(self, request: handoff_pb.CreateHandoffRequest, call: Call) -> Fields:
        key, to_agent = convert.key(request.ref), request.to_agent
        ttl_us = request.expires_in.ToMicroseconds() if request.HasField("expires_in") else 0
        descriptor, handoff_id = await self._handoffs.create(
            *(call.tenant, key, to_agent, request.request_id),
            include_key=request.include_key,
            recipient=request.recipient,
            ttl_us=ttl_us,
        )
        warnings = [] if handoff_id else [_NOT_OFFERED]
        return {
            "descriptor": asdict(descriptor),
            "handoff_id": handoff_id,
            "warnings": warnings,
        }

    async def AdoptHandoff(self, request: handoff_pb.AdoptHandoffRequest, call: Call) -> Frames:
        arguments = (request.new_thread_id, request.request_id, call.wanted, call)
        required = request.required_signers
        if request.handoff_id:
            adopt = self._handoffs.adopt_offer
            adopting = adopt(call.tenant, request.handoff_id, *arguments, required)
        else:
            message = request.descriptor
            descriptor = Descriptor(*(getattr(message, field.name) for field in fields(Descriptor)))
            adopting = self._handoffs.adopt(call.tenant, descriptor, *arguments, required)
        async with aclosing(adopting) as steps:
            async for step in steps:
                frame: dict[str, object] = {
                    "stage": step.stage,
                    "fetched_bytes": step.fetched_bytes,
                }
                if step.adopted is not None:
                    adoption = handoff_pb.Adoption(
                        adopted_from=step.adopted_from,
                        new_thread_id=step.adopted.thread_id,
                        checkpoint_id=step.adopted.checkpoint_id,
                        blob_id=step.blob_id,
                        verified=True,
                        signer=step.signer,
                    )
                    frame |= {"durability": call.wanted, "adoption": adoption}
                yield frame

    async def ListHandoffs(self, request: handoff_pb.ListHandoffsRequest, call: Call) -> Fields:
        query = OfferQuery(
            request.to_agent if request.HasField("to_agent") else None,
            request.thread_id,
            frozenset(map(HandoffState, request.states)),
        )
        page = await self._inbox.list(call.tenant, query, request.page_size, request.page_token)
        return {
            "handoffs": map(_handoff, page.offers),
            "next_page_token": page.token,
            "warnings": [convert.damaged_warning(page.damaged)] if page.damaged else [],
        }

    @mark_endless
    async def WatchHandoffs(self, request: handoff_pb.WatchHandoffsRequest, call: Call) -> Frames:
        states, agent = frozenset(map(HandoffState, request.states)), request.to_agent
        offers = self._inbox.watch(call.tenant, agent, states, convert.progress_seconds(request))
        async with aclosing(offers) as stream:
            async for offer in stream:
                yield {} if offer is None else {"handoff": _handoff(offer)}

    async def WithdrawHandoff(
        self, request: handoff_pb.WithdrawHandoffRequest, call: Call
    ) -> Fields:
        offer = await self._inbox.withdraw(call.tenant, request.handoff_id, call.wanted)
        return {"handoff": _handoff(offer)}


def _handoff(offer: Offer) -> handoff_pb.Handoff:
    """Return the message for an offer."""
    message = handoff_pb.Handoff()
    if offer.descriptor is not None:
        message.descriptor.MergeFrom(handoff_pb.HandoffDescriptor(**asdict(offer.descriptor)))
    return convert.fill_fields(message, offer)
