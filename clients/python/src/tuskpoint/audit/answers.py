"""Meaning of an aggregator's answers, and whether to retry: a single table.

For the HTTP API of Walrus v1.56.0 (`crates/walrus-storage-node-client/src/api/errors.rs`):
errors of an aggregator are JSON with a reason. Other errors come from a proxy, a framework, or a
server that is not an aggregator.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import NamedTuple


class Pace(NamedTuple):
    """Number of rounds over all endpoints, and bounds on the first and on any pause, in seconds."""

    rounds: int
    first_s: float = 0.0
    longest_s: float = 0.0


NEVER = Pace(0)
USUAL = Pace(5, 0.5, 8.0)
FEW = Pace(2, 1.0, 4.0)
PAST_CACHES = Pace(1)
REREAD = Pace(2, 0.2, 1.0)
VISIBLE_SOON = Pace(6, 0.5, 16.0)
"""Time for which Walrus' own client waits for a blob that was just certified: 31.5 s, no jitter."""


class Sort(Enum):
    """Meaning of a failed attempt for the blob."""

    ABSENT = "absent"
    WRONG = "wrong"
    TOO_LONG = "too long"
    SILENT = "nothing"


class Trouble(NamedTuple):
    """A failed attempt.

    Attributes:
        sort: Meaning of the failure for the blob.
        text: Text for people: what happened, without the endpoint.
        pace: Whether and when to retry.
        blames: Whether the endpoint moves behind the others.
    """

    sort: Sort
    text: str
    pace: Pace
    blames: bool = False

    @property
    def stale(self) -> bool:
        """Whether a cache may have returned an outdated answer. Then another URL is tried."""
        return self.sort in (Sort.ABSENT, Sort.WRONG)


UNREACHED = Trouble(Sort.SILENT, "cannot be reached; check the URL and the network", USUAL, True)
LATE = Trouble(
    Sort.SILENT, "did not answer in time; try a longer --timeout or another aggregator", USUAL, True
)
BROKEN = Trouble(Sort.SILENT, "broke the connection", USUAL, True)
_PAGE = "sent a web page instead of the blob; check that the URL names an aggregator"
WEB_PAGE = Trouble(Sort.SILENT, _PAGE, FEW, True)
ENDLESS = Trouble(Sort.TOO_LONG, "sent more bytes than the blob can have", NEVER)
OTHER_BYTES = Trouble(Sort.WRONG, "sent bytes with another SHA-256", REREAD)

_NOT_FOUND = ("BLOB_NOT_FOUND", "QUILT_PATCH_NOT_FOUND", "OBJECT_ID_RESOLUTION_FAILED")
_GATEWAY = (408, 502, 503, 504, *range(520, 531))
_HTML = (b"<!doctype", b"<html", b"<head")


def trouble_of(status: int, body: bytes, *, recent: bool) -> Trouble:
    """Return the failure for an answer whose status is not 200.

    Args:
        status: HTTP status.
        body: Start of the body.
        recent: Whether the blob was stored a moment ago.
    """
    reason = _reason(body)
    text = f"answered {status}{f' {reason}' if reason else ''}"
    if status == 404 and (reason in _NOT_FOUND or recent):
        return Trouble(Sort.ABSENT, text, VISIBLE_SOON if recent else PAST_CACHES)
    if status == 429:
        return Trouble(Sort.SILENT, f"{text}: the aggregator limits requests", USUAL)
    if status in _GATEWAY:
        return Trouble(Sort.SILENT, text, USUAL, True)
    if status >= 500:
        return Trouble(
            Sort.SILENT, f"{text}; older versions answer this for expired blobs", FEW, True
        )
    if status == 451:
        return Trouble(
            Sort.SILENT, f"{text}: the aggregator must not serve the blob for legal reasons", NEVER
        )
    if status in (401, 403, 407):
        return Trouble(Sort.SILENT, f"{text}: the aggregator requires a credential", NEVER)
    return Trouble(Sort.SILENT, f"{text}; check that the URL names an aggregator", NEVER, True)


def is_web_page(content_type: str, body: bytes) -> bool:
    """Return whether an answer with status 200 is a web page, for example from a portal."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "text/html" or body[:64].lstrip().lower().startswith(_HTML)


def _reason(body: bytes) -> str:
    """Return the reason in a JSON error; empty for other bodies."""
    try:
        reason = json.loads(body)["error"]["details"][0]["reason"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return reason if isinstance(reason, str) and reason.isidentifier() else ""


def listed(body: bytes) -> list[tuple[str, str]]:
    """Return the identifier and the `tuskpoint-kind` of the patches of a quilt.

    Raises:
        ValueError: The body is not a list of patches.
    """
    try:
        return [
            (str(patch["identifier"]), str((patch.get("tags") or {}).get("tuskpoint-kind", "")))
            for patch in json.loads(body)
        ]
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("it is not a list of patches") from error
