"""What publishers and aggregators answer, and nothing else.

Publishers: one JSON object with exactly one of `newlyCreated`, `alreadyCertified`,
`markedInvalid` and `error`, all with status 200 (types of the Walrus SDK, camelCase on
the wire). Whatever is needed and missing makes the answer malformed.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from ..names import digest_of
from .failures import Outcome, Symptom, Unsuccessful, one_line
from .quilt import Patch, encoded_bytes

_T = TypeVar("_T")

_Object = dict[str, Any]

_HTML_STARTS = (b"<!doctype", b"<html", b"<head", b"<?xml")


@dataclass(frozen=True, slots=True)
class Stored:
    """A blob that a publisher stored or found stored.

    Attributes:
        blob_id: Its ID.
        object_id: Its Sui object; empty if the answer names none.
        billed_bytes: Encoded size that was paid for; 0: nothing.
        cost: Price in FROST, without gas.
        epoch: Epoch of the put; `None` if the answer does not tell.
        end_epoch: Epoch at whose start it is gone.
        found: It was stored before.
    """

    blob_id: str
    object_id: str
    billed_bytes: int
    cost: int
    epoch: int | None
    end_epoch: int
    found: bool = False


def parse_blob_result(body: bytes) -> Stored:
    """Return what PUT /v1/blobs answered.

    Raises:
        Unsuccessful: It was not stored.
        ValueError: It is no such answer.
    """
    return _stored(_typed(dict, _json(body), "the answer"))


def parse_quilt_result(body: bytes, identifiers: Collection[str]) -> Stored:
    """Return what PUT /v1/quilts answered about a quilt that has to hold these patches.

    Raises:
        Unsuccessful: It was not stored.
        ValueError: It is no such answer, or a patch is missing in it.
    """
    answer: _Object = _typed(dict, _json(body), "the answer")
    stored = _stored(_child(answer, "blobStoreResult"))
    patches = _typed(list, answer.get("storedQuiltBlobs"), "storedQuiltBlobs")
    named = {_text(_typed(dict, patch, "a patch"), "identifier") for patch in patches}
    missing = len(set(identifiers) - named)
    if missing:
        raise ValueError(f"storedQuiltBlobs lacks {missing} of {len(identifiers)} patches")
    return stored


def parse_patches(body: bytes) -> list[Patch]:
    """Return what GET /v1/quilts/{id}/patches answered: patches without their data.

    Raises:
        ValueError: It is no such answer.
    """
    patches = []
    for item in _typed(list, _json(body), "the list of patches"):
        patch: _Object = _typed(dict, item, "a patch")
        tags = {} if patch.get("tags") is None else _child(patch, "tags")
        if not all(isinstance(tag, str) for tag in tags.values()):
            raise ValueError("tags must be an object of strings")
        patches.append(Patch(_text(patch, "identifier"), tags))
    return patches


def read_error(status: int, content_type: str, body: bytes) -> Symptom:
    """Return what an answer with another status than 200 says."""
    try:
        error = _child(_typed(dict, _json(body), "the answer"), "error")
    except ValueError:
        start = body[:64].lstrip().lower()
        if "html" in content_type.lower() or start.startswith(_HTML_STARTS):
            return Symptom(status=status)
        return Symptom(status=status, detail=one_line(body[:4096].decode("utf-8", "replace")))
    message, details = error.get("message"), error.get("details")
    reasons = (
        detail["reason"]
        for detail in (details if isinstance(details, list) else ())
        if isinstance(detail, dict) and isinstance(detail.get("reason"), str)
    )
    return Symptom(
        status=status,
        json=True,
        reason=one_line(next(reasons, "")),
        detail=one_line(message) if isinstance(message, str) else "",
    )


def _stored(result: _Object) -> Stored:
    if result.get("newlyCreated") is not None:
        return _created(_child(result, "newlyCreated"))
    if result.get("alreadyCertified") is not None:
        found = _child(result, "alreadyCertified")
        object_id = found.get("object")
        return Stored(
            blob_id=_blob_id(found),
            object_id=object_id if isinstance(object_id, str) else "",
            billed_bytes=0,
            cost=0,
            epoch=None,
            end_epoch=_number(found, "endEpoch"),
            found=True,
        )
    if result.get("markedInvalid") is not None:
        raise _not_stored(Outcome.MARKED_INVALID, "the network knows this blob as invalid")
    if result.get("error") is not None:
        error = _child(result, "error")
        phase, message = error.get("failurePhase"), error.get("errorMsg")
        raise _not_stored(_outcome(str(phase or ""), str(message or "")), f"{phase}: {message}")
    raise ValueError("it holds no result of a store")


def _not_stored(outcome: Outcome, detail: str) -> Unsuccessful:
    return Unsuccessful(Symptom(status=200, json=True, reason=outcome, detail=one_line(detail)))


def _created(created: _Object) -> Stored:
    blob = _child(created, "blobObject")
    return Stored(
        blob_id=_blob_id(blob),
        object_id=_text(blob, "id"),
        billed_bytes=_billed(created, _number(blob, "size")),
        cost=_number(created, "cost"),
        epoch=_number(blob, "registeredEpoch"),
        end_epoch=_number(_child(blob, "storage"), "endEpoch"),
    )


def _billed(created: _Object, size: int) -> int:
    """Return the encoded size that was paid for; what was reused is free unless it cost."""
    if created.get("resourceOperation") is None:
        return encoded_bytes(size)
    operation = _child(created, "resourceOperation")
    for name in operation:
        if name == "registerFromScratch" or _number(created, "cost"):
            return _number(_child(operation, name), "encodedLength")
    return 0


def _blob_id(holder: _Object) -> str:
    blob_id = _text(holder, "blobId")
    if digest_of(blob_id) is None:
        raise ValueError("blobId is no blob ID")
    return blob_id


def _outcome(phase: str, message: str) -> Outcome:
    """Tell from the names of the steps (and, failing that, the message) what went wrong."""
    for text in (phase.lower(), message.lower()):
        if "block" in text:
            return Outcome.BLOCKED
        if "encod" in text or "too large" in text or "too big" in text:
            return Outcome.NOT_ENCODED
        if "certif" in text:
            return Outcome.NOT_CERTIFIED
        if "regist" in text:
            return Outcome.NOT_REGISTERED
    return Outcome.UNKNOWN


def _json(body: bytes) -> object:
    try:
        value: object = json.loads(body)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return value


def _typed(kind: type[_T], value: object, name: str) -> _T:
    """Return a value that has to be of a type."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} is {type(value).__name__}, not {kind.__name__}")
    return value


def _child(holder: _Object, name: str) -> _Object:
    return _typed(dict, holder.get(name), name)


def _text(holder: _Object, name: str) -> str:
    return _typed(str, holder.get(name), name)


def _number(holder: _Object, name: str) -> int:
    number = _typed(int, holder.get(name), name)
    if isinstance(number, bool) or number < 0:
        raise ValueError(f"{name} is no number from 0")
    return number
