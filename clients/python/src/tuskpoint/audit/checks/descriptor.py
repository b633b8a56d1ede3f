"""Audit of the descriptor of a hand-off: its blob, and whether descriptor and blob agree."""

from __future__ import annotations

import json

from ..._messages.lineage.handoffs import Descriptor
from ..formats.segments import Segment
from ..formats.stored import Location
from ..reading import Reader
from ..roots import IN_DESCRIPTOR
from ..verdicts import Findings, Item, ItemKind, Verdict, ordered
from .threads import Shelf, bundle_problem

_SOURCES = ("input", "loop", "update", "fork")

_P = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = (0, 1, _ORDER_8, _P - _ORDER_8, _P - 1, _P, _P + 1)
"""Second coordinates of the points of order 1, 2, 4 and 8. As keys, they verify anything."""


async def audit_descriptor(reader: Reader, descriptor: Descriptor) -> Findings:
    """Audit a descriptor: the hash, the bundle, and each checkpoint in it.

    Args:
        reader: Reads the stored bytes.
        descriptor: The descriptor, from `lineage.handoffs.read_descriptor` of
            `tuskpoint._messages`.
    """
    reader.expect(1)
    location = Location(
        *(descriptor.blob_id, "", descriptor.blob_sha256),
        key=bytes.fromhex(descriptor.key),
        sealed=bool(descriptor.sealed_key),
    )
    opened = await Shelf(reader).open(location, {}, "bundle")
    segment, reason = opened.segment, opened.reason
    items: list[Item] = []
    if segment is not None:
        handoff = segment.message.handoff
        reason = await bundle_problem(segment, (handoff.checkpoint_ns, handoff.checkpoint_id))
        reason = reason or _contradiction(descriptor, segment) or _wrong_signature(descriptor)
        thread_id = segment.message.thread_id
        items += [Item(ItemKind.CHECKPOINT, thread_id, *place) for place in segment.rows]
    bundle = Item.of(
        ItemKind.BUNDLE,
        opened.findings,
        reason,
        thread_id=descriptor.thread_id,
        checkpoint_id=descriptor.checkpoint_id,
    )
    reader.step("bundle")
    members = descriptor.as_dict()
    members.pop("key", None)
    return Findings(
        subject={"kind": "descriptor", **members},
        root=opened.findings[0],
        trust=IN_DESCRIPTOR,
        items=ordered((bundle, *(items if bundle.verdict is Verdict.PASS else ()))),
    )


def _contradiction(descriptor: Descriptor, segment: Segment) -> str:
    """Return how a descriptor contradicts its bundle, for people; empty if they agree."""
    message = segment.message
    place = (message.handoff.checkpoint_ns, message.handoff.checkpoint_id)
    if (descriptor.thread_id, descriptor.checkpoint_id) != (message.thread_id, place[1]):
        return (
            f"the descriptor names checkpoint '{descriptor.checkpoint_id}' of thread "
            f"'{descriptor.thread_id}', and the bundle holds checkpoint '{place[1]}' "
            f"of thread '{message.thread_id}'"
        )
    row = segment.rows[place]
    summary = row.summary or _sentence(message.thread_id, place[1], row.metadata_json)
    if descriptor.summary != summary:
        return (
            f"the summary of the descriptor differs from the summary of the checkpoint: '{summary}'"
        )
    return ""


def _wrong_signature(descriptor: Descriptor) -> str:
    """Return the problem of a descriptor's signature; empty if it is right or missing.

    `tuskpoint.v1.HandoffDescriptor.signature` defines the signed bytes.
    """
    if not descriptor.signer:
        return ""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signed = b"tuskpoint handoff v1\n"
    for key in ("thread_id", "checkpoint_id", "blob_id", "blob_sha256", "to_agent", "summary"):
        text = getattr(descriptor, key).encode()
        signed += len(text).to_bytes(4, "big") + text
    if int.from_bytes(bytes.fromhex(descriptor.signer), "little") % (1 << 255) in _SMALL_ORDER:
        return f"the descriptor's signer {descriptor.signer} has small order, so it proves nothing"
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(descriptor.signer))
        public.verify(bytes.fromhex(descriptor.signature), signed)
    except (InvalidSignature, ValueError):
        return f"the descriptor's signature was not made by {descriptor.signer}"
    return ""


def _sentence(thread_id: str, checkpoint_id: str, metadata_json: bytes) -> str:
    """Return the summary for a checkpoint without summary; see docs/threads/handoff.md."""
    metadata = json.loads(metadata_json or b"{}")
    step, source = metadata.get("step"), metadata.get("source")
    if type(step) is not int:
        return f"Checkpoint {checkpoint_id} of thread {thread_id}."
    cause = f" ({source})" if source in _SOURCES else ""
    return f"Step {step}{cause} of thread {thread_id}."
