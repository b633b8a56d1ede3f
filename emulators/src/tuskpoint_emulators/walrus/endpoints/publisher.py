"""The publisher, which stores blobs and quilts.

`crates/walrus-service/src/client/daemon/routes.rs` of MystenLabs/walrus.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from ..answers import Answer, json_answer, spoiled
from ..encoding.blob_id import to_text
from ..encoding.geometry import BlobTooLarge
from ..encoding.quilt import Quilt, QuiltFile, QuiltRefusedError, encode, patch_id
from ..errors import TEXT, Failure, Reason, refused, text
from ..faults import ENDINGS, Fault, FaultKind, Operation, Stage
from ..ledger.results import MarkedInvalid, StoreError, StoreResult
from ..ledger.state import StoreFailedError, StoreOptions
from ..requests.admission import Admission
from ..requests.auth import Gate
from ..requests.multipart import MalformedForm, boundary_of, parts
from ..requests.queries import StoreQuery, store_query
from ..settings import EmulatorSettings
from ..world import World

_METADATA = "_metadata"
_LONG_FORM_BYTES = 1024 * 1024


class Publisher:
    """Handlers of the publisher's routes.

    Args:
        world: Stored blobs and planned faults.
        settings: Limits, latency, tokens.
    """

    def __init__(self, world: World, settings: EmulatorSettings) -> None:
        self._world = world
        self._settings = settings
        self.admission = Admission(settings.publisher_running, settings.publisher_waiting)
        self.gate = Gate(settings.auth)

    async def put_blob(self, request: web.Request) -> Answer:
        """Store the body as a blob."""
        query = self._admit(request)
        async with self.admission:
            fault = self._world.faults.take(Operation.PUT_BLOB)
            body = await _body(request, self._settings.max_body_bytes)
            if body is None:
                raise text(413, "Failed to buffer the request body: length limit exceeded")
            await self._begin(Operation.PUT_BLOB, fault)
            self.gate.check_size(_authorization(request), len(body))
            _check_persistence(query)
            result, _ = await self._store(Operation.PUT_BLOB, body, query.options, fault)
            if isinstance(result, MarkedInvalid):
                raise refused(Reason.INTERNAL_ERROR)
            return spoiled(json_answer(result.to_json()), fault)

    async def put_quilt(self, request: web.Request) -> Answer:
        """Store the files of a form as a quilt."""
        query = self._admit(request)
        async with self.admission:
            fault = self._world.faults.take(Operation.PUT_QUILT)
            body = await _body(request, self._settings.max_quilt_body_bytes)
            if body is None:
                raise _malformed("failed to parse multipart form: the body is too large")
            await self._begin(Operation.PUT_QUILT, fault)
            quilt = await _quilt(request.headers.get("Content-Type", ""), body, query)
            self.gate.check_size(_authorization(request), len(quilt.data))
            result, blob_id = await self._store(
                Operation.PUT_QUILT, quilt.data, query.options, fault
            )
            answer = json_answer(
                {
                    "blobStoreResult": result.to_json(),
                    "storedQuiltBlobs": _stored_patches(quilt, blob_id, result),
                }
            )
            return spoiled(answer, fault)

    def _admit(self, request: web.Request) -> StoreQuery:
        query = store_query(request.rel_url.raw_query_string)
        self.gate.admit(_authorization(request), query.options, request.content_length)
        return query

    async def _begin(self, operation: Operation, fault: Fault | None) -> None:
        if self._settings.store_latency_s:
            await self._world.faults.pause(self._settings.store_latency_s)
        await self._world.strike(operation, fault, Stage.BEFORE)

    async def _store(
        self, operation: Operation, data: bytes, options: StoreOptions, fault: Fault | None
    ) -> tuple[StoreResult, bytes]:
        """Store a content, with the next fault.

        Raises:
            Failure: The chain, the wallet or a fault refuses.
            ConnectionDroppedError: A fault cuts the connection.
        """
        world = self._world
        try:
            blob_id = await world.id_of(data)
        except BlobTooLarge as error:
            return StoreError(None, "encode", str(error)), b""
        stopped = _error_result(fault, blob_id)
        if stopped is not None and fault is not None and fault.stage is Stage.BEFORE:
            return stopped, blob_id
        is_quilt = operation is Operation.PUT_QUILT
        try:
            if fault is not None and fault.stage is Stage.REGISTERED:
                if fault.kind in ENDINGS:
                    world.register(blob_id, data, options, is_quilt=is_quilt)
                await world.strike(operation, fault, Stage.REGISTERED)
                if stopped is not None:
                    return stopped, blob_id
            result = world.store(
                blob_id, data, options, is_quilt=is_quilt, visible_after_s=_hidden_s(fault)
            )
        except StoreFailedError:
            raise refused(Reason.INTERNAL_ERROR) from None
        if fault is not None and fault.kind is FaultKind.HIDE:
            world.hide(blob_id, fault.hidden_reads)
        await world.strike(operation, fault, Stage.CERTIFIED)
        return (result if stopped is None else stopped), blob_id


def status_answer() -> Answer:
    """Return the answer of `/status`."""
    return Answer(200, b"OK", {"Content-Type": TEXT})


def api_answer() -> Answer:
    """Return the page of `/v1/api`, which lists the routes."""
    page = (
        "<!doctype html>\n<html><head><title>Walrus emulator</title></head><body>\n"
        "<p>PUT /v1/blobs, PUT /v1/quilts, GET /v1/blobs/{blob_id}, "
        "GET /v1/blobs/by-quilt-id/{quilt_id}/{identifier}, "
        "GET /v1/blobs/by-quilt-patch-id/{patch_id}, GET /v1/quilts/{quilt_id}/patches</p>\n"
        "</body></html>\n"
    )
    return Answer(200, page.encode(), {"Content-Type": "text/html; charset=utf-8"})


async def _body(request: web.Request, limit: int) -> bytes | None:
    """Return the body; `None` if the body is above the limit."""
    announced = request.content_length
    if announced is not None and announced > limit:
        return None
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.content.iter_any():
        size += len(chunk)
        if size > limit:
            return None
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _quilt(content_type: str, body: bytes, query: StoreQuery) -> Quilt:
    """Encode the quilt of a form.

    Raises:
        Failure: The body is not a form, has no file, or the files cannot be a quilt.
    """
    if len(body) < _LONG_FORM_BYTES:
        return _quilt_now(content_type, body, query)
    return await asyncio.to_thread(_quilt_now, content_type, body, query)


def _quilt_now(content_type: str, body: bytes, query: StoreQuery) -> Quilt:
    try:
        files = _files(content_type, body)
    except (MalformedForm, ValueError) as error:
        raise _malformed(f"failed to parse multipart form: {error}") from None
    if not files:
        raise _malformed("no files provided in multipart form")
    _check_persistence(query)
    try:
        return encode(files)
    except QuiltRefusedError as error:
        raise _malformed(f"failed to construct quilt: {error}") from None


def _files(content_type: str, body: bytes) -> list[QuiltFile]:
    """Return the files of a form with their tags.

    Raises:
        MalformedForm: The body is not a form.
        ValueError: The metadata of the form is malformed.
    """
    contents: list[tuple[str, bytes]] = []
    tags: dict[str, dict[str, str]] = {}
    for part in parts(body, boundary_of(content_type)):
        if part.name != _METADATA:
            contents.append((part.name, part.content))
            continue
        for identifier, its_tags in _metadata(part.content):
            if identifier in tags:
                raise ValueError(f"duplicate identifiers found in _metadata: {identifier}")
            tags[identifier] = its_tags
    return [QuiltFile(name, content, tags.get(name)) for name, content in contents]


def _metadata(raw: bytes) -> list[tuple[str, dict[str, str]]]:
    value = json.loads(raw)
    if not isinstance(value, list):
        raise ValueError("_metadata is not an array")
    entries: list[tuple[str, dict[str, str]]] = []
    for entry in value:
        if not isinstance(entry, dict) or not isinstance(entry.get("identifier"), str):
            raise ValueError("an entry of _metadata has no identifier")
        tags = entry.get("tags", {})
        if not isinstance(tags, dict):
            raise ValueError("the tags in _metadata are not an object")
        entries.append((entry["identifier"], {name: _tag(tag) for name, tag in tags.items()}))
    return entries


def _tag(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _stored_patches(quilt: Quilt, blob_id: bytes, result: StoreResult) -> list[dict[str, Any]]:
    if isinstance(result, StoreError | MarkedInvalid):
        return []
    return [
        {
            "identifier": entry.identifier,
            "quiltPatchId": patch_id(blob_id, entry.start, entry.end),
            "range": [entry.start, entry.end],
        }
        for entry in quilt.entries
    ]


def _error_result(fault: Fault | None, blob_id: bytes) -> StoreError | None:
    if fault is None or fault.kind is not FaultKind.ERROR_RESULT:
        return None
    return StoreError(to_text(blob_id), fault.phase, fault.message)


def _hidden_s(fault: Fault | None) -> float:
    return fault.hidden_s if fault is not None and fault.kind is FaultKind.HIDE else 0.0


def _check_persistence(query: StoreQuery) -> None:
    if query.contradicts:
        raise refused(Reason.INVALID_BLOB_PERSISTENCE)


def _authorization(request: web.Request) -> str | None:
    return request.headers.get("Authorization")


def _malformed(problem: str) -> Failure:
    return refused(Reason.MALFORMED_REQUEST, problem)
