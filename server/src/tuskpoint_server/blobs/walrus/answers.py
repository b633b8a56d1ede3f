"""What publishers and aggregators answer, and nothing else.

Publishers: one JSON object with exactly one of `newlyCreated`, `alreadyCertified`,
`markedInvalid` and `error`, all with status 200 (types of the Walrus SDK, camelCase on
the wire). Whatever is needed and missing makes the answer malformed.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from .pricing import encoded_bytes
from .symptoms import Form, Outcome, Symptom, told

_ID_BYTES = 32
_HTML_STARTS = (b"<!doctype", b"<html", b"<head", b"<?xml")


class NotStored(Exception):
    """A publisher that answered 200 and did not store. `symptom` says what it told."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        self.symptom = Symptom(status=200, form=Form.JSON, reason=outcome, detail=told(detail))
        super().__init__(outcome)


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


@dataclass(frozen=True, slots=True)
class PatchName:
    """A patch as the list of a quilt names it."""

    identifier: str
    tags: dict[str, str]


def is_blob_id(text: str) -> bool:
    """Tell whether a text is a blob ID: 32 bytes in base64url without padding."""
    try:
        raw = base64.b64decode(text + "=", altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return False
    return len(raw) == _ID_BYTES and base64.urlsafe_b64encode(raw).rstrip(b"=").decode() == text


def parse_blob_result(body: bytes) -> Stored:
    """Return what PUT /v1/blobs answered.

    Raises:
        NotStored: It was not stored.
        ValueError: It is no such answer.
    """
    return _stored(_Object.parse(body))


def parse_quilt_result(body: bytes, identifiers: Collection[str]) -> Stored:
    """Return what PUT /v1/quilts answered.

    Args:
        body: The answer.
        identifiers: What the quilt has to hold.

    Raises:
        NotStored: It was not stored.
        ValueError: It is no such answer, or a patch is missing in it.
    """
    answer = _Object.parse(body)
    stored = _stored(answer.child("blobStoreResult"))
    named = {patch.text("identifier") for patch in answer.children("storedQuiltBlobs")}
    missing = len(set(identifiers) - named)
    if missing:
        raise ValueError(f"storedQuiltBlobs lacks {missing} of {len(identifiers)} patches")
    return stored


def parse_patches(body: bytes) -> list[PatchName]:
    """Return what GET /v1/quilts/{id}/patches answered.

    Raises:
        ValueError: It is no such answer.
    """
    patches = []
    for item in _children(_json(body), "the list of patches"):
        tags = item.get("tags")
        if tags is None:
            tags = {}
        if not isinstance(tags, dict) or not all(isinstance(tag, str) for tag in tags.values()):
            raise ValueError("tags must be an object of strings")
        patches.append(PatchName(item.text("identifier"), tags))
    return patches


def read_error(status: int, content_type: str, body: bytes) -> Symptom:
    """Return what an answer with another status than 200 says."""
    try:
        error = _Object.parse(body).child("error")
    except ValueError:
        start = body[:64].lstrip().lower()
        if "html" in content_type.lower() or start.startswith(_HTML_STARTS):
            return Symptom(status=status, form=Form.HTML)
        detail = told(body[:4096].decode("utf-8", "replace"))
        return Symptom(status=status, form=Form.TEXT, detail=detail)
    reason, message = "", error.get("message")
    details = error.get("details")
    if isinstance(details, list):
        for detail in details:
            if isinstance(detail, dict) and isinstance(detail.get("reason"), str):
                reason = told(detail["reason"])
                break
    return Symptom(
        status=status,
        form=Form.JSON,
        reason=reason,
        detail=told(message) if isinstance(message, str) else "",
    )


def _stored(result: _Object) -> Stored:
    if result.has("newlyCreated"):
        return _created(result.child("newlyCreated"))
    if result.has("alreadyCertified"):
        found = result.child("alreadyCertified")
        object_id = found.get("object")
        return Stored(
            blob_id=_blob_id(found),
            object_id=object_id if isinstance(object_id, str) else "",
            billed_bytes=0,
            cost=0,
            epoch=None,
            end_epoch=found.number("endEpoch"),
            found=True,
        )
    if result.has("markedInvalid"):
        raise NotStored(Outcome.MARKED_INVALID, "the network knows this blob as invalid")
    if result.has("error"):
        error = result.child("error")
        phase, message = error.get("failurePhase"), error.get("errorMsg")
        raise NotStored(_outcome(str(phase or ""), str(message or "")), f"{phase}: {message}")
    raise ValueError("it holds no result of a store")


def _created(created: _Object) -> Stored:
    blob = created.child("blobObject")
    return Stored(
        blob_id=_blob_id(blob),
        object_id=blob.text("id"),
        billed_bytes=_billed(created, blob.number("size")),
        cost=created.number("cost"),
        epoch=blob.number("registeredEpoch"),
        end_epoch=blob.child("storage").number("endEpoch"),
    )


def _billed(created: _Object, size: int) -> int:
    """Return the encoded size that was paid for; what was reused is free unless it cost."""
    if not created.has("resourceOperation"):
        return encoded_bytes(size)
    operation = created.child("resourceOperation")
    for name in operation.names():
        if name == "registerFromScratch" or created.number("cost"):
            return operation.child(name).number("encodedLength")
    return 0


def _blob_id(holder: _Object) -> str:
    blob_id = holder.text("blobId")
    if not is_blob_id(blob_id):
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


class _Object:
    """A JSON object whose members are asked for with their type."""

    def __init__(self, members: dict[str, Any]) -> None:
        self._members = members

    @classmethod
    def parse(cls, body: bytes) -> _Object:
        return cls.of(_json(body), "the answer")

    @classmethod
    def of(cls, value: object, name: str) -> _Object:
        if not isinstance(value, dict):
            raise ValueError(f"{name} is no object")
        return cls(value)

    def has(self, name: str) -> bool:
        return self._members.get(name) is not None

    def names(self) -> list[str]:
        return list(self._members)

    def get(self, name: str) -> Any:
        return self._members.get(name)

    def child(self, name: str) -> _Object:
        return _Object.of(self._members.get(name), name)

    def children(self, name: str) -> list[_Object]:
        return _children(self._members.get(name), name)

    def text(self, name: str) -> str:
        value = self._members.get(name)
        if not isinstance(value, str):
            raise ValueError(f"{name} is no text")
        return value

    def number(self, name: str) -> int:
        value = self._members.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{name} is no number from 0")
        return value


def _json(body: bytes) -> object:
    try:
        value: object = json.loads(body)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return value


def _children(value: object, name: str) -> list[_Object]:
    if not isinstance(value, list):
        raise ValueError(f"{name} is no list")
    return [_Object.of(item, name) for item in value]
