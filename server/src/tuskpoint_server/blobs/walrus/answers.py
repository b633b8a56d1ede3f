"""Parser of the answers of publishers and aggregators.

Publishers answer one JSON object with exactly one of `newlyCreated`, `alreadyCertified`,
`markedInvalid` and `error`, all with status 200 (types of the Walrus SDK, camelCase on the wire).
An answer without a needed field is malformed.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TypeVar

from ...core.model import StoredBlob
from ..api import digest_of, printable_line
from .failures import RequestFailedError, Symptom
from .quilt import Patch

_T = TypeVar("_T")

_HTML_STARTS = (b"<!doctype", b"<html", b"<head", b"<?xml")
_OUTCOMES = (
    ("block", "BLOCKED"),
    ("encod", "NOT_ENCODED"),
    ("too large", "NOT_ENCODED"),
    ("too big", "NOT_ENCODED"),
    ("certif", "NOT_CERTIFIED"),
    ("regist", "NOT_REGISTERED"),
)
"""Outcomes by words in the name of the failed step or, if no name matches, in the message."""


def parse_blob_result(body: bytes) -> StoredBlob:
    """Parse the answer to PUT /v1/blobs; for an earlier blob the epoch of the put is unset."""
    return _stored_blob(_json(body))


def parse_quilt_result(body: bytes, identifiers: Collection[str]) -> StoredBlob:
    """Parse the answer to PUT /v1/quilts about a quilt that must contain these patches."""
    answer = _json(body)
    stored = _stored_blob(_get(answer, "blobStoreResult", dict))
    names = {_get(patch, "identifier", str) for patch in _get(answer, "storedQuiltBlobs", list)}
    missing = len(set(identifiers) - names)
    if missing:
        raise ValueError(f"storedQuiltBlobs lacks {missing} of {len(identifiers)} patches")
    return stored


def parse_patches(body: bytes) -> list[Patch]:
    """Parse the answer to GET /v1/quilts/{id}/patches: patches without their data."""
    items = _json(body)
    if not isinstance(items, list):
        raise ValueError(f"the list of patches is {type(items).__name__}, not list")
    patches = []
    for patch in items:
        name = _get(patch, "identifier", str)
        tags = {} if patch.get("tags") is None else _get(patch, "tags", dict)
        if not all(isinstance(tag, str) for tag in tags.values()):
            raise ValueError("tags must be an object of strings")
        patches.append(Patch(name, tags))
    return patches


def read_error(status: int, content_type: str, body: bytes) -> Symptom:
    """Parse an answer whose status is not 200."""
    try:
        error = _get(_json(body), "error", dict)
    except ValueError:
        start = body[:64].lstrip().lower()
        if "html" in content_type.lower() or start.startswith(_HTML_STARTS):
            return Symptom(status=status)
        return Symptom(status=status, detail=printable_line(body[:4096].decode("utf-8", "replace")))
    message, details = error.get("message"), error.get("details")
    reason = ""
    for detail in details if isinstance(details, list) else ():
        match detail:
            case {"reason": str(reason)}:
                break
    return Symptom(
        status=status,
        json=True,
        reason=printable_line(reason),
        detail=printable_line(message) if isinstance(message, str) else "",
    )


def _stored_blob(result: object) -> StoredBlob:
    match result:
        case {"newlyCreated": {"blobObject": blob} as created}:
            storage = _get(blob, "storage", dict)
            return StoredBlob(
                blob_id=_blob_id(blob),
                object_id=_get(blob, "id", str),
                billed_bytes=_billed_bytes(created, storage),
                cost=_get(created, "cost", int),
                epoch=_get(blob, "registeredEpoch", int),
                end_epoch=_get(storage, "endEpoch", int),
            )
        case {"alreadyCertified": {"blobId": _} as answer}:
            object_id = answer.get("object")
            object_id = object_id if isinstance(object_id, str) else ""
            return StoredBlob(_blob_id(answer), object_id, end_epoch=_get(answer, "endEpoch", int))
        case {"markedInvalid": {}}:
            outcome, detail = "MARKED_INVALID", "the network knows this blob as invalid"
        case {"error": {**error}}:
            phase, message = error.get("failurePhase"), error.get("errorMsg")
            outcome, detail = _outcome(str(phase), str(message)), f"{phase}: {message}"
        case _:
            raise ValueError("it has no result of a put")
    raise RequestFailedError(
        Symptom(status=200, json=True, reason=outcome, detail=printable_line(detail))
    )


def _billed_bytes(created: dict[str, object], storage: dict[str, object]) -> int:
    """Return the encoded size that was paid for; a reused resource without a cost counts 0."""
    if created.get("resourceOperation") is None:
        return _get(storage, "storageSize", int)
    operation = _get(created, "resourceOperation", dict)
    for name in operation:
        if name == "registerFromScratch" or _get(created, "cost", int):
            return _get(_get(operation, name, dict), "encodedLength", int)
    return 0


def _blob_id(holder: object) -> str:
    blob_id = _get(holder, "blobId", str)
    if digest_of(blob_id) is None:
        raise ValueError("blobId is not a blob ID")
    return blob_id


def _outcome(phase: str, message: str) -> str:
    texts = (phase.lower(), message.lower())
    outcomes = (outcome for text in texts for word, outcome in _OUTCOMES if word in text)
    return next(outcomes, "UNKNOWN")


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _get(holder: object, name: str, kind: type[_T]) -> _T:
    """Return a member of an object; refuse another type, and numbers below 0."""
    value = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name} is {type(value).__name__}, not {kind.__name__}")
    if isinstance(value, int) and value < 0:
        raise ValueError(f"{name} is not a number from 0")
    return value
