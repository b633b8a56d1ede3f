"""Puts: one request for a quilt or for a blob, sent until it is stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

import httpx

from .answers import NotStored, Stored, parse_blob_result, parse_quilt_result
from .endpoints import Endpoint, Endpoints
from .exchange import Request, exchange
from .failures import Failed
from .quilt import Patch, quilt_bytes
from .retrying import Attempt, Retrying
from .settings import WalrusSettings
from .symptoms import Operation, Symptom, Trouble, told
from .telemetry import Instruments
from .token import Tokens

_MAX_ANSWER_BYTES = 4 * 1024 * 1024
_METADATA_FIELD = "_metadata"

Build = Callable[[Endpoint], httpx.Request]
Parse = Callable[[bytes], Stored]


class Publisher:
    """Stores permanent blobs: a repeated put of equal bytes is free and changes nothing.

    That is why whatever may or may not have happened is simply sent again.

    Args:
        settings: What was chosen.
        client: Sends the requests.
        endpoints: The publishers.
        retrying: The retry policy.
        tokens: Mints what authorizes a put.
        instruments: What is measured.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        settings: WalrusSettings,
        client: httpx.AsyncClient,
        endpoints: Endpoints,
        retrying: Retrying,
        tokens: Tokens,
        instruments: Instruments,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._client = client
        self._endpoints = endpoints
        self._retrying = retrying
        self._tokens = tokens
        self._instruments = instruments
        self._clock = clock
        self._places = asyncio.Semaphore(settings.puts_at_once)

    async def put_quilt(self, patches: Sequence[Patch]) -> Stored:
        """Store patches as one quilt.

        Raises:
            Failed: It is not known to be stored.
            ValueError: The patches do not fit a quilt.
        """
        blob_bytes = quilt_bytes(
            (patch.identifier, patch.tags, len(patch.data)) for patch in patches
        )
        identifiers = [patch.identifier for patch in patches]
        body, content_type = await asyncio.to_thread(_form, patches)

        def build(endpoint: Endpoint) -> httpx.Request:
            return self._client.build_request(
                "PUT",
                endpoint.url("quilts"),
                params=self._params(),
                content=body,
                headers={"Content-Type": content_type},
            )

        return await self._put(
            Operation.PUT_QUILT,
            build,
            blob_bytes,
            lambda body: parse_quilt_result(body, identifiers),
        )

    async def put_blob(self, data: bytes) -> Stored:
        """Store bytes as a blob of their own.

        Raises:
            Failed: They are not known to be stored.
        """

        def build(endpoint: Endpoint) -> httpx.Request:
            return self._client.build_request(
                "PUT", endpoint.url("blobs"), params=self._params(), content=data
            )

        return await self._put(Operation.PUT_BLOB, build, len(data), parse_blob_result)

    def _params(self) -> dict[str, str]:
        """Return the query; publishers refuse any that they do not know."""
        params = {"epochs": str(self._settings.epochs), "permanent": "true"}
        if self._settings.send_object_to:
            params["send_object_to"] = self._settings.send_object_to
        return params

    async def _put(
        self, operation: Operation, build: Build, blob_bytes: int, parse: Parse
    ) -> Stored:
        began = self._clock()

        async def attempt(attempt: Attempt) -> Stored:
            async with self._places:
                return await self._send(operation, attempt.endpoint, build, blob_bytes, parse)

        try:
            stored = await self._retrying.run(
                self._endpoints, attempt, budget_s=self._settings.put_budget_s
            )
        except Failed:
            self._instruments.not_stored(operation, self._clock() - began)
            raise
        self._instruments.stored(
            operation, self._clock() - began, stored.billed_bytes, found=stored.found
        )
        return stored

    async def _send(
        self,
        operation: Operation,
        endpoint: Endpoint,
        build: Build,
        blob_bytes: int,
        parse: Parse,
    ) -> Stored:
        wire = build(endpoint)
        sent_bytes = int(wire.headers.get("Content-Length", "0"))
        token = self._tokens.mint(max(sent_bytes, blob_bytes))
        if token:
            wire.headers["Authorization"] = f"Bearer {token}"
        elif endpoint.authorization:
            wire.headers["Authorization"] = endpoint.authorization
        timeout_s = self._settings.put_timeout_s
        request = Request(operation, endpoint, wire, timeout_s, _MAX_ANSWER_BYTES)
        body = await exchange(self._client, request)
        try:
            return parse(body)
        except NotStored as error:
            raise request.failure(error.symptom) from error
        except ValueError as error:
            symptom = Symptom(Trouble.UNREADABLE, detail=told(str(error)))
            raise request.failure(symptom) from error


_BINARY = "application/octet-stream"


def _form(patches: Sequence[Patch]) -> tuple[bytes, str]:
    """Return the multipart form of a quilt, and its content type.

    In one piece: written field by field, a form of hundreds of patches would take a
    thousand small writes of the event loop, and again at every attempt.
    """
    tagged = [
        {"identifier": patch.identifier, "tags": dict(patch.tags)}
        for patch in patches
        if patch.tags
    ]
    request = httpx.Request(
        "PUT",
        "http://form",
        data={_METADATA_FIELD: json.dumps(tagged)} if tagged else None,
        files=[(patch.identifier, (patch.identifier, patch.data, _BINARY)) for patch in patches],
    )
    return request.read(), request.headers["Content-Type"]
