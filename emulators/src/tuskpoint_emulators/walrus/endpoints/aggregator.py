"""The aggregator, which reads blobs and the patches of quilts.

`crates/walrus-service/src/client/daemon/routes.rs` of MystenLabs/walrus.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping

from aiohttp import web

from ..answers import Answer, json_answer, spoiled
from ..encoding import quilt
from ..encoding.blob_id import MalformedBlobId, from_text, to_text
from ..errors import Failure, Reason, refused, text
from ..faults import Operation, Stage
from ..ledger.state import BlobForbidden, BlobNotFound, ObjectNotFound, StoredContent
from ..requests.admission import Admission
from ..requests.queries import byte_range_query, check_consistency, check_read_query, concat_query
from ..settings import EmulatorSettings
from ..world import World
from .quilt_index import PatchReader

_CACHE_CONTROL = "public, max-age=86400, stale-while-revalidate=3600"
_PATCH_IDENTIFIER = "X-Quilt-Patch-Identifier"
_STREAMING = "x-walrus-streaming"

_OBJECT_ID = re.compile(r"0x[0-9a-fA-F]{1,64}", re.ASCII)
_RANGE = re.compile(r"bytes=([0-9]+)-([0-9]+)", re.ASCII)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*", re.ASCII)
_U64 = 2**64 - 1


class Aggregator:
    """Handlers of the aggregator's routes.

    Args:
        world: Stored blobs and planned faults.
        settings: Limits, latency, headers.
    """

    def __init__(self, world: World, settings: EmulatorSettings) -> None:
        self._world = world
        self._settings = settings
        self._patches = PatchReader()
        self.admission = Admission(settings.aggregator_running, settings.aggregator_waiting)

    async def get_blob(self, request: web.Request, blob_id: str) -> Answer:
        """Return a blob, or a range of it."""

        def read() -> Answer:
            content = self._read(_blob_id(blob_id))
            return _blob_answer(request, content)

        check_read_query(request.rel_url.raw_query_string)
        _blob_id(blob_id)
        return await self._answer(Operation.GET_BLOB, "blob", read)

    async def get_blob_by_object_id(self, request: web.Request, object_id: str) -> Answer:
        """Return the blob of an object, with its attributes as headers."""

        def read() -> Answer:
            try:
                blob_object, content = self._world.ledger.read_object(_object_id(object_id))
            except (ObjectNotFound, BlobNotFound):
                raise refused(Reason.BLOB_NOT_FOUND) from None
            except BlobForbidden:
                raise refused(Reason.FORBIDDEN_BLOB) from None
            self._check_visible(content)
            answer = _blob_answer(request, content)
            if answer.code != 200:
                return answer
            return _with_tags(answer, blob_object.attributes, self._settings.allowed_headers)

        check_read_query(request.rel_url.raw_query_string)
        _object_id(object_id)
        return await self._answer(Operation.GET_BLOB, "by-object-id", read)

    async def get_byte_range(self, request: web.Request, blob_id: str) -> Answer:
        """Return a range of a blob as an answer of its own, which caches may keep."""

        def read() -> Answer:
            if length == 0:
                raise refused(Reason.INVALID_BYTE_RANGE, "length must be greater than 0")
            if start + length > _U64:
                raise refused(Reason.INVALID_BYTE_RANGE, "start + length overflows")
            content = self._read(_blob_id(blob_id))
            if start + length > len(content.data):
                raise refused(Reason.INVALID_BYTE_RANGE, "the range ends beyond the blob")
            etag = f"{blob_id}-{start}-{length}"
            return Answer(200, content.data[start : start + length], _headers(request, etag))

        start, length = byte_range_query(request.rel_url.raw_query_string)
        _blob_id(blob_id)
        return await self._answer(Operation.GET_BLOB, "byte-range", read)

    async def stream_blob(self, request: web.Request, blob_id: str) -> Answer:
        """Return a blob piece by piece."""

        def read() -> Answer:
            content = self._read(_blob_id(blob_id))
            headers = {**_headers(request, blob_id), _STREAMING: "true"}
            return Answer(200, content.data, headers, streamed=True)

        _blob_id(blob_id)
        return await self._answer(Operation.GET_BLOB, "stream", read)

    async def get_patch(self, request: web.Request, patch_id: str) -> Answer:
        """Return the patch with an ID; an ID without a patch is an internal error."""

        def read() -> Answer:
            content = self._read(parsed_id.quilt_id)
            try:
                if parsed_id.version != 1:
                    raise quilt.NotAQuilt("no such quilt version")
                patch = quilt.read_by_range(content.data, parsed_id.start, parsed_id.end)
            except quilt.NotAQuilt:
                raise refused(Reason.INTERNAL_ERROR) from None
            return self._patch_answer(request, parsed_id.quilt_id, patch)

        try:
            parsed_id = quilt.parse_patch_id(patch_id)
        except quilt.MalformedPatchId as error:
            raise _bad_path(str(error)) from None
        return await self._answer(Operation.GET_PATCH, "by-quilt-patch-id", read)

    async def get_patch_by_identifier(
        self, request: web.Request, quilt_id: str, identifier: str
    ) -> Answer:
        """Return the patch with an identifier in a quilt."""

        def read() -> Answer:
            content = self._read(blob_id)
            try:
                patch = self._patches.by_identifier(content, identifier)
            except quilt.NotAQuilt:
                raise refused(Reason.INTERNAL_ERROR) from None
            except quilt.PatchNotFound:
                raise refused(Reason.QUILT_PATCH_NOT_FOUND) from None
            return self._patch_answer(request, blob_id, patch)

        blob_id = _blob_id(quilt_id)
        return await self._answer(Operation.GET_PATCH, "by-quilt-id", read)

    async def list_patches(self, _request: web.Request, quilt_id: str) -> Answer:
        """Return the identifiers, patch IDs and tags of a quilt."""

        def read() -> Answer:
            content = self._read(blob_id)
            try:
                entries = self._patches.entries(content)
            except quilt.NotAQuilt:
                raise refused(Reason.INTERNAL_ERROR) from None
            return json_answer(
                [
                    {
                        "identifier": entry.identifier,
                        "patch_id": quilt.patch_id(blob_id, entry.start, entry.end),
                        "tags": dict(entry.tags),
                    }
                    for entry in entries
                ]
            )

        blob_id = _blob_id(quilt_id)
        return await self._answer(Operation.LIST, "patches", read)

    async def concat(self, request: web.Request) -> Answer:
        """Return blobs one after another; an unreadable blob cuts the answer."""
        ids = concat_query(request.rel_url.raw_query_string)
        return await self._answer(Operation.GET_BLOB, "concat", lambda: self._joined(request, ids))

    async def concat_posted(self, request: web.Request) -> Answer:
        """Return the blobs whose IDs are in a JSON body, one after another."""
        ids = _posted_ids(request.content_type, await request.content.read())
        return await self._answer(Operation.GET_BLOB, "concat", lambda: self._joined(request, ids))

    async def _answer(self, operation: Operation, route: str, read: Callable[[], Answer]) -> Answer:
        """Read a blob within the limits of admission, with the next fault."""
        async with self.admission:
            fault = self._world.faults.take(operation)
            if self._settings.read_latency_s:
                await self._world.faults.pause(self._settings.read_latency_s)
            await self._world.strike(operation, fault, Stage.BEFORE)
            answer = read()
            self._world.ledger.statistics.count_read(route, len(answer.body))
            return spoiled(answer, fault)

    def _read(self, blob_id: bytes) -> StoredContent:
        """Return a blob.

        Raises:
            Failure: HTTP 404, 451 or 403.
        """
        try:
            content = self._world.ledger.read(blob_id)
        except BlobNotFound:
            raise refused(Reason.BLOB_NOT_FOUND) from None
        except BlobForbidden:
            raise refused(Reason.FORBIDDEN_BLOB) from None
        self._check_visible(content)
        return content

    def _check_visible(self, content: StoredContent) -> None:
        if self._world.is_hidden(content.blob_id):
            raise refused(Reason.BLOB_NOT_FOUND)
        highest = self._settings.max_blob_bytes
        if highest is not None and len(content.data) > highest:
            raise refused(Reason.BLOB_TOO_LARGE, str(highest))

    def _patch_answer(self, request: web.Request, quilt_id: bytes, patch: quilt.Patch) -> Answer:
        allowed = None if self._settings.all_patch_tags else self._settings.allowed_headers
        answer = Answer(200, patch.content, _headers(request, to_text(quilt_id)))
        answer = _with_tags(answer, patch.tags, allowed)
        if not _HEADER_VALUE.fullmatch(patch.identifier):
            return answer
        headers = {**answer.headers, _PATCH_IDENTIFIER: patch.identifier}
        return Answer(answer.code, answer.body, headers)

    def _joined(self, request: web.Request, ids: list[str]) -> Answer:
        if not ids:
            raise text(400, "at least one blob ID or object ID must be provided")
        blob_ids = [self._resolved(raw_id) for raw_id in ids]
        digest = hashlib.sha256(",".join(ids).encode()).digest()
        etag = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        headers = _headers(request, etag)
        body = bytearray()
        for blob_id in blob_ids:
            try:
                body += self._read(blob_id).data
            except Failure:
                return Answer(200, bytes(body), headers, cut_at=len(body), streamed=True)
        return Answer(200, bytes(body), headers, streamed=True)

    def _resolved(self, raw: str) -> bytes:
        try:
            return from_text(raw)
        except MalformedBlobId:
            pass
        if not _OBJECT_ID.fullmatch(raw):
            raise refused(Reason.INVALID_ID_FORMAT, raw)
        try:
            return self._world.ledger.object_by_id(_object_id(raw)).blob_id
        except ObjectNotFound:
            raise refused(Reason.OBJECT_ID_RESOLUTION_FAILED, raw) from None


def _blob_answer(request: web.Request, content: StoredContent) -> Answer:
    headers = _headers(request, to_text(content.blob_id))
    range_header = request.headers.get("Range")
    if range_header is None:
        return Answer(200, content.data, headers)
    start, end = _range(range_header, len(content.data))
    headers["Content-Range"] = f"bytes {start}-{end}/{len(content.data)}"
    return Answer(206, content.data[start : end + 1], headers)


def _range(raw: str, size: int) -> tuple[int, int]:
    """Return the first and the last byte of a single range within the blob.

    Raises:
        Failure: HTTP 416.
    """
    match = _RANGE.fullmatch(raw.strip())
    if match is None:
        raise refused(Reason.RANGE_NOT_SATISFIABLE, "only one range with both its ends is served")
    start, end = int(match[1]), int(match[2])
    if start > end or end >= size:
        raise refused(Reason.RANGE_NOT_SATISFIABLE, "the range does not lie within the blob")
    return start, end


def _headers(request: web.Request, etag: str) -> dict[str, str]:
    headers = {
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": _CACHE_CONTROL,
        "ETag": etag,
    }
    accept = request.headers.get("Accept")
    content_type = request.headers.get("Content-Type")
    if accept is not None and "*" not in accept:
        headers["Content-Type"] = accept
    elif content_type is not None and request.method == "GET":
        headers["Content-Type"] = content_type
    return headers


def _with_tags(answer: Answer, tags: Mapping[str, str], allowed: frozenset[str] | None) -> Answer:
    """Add tags as headers if their names are allowed and not yet used."""
    headers = dict(answer.headers)
    present = {name.lower() for name in headers}
    for name, value in tags.items():
        low = name.lower()
        if low in present or (allowed is not None and low not in allowed):
            continue
        if _HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value):
            headers[name] = value
            present.add(low)
    return Answer(answer.code, answer.body, headers)


def _posted_ids(content_type: str, raw: bytes) -> list[str]:
    if content_type != "application/json":
        raise text(415, "Expected request with `Content-Type: application/json`")
    try:
        body = json.loads(raw)
    except ValueError:
        raise text(400, "Failed to parse the request body as JSON") from None
    field_names = {"ids", "strict_consistency_check", "skip_consistency_check"}
    ids = body.get("ids") if isinstance(body, dict) else None
    if not isinstance(ids, list) or set(body) - field_names:
        raise _bad_shape()
    flags = [body.get(name) for name in ("strict_consistency_check", "skip_consistency_check")]
    if not all(isinstance(raw_id, str) for raw_id in ids) or not all(
        flag is None or isinstance(flag, bool) for flag in flags
    ):
        raise _bad_shape()
    check_consistency(*(flag is True for flag in flags))
    return ids


def _bad_shape() -> Failure:
    return text(422, "Failed to deserialize the JSON body into the target type")


def _blob_id(raw: str) -> bytes:
    try:
        return from_text(raw)
    except MalformedBlobId as error:
        raise _bad_path(str(error)) from None


def _object_id(raw: str) -> str:
    """Return an object ID with all its digits.

    Raises:
        Failure: HTTP 400, plain text.
    """
    if not _OBJECT_ID.fullmatch(raw):
        raise _bad_path("not an object ID")
    return "0x" + raw[2:].lower().rjust(64, "0")


def _bad_path(problem: str) -> Failure:
    return text(400, f"Invalid URL: {problem}")
