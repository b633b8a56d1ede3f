"""`HandoffService` on the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, fields
from typing import ClassVar

from tuskpoint.v1 import handoff_service_pb2 as handoff_pb

from ..core.limits import LIMITS
from ..core.lineage import Descriptor
from ..features.lineage.handoffs import Handoffs
from .messages import convert
from .messages.validation import Check, Checks
from .middleware.pipeline import Call, Fields, Frames

_MAX_BLOB_ID = 256  # bytes of a blob ID; the known stores use 43
_SHA256 = re.compile(r"[0-9a-f]{64}")  # hex digits of a key
_SIGNATURE = re.compile(r"[0-9a-f]{128}")
_RECIPIENT = re.compile(r"age1[02-9ac-hj-np-z]{58}")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_MAX_SEALED_KEY = 4096  # bytes of a descriptor; servers create at most about 600
_MAX_SIGNERS = 64


def _create(checks: Checks, request: handoff_pb.CreateHandoffRequest) -> None:
    if request.recipient and not _RECIPIENT.fullmatch(request.recipient):
        checks.fail(
            "recipient",
            'must be an X25519 public key of age, "age1" and 58 characters, as in `recipients` of '
            "the receiver's server",
        )
    if request.recipient and request.include_key:
        checks.fail("recipient", "must not come with include_key, which lets everybody read it")


def _adopt(checks: Checks, request: handoff_pb.AdoptHandoffRequest) -> None:
    descriptor = request.descriptor
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
    if len(request.required_signers) > _MAX_SIGNERS:
        checks.fail("required_signers", f"must have at most {_MAX_SIGNERS}")
    for number, signer in enumerate(request.required_signers[:_MAX_SIGNERS]):
        if not _SHA256.fullmatch(signer):
            checks.fail(f"required_signers[{number}]", "must be 64 lowercase hex digits")


@dataclass(frozen=True, slots=True)
class HandoffServicer:
    """`HandoffService`: hands checkpoints off, and adopts them."""

    checks: ClassVar[Mapping[str, Check]] = {
        "CreateHandoffRequest": _create,
        "AdoptHandoffRequest": _adopt,
    }
    _handoffs: Handoffs

    async def CreateHandoff(self, request: handoff_pb.CreateHandoffRequest, call: Call) -> Fields:
        key, to_agent = convert.key(request.ref), request.to_agent
        descriptor = await self._handoffs.create(
            *(call.tenant, key, to_agent, request.request_id),
            include_key=request.include_key,
            recipient=request.recipient,
        )
        return {"descriptor": asdict(descriptor)}

    async def AdoptHandoff(self, request: handoff_pb.AdoptHandoffRequest, call: Call) -> Frames:
        message = request.descriptor
        descriptor = Descriptor(*(getattr(message, field.name) for field in fields(Descriptor)))
        arguments = (descriptor, request.new_thread_id, request.request_id, call.wanted, call)
        required = request.required_signers
        async with aclosing(self._handoffs.adopt(call.tenant, *arguments, required)) as steps:
            async for step in steps:
                frame: dict[str, object] = {
                    "stage": step.stage,
                    "fetched_bytes": step.fetched_bytes,
                }
                if step.adopted is not None:
                    adoption = handoff_pb.Adoption(
                        adopted_from=message.source,
                        new_thread_id=step.adopted.thread_id,
                        checkpoint_id=step.adopted.checkpoint_id,
                        blob_id=step.blob_id,
                        verified=True,
                        signer=message.signer,
                    )
                    frame |= {"durability": call.wanted, "adoption": adoption}
                yield frame
