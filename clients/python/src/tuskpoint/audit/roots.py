"""Root of an audit: parsing of its name, its location, and the reason to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .formats.stored import Location, is_sha256
from .reading import Piece, Reader
from .sources import BlobMissingError, BlobUnreadableError, Member, Source, hash_of_id, is_patch_id
from .verdicts import Verdict

GIVEN = "the SHA-256 that was given for it"
NAMED_BY_HASH = "its blob ID, which in a blob directory is the SHA-256 of the file"
NAMED_PATCH = "the identifier that was given for it, which is its SHA-256"
IN_DESCRIPTOR = "the SHA-256 in the descriptor"
ON_THE_WORD = "the word of the source: no SHA-256 was given for it"

_NAMED_AT_MOST = 10


class UnclearName(Exception):
    """The name is not a blob ID, or is ambiguous. The text is one line."""


@dataclass(frozen=True, slots=True)
class Root:
    """The root of an audit.

    Attributes:
        location: Location of the root.
        trust: Reason to trust the root, for people.
        pinned: Whether the caller gave the hash of the root.
    """

    location: Location
    trust: str
    pinned: bool


def named(text: str, identifier: str = "", sha256: str = "") -> Location:
    """Return the location in a name and options.

    Args:
        text: "BLOB_ID", "BLOB_ID/IDENTIFIER", "BLOB_ID:SHA256HEX", or the ID of a patch.
        identifier: A patch of the quilt, unless the name has it.
        sha256: SHA-256 in hex, unless the name has it.

    Raises:
        UnclearName: The text has none of these forms.
    """
    rest, _, spelled = text.strip().partition(":")
    blob_id, _, patch = rest.partition("/")
    if (patch and identifier) or (spelled and sha256):
        raise UnclearName(f"'{text}' and the options beside it name the same thing twice")
    sha256 = (spelled or sha256).strip().lower()
    identifier = patch or identifier
    if sha256 and not is_sha256(sha256):
        raise UnclearName(f"'{sha256}' is not a SHA-256 in hex (64 digits)")
    if is_patch_id(blob_id):
        if identifier:
            raise UnclearName(f"'{blob_id}' is the ID of a patch, which has no patches")
    elif hash_of_id(blob_id) is None:
        raise UnclearName(f"'{blob_id}' is not a blob ID: 43 characters of base64url")
    return Location(blob_id, identifier, sha256)


async def find(source: Source, location: Location, kind: str) -> Root:
    """Return the location of the only catalog or manifest under a name.

    Args:
        source: Lists the content of a quilt.
        location: The named location.
        kind: "catalog" or "manifest", the tag of the patch.

    Raises:
        UnclearName: There are several patches of the kind.
    """
    if location.identifier:
        if location.sha256 or not is_sha256(location.identifier):
            pinned = bool(location.sha256)
            return Root(location, GIVEN if pinned else ON_THE_WORD, pinned)
        return Root(replace(location, sha256=location.identifier), NAMED_PATCH, pinned=True)
    members = await _members(source, location.blob_id)
    if location.sha256:
        if any(member.identifier == location.sha256 for member in members or ()):
            location = replace(location, identifier=location.sha256)
        return Root(location, GIVEN, pinned=True)
    trust = NAMED_BY_HASH if source.ids_are_hashes else ON_THE_WORD
    if members is not None:
        # The name of a patch is its SHA-256, so other bytes are detected. But the source gave the
        # name.
        name = _only(location.blob_id, members, kind)
        location = replace(location, identifier=name, sha256=name)
    elif source.ids_are_hashes:
        location = replace(location, sha256=hash_of_id(location.blob_id) or "")
    return Root(location, trust, source.ids_are_hashes)


async def _members(source: Source, blob_id: str) -> list[Member] | None:
    if is_patch_id(blob_id):
        return None
    try:
        return await source.members(blob_id)
    except (BlobMissingError, BlobUnreadableError):
        return None  # the read of the blob itself reports the problem


def _only(blob_id: str, members: Sequence[Member], kind: str) -> str:
    """Return the identifier of the only patch of a kind.

    Raises:
        UnclearName: There is no such patch, or there are several.
    """
    patches = [member for member in members if is_sha256(member.identifier)]
    matches = [member for member in patches if member.kind == kind]
    matches = matches or [member for member in patches if not member.kind]
    if not matches:
        raise UnclearName(f"quilt {blob_id} holds no {kind}")
    if len(matches) > 1:
        names = ", ".join(member.identifier for member in matches[:_NAMED_AT_MOST])
        more = len(matches) - _NAMED_AT_MOST
        raise UnclearName(
            f"quilt {blob_id} holds more than one {kind}; name one as "
            f"BLOB_ID/IDENTIFIER: {names}{f' and {more} more' if more > 0 else ''}"
        )
    return matches[0].identifier


async def read_root(reader: Reader, root: Root, role: str) -> Piece:
    """Read the root of an audit. Without a given hash, the root is `TRUSTED` at best."""
    piece = await reader.read(role, root.location)
    if root.pinned or piece.finding.verdict is not Verdict.PASS:
        return piece
    reason = f"it is trusted on {ON_THE_WORD}"
    return replace(piece, finding=replace(piece.finding, verdict=Verdict.TRUSTED, reason=reason))


def subject_of(root: Root, kind: str) -> dict[str, Any]:
    """Return the root in the form of findings: only the data that the caller gave."""
    return {
        "kind": kind,
        "blob_id": root.location.blob_id,
        "identifier": root.location.identifier,
        "sha256": root.location.sha256 if root.pinned else "",
    }
