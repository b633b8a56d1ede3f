"""Auditing the descriptor of a hand-off: its blob, and whether that holds what it says."""

from __future__ import annotations

from dataclasses import replace

from .._handoff import Descriptor
from .formats.envelopes import Bundle, BundleMember, Envelope, read_bundle
from .formats.stored import Location, Malformed
from .reading import MIB, Reader, Whole
from .roots import IN_DESCRIPTOR
from .verdicts import Findings, Item, ItemKind, Verdict, ordered

_SOURCES = ("input", "loop", "update", "fork")


async def audit_descriptor(reader: Reader, descriptor: Descriptor) -> Findings:
    """Audit a descriptor: the hash, the bundle, and each checkpoint in it.

    Args:
        reader: Reads.
        descriptor: The descriptor, as `tuskpoint._handoff.read_descriptor` returns it.
    """
    reader.expect(1)
    location = Location(descriptor.blob_id, "", descriptor.blob_sha256)
    whole = await reader.read_whole("bundle", location, reader.bounds.bundle + MIB)
    item = Item(
        ItemKind.BUNDLE,
        whole.verdict,
        whole.findings,
        descriptor.thread_id,
        checkpoint_id=descriptor.checkpoint_id,
        reason=whole.reason or next((one.reason for one in whole.findings if one.reason), ""),
    )
    items = [item]
    bundle = None
    if whole.data is not None and item.verdict is Verdict.PASS:
        bundle, problem = await _opened(reader, whole)
        problem = problem or (_contradiction(descriptor, bundle) if bundle else "")
        if problem:
            items[0] = replace(item, verdict=Verdict.FAIL, reason=problem)
    if bundle is not None:
        items += [_checkpoint(member) for member in bundle.members]
    reader.step("bundle")
    return Findings(
        subject={"kind": "descriptor", **descriptor.as_dict()},
        root=whole.findings[0],
        trust=IN_DESCRIPTOR,
        items=ordered(items),
    )


async def _opened(reader: Reader, whole: Whole) -> tuple[Bundle | None, str]:
    """Return the bundle, or what is wrong with it."""
    data, bounds = whole.data or b"", reader.bounds
    try:
        bundle = await reader.apart(
            len(data), lambda: read_bundle(data, bounds.bundle, bounds.fields)
        )
    except Malformed as error:
        return None, str(error)
    return bundle, ""


def _contradiction(descriptor: Descriptor, bundle: Bundle) -> str:
    """Say in what a descriptor contradicts its bundle, for people; empty if in nothing."""
    if (descriptor.thread_id, descriptor.checkpoint_id) != (
        bundle.thread_id,
        bundle.checkpoint_id,
    ):
        return (
            f"the descriptor names checkpoint '{descriptor.checkpoint_id}' of thread "
            f"'{descriptor.thread_id}', and the bundle is of '{bundle.checkpoint_id}' of "
            f"'{bundle.thread_id}'"
        )
    summary = summary_of(bundle.handed_off)
    if descriptor.summary != summary:
        return f"the descriptor's summary is not that of the checkpoint, which is '{summary}'"
    return ""


def summary_of(envelope: Envelope) -> str:
    """Return what a descriptor has as the summary of a checkpoint; see docs/handoff.md."""
    if envelope.summary:
        return envelope.summary
    step, source = envelope.metadata.get("step"), envelope.metadata.get("source")
    if not isinstance(step, int) or isinstance(step, bool):
        return f"Checkpoint {envelope.checkpoint_id} of thread {envelope.thread_id}."
    cause = f" ({source})" if source in _SOURCES else ""
    return f"Step {step}{cause} of thread {envelope.thread_id}."


def _checkpoint(member: BundleMember) -> Item:
    envelope = member.envelope
    notes = ("hidden: there for the delta channels of others",) if member.hidden else ()
    return Item(
        ItemKind.CHECKPOINT,
        Verdict.PASS,
        (),
        envelope.thread_id,
        envelope.checkpoint_ns,
        envelope.checkpoint_id,
        notes=notes,
    )
