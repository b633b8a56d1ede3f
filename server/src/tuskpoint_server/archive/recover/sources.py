"""Where a recovery begins: a catalog, or the stored manifest of one thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...blobs.api import BlobStore
from ...domain.errors import Reason, Refusal
from ...domain.formats.catalogs import Catalog, decode_catalog
from ...domain.formats.manifests import Manifest, decode_manifest
from ...domain.formats.merging import LiveRuns
from ...domain.formats.runs import RunRef, decode_run, members_of, page_lines
from ...domain.formats.segments import MAX_SEGMENT_BYTES
from ...domain.formats.stored_json import Kind, decode_parts, is_part_list, join_parts
from ...domain.model import BlobLocation

DAMAGE = (Reason.BLOB_HASH_MISMATCH, Reason.BLOB_NOT_FOUND, Reason.BLOB_MALFORMED)
"""Refusals of what is stored, as against those of a store that does not answer."""

LeaveOut = Callable[[str, Refusal], None]
"""Notes what is left out, a phrase and why; raises the refusal if nothing may be."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a recovery begins with.

    Attributes:
        location: Where it lies.
        content: A catalog, everything in which names its blob; or the manifest of one thread.
    """

    location: BlobLocation
    content: Catalog | Manifest

    @property
    def generation(self) -> int:
        """The generation in which the recovered journal goes on."""
        return self.content.generation + 1


async def read_source(blobs: BlobStore, location: BlobLocation, kind: Kind) -> Source:
    """Return what to recover from.

    Args:
        blobs: Where it is read.
        location: Where it lies; its hash is what all else is trusted by.
        kind: A catalog or a manifest.

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
    """Return where all members of live runs lie, those of unfinished merges among them.

    Raises:
        Refusal: What cannot be read.
    """
    made = [ref for merge in runs.merges for height in merge.made for ref in height]
    found: list[BlobLocation] = []
    for ref in (*runs.oldest_first(), *made):
        found += await members_of(ref, blobs.get)
    return found


async def readable(blobs: BlobStore, runs: LiveRuns, leave_out: LeaveOut) -> LiveRuns:
    """Return runs that can all be read.

    In the place of a run with a damaged part stand its other parts. Merges begin anew then.

    Args:
        blobs: Where runs are read.
        runs: The live runs.
        leave_out: Notes each part that is damaged.

    Raises:
        Refusal: Whatever is no damage.
    """
    levels = []
    for level in runs.levels:
        kept: list[RunRef] = []
        for ref in level:
            kept += await _readable(blobs, ref, leave_out)
        levels.append(tuple(kept))
    merges = runs.merges if tuple(levels) == runs.levels else ()
    for ref in [ref for merge in merges for height in merge.made for ref in height]:
        if await _readable(blobs, ref, lambda what, refusal: None) != [ref]:
            merges = ()
    return LiveRuns(tuple(levels), merges)


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
