"""What an answer of an aggregator means, and whether to ask again: one table.

After the HTTP API of Walrus v1.56.0 (`crates/walrus-storage-node-client/src/api/errors.rs`):
errors of an aggregator are JSON and name a reason; what is not JSON comes from a proxy, a
framework, or something that is no aggregator.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import NamedTuple


class Pace(NamedTuple):
    """How often to ask all endpoints again, and bounds on the first and any pause in seconds."""

    rounds: int
    first_s: float = 0.0
    longest_s: float = 0.0


NEVER = Pace(0)
USUAL = Pace(5, 0.5, 8.0)
FEW = Pace(2, 1.0, 4.0)
PAST_CACHES = Pace(1)
REREAD = Pace(2, 0.2, 1.0)
VISIBLE_SOON = Pace(6, 0.5, 16.0)
"""What upstream's client grants a blob that was just certified: 31.5 s, without chance."""


class Sort(Enum):
    """What an attempt that gave no right bytes says of the blob."""

    ABSENT = "absent"
    WRONG = "wrong"
    TOO_LONG = "too long"
    SILENT = "nothing"


class Trouble(NamedTuple):
    """One attempt that gave no right bytes.

    Attributes:
        sort: What it says of the blob.
        text: What happened, for people; without the endpoint.
        pace: Whether to ask again.
        blames: The endpoint is asked after the others from now on.
    """

    sort: Sort
    text: str
    pace: Pace
    blames: bool = False

    @property
    def stale(self) -> bool:
        """Whether a cache may have kept an older answer: another URL is asked then."""
        return self.sort in (Sort.ABSENT, Sort.WRONG)


UNREACHED = Trouble(Sort.SILENT, "cannot be reached; check the URL and the network", USUAL, True)
LATE = Trouble(
    Sort.SILENT, "gave no answer in time; try a longer --timeout or another", USUAL, True
)
BROKEN = Trouble(Sort.SILENT, "broke the connection", USUAL, True)
_PAGE = "sent a web page instead of the blob; check that the URL is that of an aggregator"
WEB_PAGE = Trouble(Sort.SILENT, _PAGE, FEW, True)
ENDLESS = Trouble(Sort.TOO_LONG, "sent more bytes than the blob can have", NEVER)
OTHER_BYTES = Trouble(Sort.WRONG, "sent bytes with another SHA-256", REREAD)

_NOT_FOUND = ("BLOB_NOT_FOUND", "QUILT_PATCH_NOT_FOUND", "OBJECT_ID_RESOLUTION_FAILED")
_GATEWAY = (408, 502, 503, 504, *range(520, 531))
_HTML = (b"<!doctype", b"<html", b"<head")


def trouble_of(status: int, body: bytes, *, recent: bool) -> Trouble:
    """Return what an answer with another status than 200 means.

    Args:
        status: HTTP status.
        body: Beginning of the body.
        recent: What is asked for was stored a moment ago.
    """
    reason = _reason(body)
    said = f"answered {status}{f' {reason}' if reason else ''}"
    if status == 404 and (reason in _NOT_FOUND or recent):
        return Trouble(Sort.ABSENT, said, VISIBLE_SOON if recent else PAST_CACHES)
    if status == 429:
        return Trouble(Sort.SILENT, f"{said}: it is at its limit", USUAL)
    if status in _GATEWAY:
        return Trouble(Sort.SILENT, said, USUAL, True)
    if status >= 500:
        return Trouble(
            Sort.SILENT, f"{said}; older versions answer so about expired blobs", FEW, True
        )
    if status == 451:
        return Trouble(Sort.SILENT, f"{said}: it must not serve it for legal reasons", NEVER)
    if status in (401, 403, 407):
        return Trouble(Sort.SILENT, f"{said}: it does not serve this to everyone", NEVER)
    return Trouble(Sort.SILENT, f"{said}; check that the URL is that of an aggregator", NEVER, True)


def is_web_page(content_type: str, body: bytes) -> bool:
    """Tell whether what came with status 200 is a page for people, as portals send one."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "text/html" or body[:64].lstrip().lower().startswith(_HTML)


def _reason(body: bytes) -> str:
    """Return the reason that an error in JSON names; empty if it is none."""
    try:
        reason = json.loads(body)["error"]["details"][0]["reason"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return reason if isinstance(reason, str) and reason.isidentifier() else ""


def listed(body: bytes) -> list[tuple[str, str]]:
    """Return identifier and `tuskpoint-kind` of the patches of a quilt.

    Raises:
        ValueError: It is no list of patches.
    """
    try:
        return [
            (str(patch["identifier"]), str((patch.get("tags") or {}).get("tuskpoint-kind", "")))
            for patch in json.loads(body)
        ]
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("it is no list of patches") from error
