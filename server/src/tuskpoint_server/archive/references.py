"""What people name a catalog or a manifest by, and how its exact location is found.

People have what the server's log, its status or the pointer file told them: a blob ID.
The blob may be a quilt of hundreds of members, and an ID alone says nothing of a SHA-256;
the store's list of members does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..blobs.api import BlobStore, Listed
from ..domain.catalog import Catalog, decode_catalog
from ..domain.digests import DIGEST_BYTES
from ..domain.errors import Reason, Refusal
from ..domain.manifest import Segment, decode_segment
from ..domain.model import BlobLocation
from .building import CATALOG, SEGMENT

_T = TypeVar("_T")

_READ_AT_ONCE = 64
_NAMED_AT_MOST = 20


class UnclearReferenceError(Exception):
    """A reference names nothing, or more than one thing; its text is one line."""


@dataclass(frozen=True, slots=True)
class BlobReference:
    """A blob as people name it.

    Attributes:
        blob_id: The blob or quilt.
        identifier: Patch of the quilt, or empty.
        sha256: Hash of the wanted bytes, or empty.
    """

    blob_id: str
    identifier: str = ""
    sha256: bytes = b""


def parse_reference(text: str) -> BlobReference:
    """Return what "BLOB_ID", "BLOB_ID/IDENTIFIER" or "BLOB_ID:SHA256HEX" names.

    Raises:
        UnclearReferenceError: It is none of these.
    """
    blob_id, slash, identifier = text.strip().partition("/")
    if slash:
        if not blob_id or not identifier:
            raise UnclearReferenceError(f"'{text}' is not BLOB_ID/IDENTIFIER")
        return BlobReference(blob_id, identifier)
    blob_id, colon, spelled = text.strip().partition(":")
    sha256 = _sha256(spelled)
    if not blob_id or (colon and not sha256):
        raise UnclearReferenceError(f"'{text}' is not BLOB_ID:SHA256HEX")
    return BlobReference(blob_id, "", sha256)


async def find_catalog(blobs: BlobStore, reference: BlobReference) -> BlobLocation:
    """Return where the catalog lies that a reference names.

    Raises:
        UnclearReferenceError: There is none, or more than one.
        Refusal: Of the blob store.
    """
    if reference.identifier and _sha256(reference.identifier):
        return _exact(reference)
    listed = await _candidates(blobs, reference, CATALOG)
    if len(listed) == 1:
        return listed[0].location
    found = await _decoded(blobs, listed, _catalog)
    if len(found) == 1:
        return found[0][0]
    raise _unclear(reference, CATALOG, [(at, f"catalog {item.seq}") for at, item in found])


async def find_segment(blobs: BlobStore, reference: BlobReference) -> BlobLocation:
    """Return where the last segment lies of the one manifest that a reference names.

    Raises:
        UnclearReferenceError: There is none, or those of several threads.
        Refusal: Of the blob store.
    """
    if reference.identifier and _sha256(reference.identifier):
        return _exact(reference)
    listed = await _candidates(blobs, reference, SEGMENT)
    if len(listed) == 1:
        return listed[0].location
    found = await _decoded(blobs, listed, _segment)
    chains = {(item.thread_id, item.incarnation) for _, item in found}
    if len(chains) != 1:
        threads = [(at, f"thread '{item.thread_id}', segment {item.segment}") for at, item in found]
        raise _unclear(reference, SEGMENT, threads)
    at, _ = max(found, key=lambda pair: pair[1].segment)
    return at


def _exact(reference: BlobReference) -> BlobLocation:
    """Return the location of a patch that is named by its hash, as all of ours are."""
    sha256 = _sha256(reference.identifier)
    return BlobLocation(sha256, 0, reference.blob_id, sha256.hex())


async def _candidates(blobs: BlobStore, reference: BlobReference, kind: str) -> Sequence[Listed]:
    """Return the members that may be meant: of the kind, or where the store tells none, all."""
    listed = await blobs.list_blob(reference.blob_id)
    if reference.identifier:
        return [one for one in listed if one.location.identifier == reference.identifier]
    if reference.sha256:
        same = [one for one in listed if one.location.sha256 == reference.sha256]
        if not same:
            raise Refusal(
                Reason.BLOB_HASH_MISMATCH,
                blob_id=reference.blob_id,
                expected=reference.sha256.hex(),
                actual=_shortened(one.location.sha256.hex() for one in listed),
            )
        return same
    return [one for one in listed if one.kind == kind] or [one for one in listed if not one.kind]


async def _decoded(
    blobs: BlobStore,
    listed: Sequence[Listed],
    decode: Callable[[bytes, BlobLocation], _T],
) -> list[tuple[BlobLocation, _T]]:
    """Return those members that can be decoded."""
    found: list[tuple[BlobLocation, _T]] = []
    for start in range(0, len(listed), _READ_AT_ONCE):
        some = [one.location for one in listed[start : start + _READ_AT_ONCE]]
        for at, data in zip(some, await blobs.get_many(some), strict=True):
            try:
                found.append((at, decode(data, at)))
            except Refusal:
                continue  # an envelope, or a member of another kind
    return found


def _catalog(data: bytes, at: BlobLocation) -> Catalog:
    return decode_catalog(data, at)


def _segment(data: bytes, at: BlobLocation) -> Segment:
    return decode_segment(data, at.blob_id)


def _unclear(
    reference: BlobReference, kind: str, found: Sequence[tuple[BlobLocation, str]]
) -> UnclearReferenceError:
    if not found:
        return UnclearReferenceError(f"blob {reference.blob_id} holds no {kind}")
    named = _shortened(f"{at.identifier} ({what})" for at, what in found)
    return UnclearReferenceError(
        f"blob {reference.blob_id} holds more than one {kind}; "
        f"name one as {reference.blob_id}/IDENTIFIER: {named}"
    )


def _shortened(items: Iterable[str]) -> str:
    listed = list(items)
    more = len(listed) - _NAMED_AT_MOST
    text = ", ".join(listed[:_NAMED_AT_MOST])
    return f"{text} and {more} more" if more > 0 else text


def _sha256(spelled: str) -> bytes:
    """Return the SHA-256 that is spelled in hex; empty if it is none."""
    try:
        digest = bytes.fromhex(spelled)
    except ValueError:
        return b""
    return digest if len(digest) == DIGEST_BYTES and digest.hex() == spelled.lower() else b""
