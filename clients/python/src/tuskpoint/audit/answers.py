"""What an answer of an aggregator means, and whether to ask again: one table.

After the HTTP API of Walrus v1.56.0 (`crates/walrus-storage-node-client/src/api/errors.rs`):
errors of an aggregator are JSON and name a reason; what is not JSON comes from a proxy, a
framework, or something that is no aggregator.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Pace:
    """How often and how fast to ask again.

    Attributes:
        rounds: Further rounds over all endpoints.
        first_s: Bound on the pause before the first; doubles with every further one.
        longest_s: Bound on any pause.
        jitter: A pause is any time up to the bound, not the bound.
    """

    rounds: int
    first_s: float = 0.0
    longest_s: float = 0.0
    jitter: bool = True

    def pause_s(self, round_number: int, chance: float) -> float:
        """Return the pause before a round (from 1), given a number from 0 to 1."""
        bound = min(self.first_s * 2.0 ** (round_number - 1), self.longest_s)
        return bound * chance if self.jitter else bound


NEVER = Pace(0)
USUAL = Pace(5, 0.5, 8.0)
FEW = Pace(2, 1.0, 4.0)
PAST_CACHES = Pace(1)
REREAD = Pace(2, 0.2, 1.0)
VISIBLE_SOON = Pace(6, 0.5, 16.0, jitter=False)
"""What upstream's client grants a blob that was just certified: 31.5 s."""


class Sort(Enum):
    """What an attempt that gave no right bytes says of the blob."""

    ABSENT = "absent"
    WRONG = "wrong"
    TOO_LONG = "too long"
    SILENT = "nothing"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One attempt that gave no right bytes.

    Attributes:
        sort: What it says of the blob.
        text: What happened, for people; without the endpoint.
        pace: Whether to ask again.
        stale: A cache may have kept an older answer: ask under another URL.
        blames: The endpoint is asked after the others from now on.
    """

    sort: Sort
    text: str
    pace: Pace
    stale: bool = False
    blames: bool = False


UNREACHED = Trouble(
    Sort.SILENT, "cannot be reached; check the URL and the network", USUAL, blames=True
)
LATE = Trouble(
    Sort.SILENT, "gave no answer in time; try a longer --timeout or another", USUAL, blames=True
)
BROKEN = Trouble(Sort.SILENT, "broke the connection", USUAL, blames=True)
WEB_PAGE = Trouble(
    Sort.SILENT,
    "sent a web page instead of the blob; check that the URL is that of an aggregator",
    FEW,
    blames=True,
)
ENDLESS = Trouble(Sort.TOO_LONG, "sent more bytes than the blob can have", NEVER)
OTHER_BYTES = Trouble(Sort.WRONG, "sent bytes with another SHA-256", REREAD, stale=True)

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
        return Trouble(Sort.ABSENT, said, VISIBLE_SOON if recent else PAST_CACHES, stale=True)
    if status == 429:
        return Trouble(Sort.SILENT, f"{said}: it is at its limit", USUAL)
    if status in _GATEWAY:
        return Trouble(Sort.SILENT, said, USUAL, blames=True)
    if status >= 500:
        advice = "older versions answer so about expired blobs"
        return Trouble(Sort.SILENT, f"{said}; {advice}", FEW, blames=True)
    if status == 451:
        return Trouble(Sort.SILENT, f"{said}: it must not serve it for legal reasons", NEVER)
    if status in (401, 403, 407):
        return Trouble(Sort.SILENT, f"{said}: it does not serve this to everyone", NEVER)
    return Trouble(
        Sort.SILENT, f"{said}; check that the URL is that of an aggregator", NEVER, blames=True
    )


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
