"""Repeated audit of a report's blobs: whether they are stored with their hashes. Needs no key."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ..formats.stored import Fields, Location, MalformedError
from ..reading import Reader, all_of
from ..report import BadReport
from ..verdicts import ROLES, Findings, Item, ItemKind, findings_digest, ordered

_TRUST = "the hashes in the report"
_GROUP = 512


async def audit_blobs(reader: Reader, listed: list[tuple[str, Location]]) -> Findings:
    """Read blobs and compare each with its hash, without opening sealed blobs.

    Args:
        reader: Reads the stored bytes.
        listed: Role and location of each blob, from `read_listed`.
    """
    reader.expect(len(listed))
    items: list[Item] = []
    for start in range(0, len(listed), _GROUP):
        group = listed[start : start + _GROUP]
        items += await all_of(_audited(reader, role, location) for role, location in group)
    subject = {"kind": "blobs", "sha256": findings_digest([_named(*blob) for blob in listed])}
    return Findings(subject, items[0].blobs[0], _TRUST, ordered(items))


async def _audited(reader: Reader, role: str, location: Location) -> Item:
    piece = await reader.read(role, location)
    reader.step("blobs")
    return Item.of(ItemKind.BLOB, (piece.finding,))


def _named(role: str, location: Location) -> list[str]:
    return [role, location.blob_id, location.identifier, location.sha256]


def read_listed(text: str, name: str) -> list[tuple[str, Location]]:
    """Return role and location of a report's blobs that have a hash, the root first.

    Args:
        text: A report in JSON, or a list of elements of `blobs`.
        name: Name of the file, for errors.

    Raises:
        BadReport: The text is neither, or has no blob.
    """
    try:
        content = json.loads(text)
        json.dumps(content, ensure_ascii=False).encode()  # half a surrogate pair is not text
        blobs = content if isinstance(content, list) else list(_of_report(content))
        locations = [_listed(Fields(blob, "")) for blob in blobs]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadReport(f"{name} is neither a report of an audit nor a list of blobs") from None
    except MalformedError as error:
        raise BadReport(f"{name} lists a blob that cannot be used: {error}") from None
    unique = {
        (location.blob_id, location.identifier, location.sha256): (role, location)
        for role, location in locations
    }
    if not unique:
        raise BadReport(f"{name} lists no blob")
    return list(unique.values())


def _of_report(report: dict[str, Any]) -> Iterable[object]:
    """Yield the root and the blobs of all items, except blobs that were never read."""
    findings = report["findings"]
    for blob in (findings["root"], *(blob for item in findings["items"] for blob in item["blobs"])):
        if blob["expected_sha256"] or blob["actual_sha256"]:
            yield blob


def _listed(blob: Fields) -> tuple[str, Location]:
    if (role := blob.text("role")) not in ROLES:
        raise MalformedError(f"its role is '{role[:40]}'")
    key = "expected_sha256" if blob.text("expected_sha256") else "actual_sha256"
    location = Location(blob.name("blob_id"), blob.text("identifier"), blob.sha256(key))
    return role, location
