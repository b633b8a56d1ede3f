"""Where a recovery begins: a catalog, or the stored manifest of one thread, as people name it.

People have the blob ID that the server's log, its status or the pointer file shows. The blob
may be a quilt of hundreds of members; the store's list of them names the one that is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...blobs.api import BlobStore
from ...domain.errors import Reason, Refusal
from ...domain.formats.catalogs import Catalog, LiveRuns, decode_catalog
from ...domain.formats.manifests import Manifest, decode_manifest
from ...domain.formats.runs import RunRef, decode_run, members_of, page_lines
from ...domain.formats.segments import MAX_SEGMENT_BYTES
from ...domain.formats.stored_json import Kind, decode_parts, is_part_list, join_parts
from ...domain.model import BlobLocation
from ...domain.values import DIGEST_BYTES

DAMAGE = (Reason.BLOB_HASH_MISMATCH, Reason.BLOB_NOT_FOUND, Reason.BLOB_MALFORMED)
"""Refusals of what is stored, as against those of a store that does not answer."""

LeaveOut = Callable[[str, Refusal], None]
"""Notes what is left out, a phrase and why; raises the refusal if nothing may be."""

_NAMED_AT_MOST = 20


class UnclearReferenceError(Exception):
    """A reference names nothing, or more than one thing; its text is one line."""


@dataclass(frozen=True, slots=True)
class BlobReference:
    """A blob as people name it."""

    blob_id: str  # the blob or quilt
    sha256: bytes = b""  # hash of the wanted bytes, or empty
    is_member: bool = False  # the hash was given as the identifier of a member


def parse_reference(text: str) -> BlobReference:
    """Return what "BLOB_ID", "BLOB_ID/IDENTIFIER" or "BLOB_ID:SHA256HEX" names.

    Raises:
        UnclearReferenceError: It is none of these.
    """
    given = text.strip()
    separator = "/" if "/" in given else ":"
    blob_id, separated, spelled = given.partition(separator)
    sha256 = _sha256(spelled)
    if not blob_id or (separated and not sha256):
        wanted = "BLOB_ID/IDENTIFIER" if separator == "/" else "BLOB_ID:SHA256HEX"
        raise UnclearReferenceError(f"'{text}' is not BLOB_ID or {wanted}")
    return BlobReference(blob_id, sha256, bool(sha256) and separator == "/")


async def find(blobs: BlobStore, reference: BlobReference, kind: Kind) -> BlobLocation:
    """Return where the one member of a kind lies that a reference names.

    Raises:
        UnclearReferenceError: There is none, or more than one.
        Refusal: `BLOB_HASH_MISMATCH`: nothing there has the given hash; what the store raises.
    """
    blob_id, sha256 = reference.blob_id, reference.sha256
    if reference.is_member:
        return BlobLocation(sha256, 0, blob_id, sha256.hex())
    listed = await blobs.list_blob(blob_id)
    if sha256:
        found = [one.location for one in listed if one.location.sha256 == sha256]
        if not found:
            actual = _shortened([one.location.sha256.hex() for one in listed])
            raise Refusal(
                Reason.BLOB_HASH_MISMATCH, blob_id=blob_id, expected=sha256.hex(), actual=actual
            )
        return found[0]
    # A store says of a blob that is no quilt what its bytes are, not of which kind.
    found = [one.location for one in listed if one.kind in (kind, "")]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UnclearReferenceError(f"blob {blob_id} holds no {kind}")
    named = _shortened([one.identifier for one in found])
    raise UnclearReferenceError(
        f"blob {blob_id} holds more than one {kind}; name one as {blob_id}/IDENTIFIER: {named}"
    )


def _shortened(items: list[str]) -> str:
    more = len(items) - _NAMED_AT_MOST
    text = ", ".join(items[:_NAMED_AT_MOST])
    return f"{text} and {more} more" if more > 0 else text


def _sha256(spelled: str) -> bytes:
    """Return the SHA-256 that is spelled in hex; empty if it is none."""
    try:
        digest = bytes.fromhex(spelled)
    except ValueError:
        return b""
    return digest if len(digest) == DIGEST_BYTES and digest.hex() == spelled.lower() else b""


class Source(NamedTuple):
    """What a recovery begins with, and where that lies.

    Everything in a catalog names its blob.
    """

    location: BlobLocation
    content: Catalog | Manifest

    @property
    def generation(self) -> int:
        """The generation in which the recovered journal goes on."""
        return self.content.generation + 1


async def read_source(blobs: BlobStore, location: BlobLocation, kind: Kind) -> Source:
    """Return what to recover from: a catalog or a manifest.

    The hash of the location is what all else is trusted by.

    Raises:
        Refusal: `BLOB_HASH_MISMATCH`, `BLOB_NOT_FOUND`, `BLOB_MALFORMED`, also if it is of
            another format; `BLOB_UNAVAILABLE`.
    """
    data = await blobs.get(location)
    found, name = replace(location, size=len(data)), location.blob_id
    if kind is Kind.CATALOG:
        return Source(found, decode_catalog(data, name))
    if is_part_list(data) and b'"kind":"parts"' in data[:4096]:
        listed = decode_parts(data, location, MAX_SEGMENT_BYTES)
        data = join_parts(listed, await blobs.get_many(listed.parts), name)
    return Source(found, decode_manifest(data, name))


async def run_members(blobs: BlobStore, runs: LiveRuns) -> list[BlobLocation]:
    """Return where all members of live runs lie, those of unfinished merges among them."""
    made = [ref for merge in runs.merges for height in merge.made for ref in height]
    found: list[BlobLocation] = []
    for ref in (*runs.oldest_first(), *made):
        found += await members_of(ref, blobs.get)
    return found


async def readable(blobs: BlobStore, runs: LiveRuns, leave_out: LeaveOut) -> LiveRuns:
    """Return runs that can all be read; merges begin anew.

    In the place of a run with a damaged part stand its other parts.
    """
    levels = []
    for level in runs.levels:
        kept: list[RunRef] = []
        for ref in level:
            kept += await _readable(blobs, ref, leave_out)
        levels.append(tuple(kept))
    return LiveRuns(tuple(levels))


async def _readable(blobs: BlobStore, ref: RunRef, leave_out: LeaveOut) -> list[RunRef]:
    """Return a run, or those of its parts that can be read."""
    try:
        data = await blobs.get(ref.location)
        run = decode_run(data, ref)
        for page in run.pages:
            page_lines(data, page, ref.location.blob_id)
    except Refusal as refusal:
        if refusal.reason not in DAMAGE:
            raise
        what = f"the records from thread '{ref.first[0]}' to thread '{ref.last[0]}' of a run"
        leave_out(what, refusal)
        return []
    kept: list[RunRef] = []
    for child in run.runs:
        kept += await _readable(blobs, child, leave_out)
    return [ref] if tuple(kept) == run.runs else kept
