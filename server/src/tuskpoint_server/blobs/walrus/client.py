"""Puts and reads over HTTP, retried until they succeed or cannot succeed."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
from opentelemetry import metrics
from opentelemetry.metrics import Histogram, MeterProvider

from ...core.credentials import is_loopback
from ...core.errors import Refusal
from ...core.model import BlobLocation, StoredBlob
from ..api import Progress, printable_line, verify_bytes
from .answers import parse_blob_result, parse_patches, parse_quilt_result, read_error
from .failures import (
    AttemptFailedError,
    Endpoint,
    Endpoints,
    Operation,
    RequestFailedError,
    Symptom,
    WalrusTrouble,
)
from .quilt import Patch, quilt_bytes
from .settings import WalrusSettings

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

_SKIP = ("skip_consistency_check", "false")
_BLOB_VARIATIONS = (
    (_SKIP,),
    (("strict_consistency_check", "true"),),
    (("strict_consistency_check", "false"),),
    (_SKIP, ("strict_consistency_check", "false")),
    (("strict_consistency_check", "false"), _SKIP),
    (("strict_consistency_check", "true"), _SKIP),
)
"""Queries for which no cache has an answer yet; aggregators refuse unknown query names."""

_THREAD_ABOVE_BYTES = 1024 * 1024
_MAX_ANSWER_BYTES = 4 * 1024 * 1024
_MAX_ERROR_BYTES = 64 * 1024
_RECENT_S = 600.0
_RECENT_BLOBS = 10_000
_CONNECT_S = 5.0
_KEPT_ALIVE_S = 15.0
_tls = cache(httpx.create_ssl_context)  # creating a TLS context takes longer than many requests
_UNREACHED = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


class RecentBlobs:
    """IDs of blobs that aggregators may not know yet, bounded in number and age."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._stored: dict[str, float] = {}  # oldest first

    def add(self, blob_id: str) -> None:
        """Note that a blob was stored just now."""
        self._stored.pop(blob_id, None)
        self._stored[blob_id] = self._clock()
        if len(self._stored) > _RECENT_BLOBS:
            del self._stored[next(iter(self._stored))]

    def __contains__(self, blob_id: str) -> bool:
        return self._clock() - self._stored.get(blob_id, -math.inf) < _RECENT_S


@dataclass(frozen=True, slots=True)
class _Peers:
    endpoints: Endpoints
    places: asyncio.Semaphore
    timeout_s: float
    budget_s: float
    max_bytes: int
    duration: Histogram


@dataclass(frozen=True, slots=True)
class _Question:
    operation: Operation
    route: Sequence[str]
    blob_id: str = ""
    patient: bool = True  # whether retries continue after each endpoint was asked once
    progress: Progress | None = (
        None  # called with the number of bytes received, from 0 at each attempt
    )
    body: bytes | None = None  # body of a put
    content_type: str = ""
    max_size: int = 0


class WalrusClient:
    """Sends requests to publishers and aggregators; arguments are as for `WalrusStore`.

    Blobs are stored as permanent: a repeated put of equal bytes is free and changes nothing. So a
    put with an unknown outcome is simply sent again.
    """

    def __init__(
        self,
        settings: WalrusSettings,
        clock: Callable[[], float],
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
        provider: MeterProvider | None,
    ) -> None:
        self._http = _open(settings)
        self._clock = clock
        self._settings = settings
        self._now = now
        self._recent = RecentBlobs(clock)
        # Publishers refuse unknown parameters.
        self._put_params = {"epochs": str(settings.epochs), "permanent": "true"}
        if settings.send_object_to:
            self._put_params["send_object_to"] = settings.send_object_to
        meter = metrics.get_meter("tuskpoint_server.blobs.walrus", meter_provider=provider)
        self._puts = meter.create_counter(
            "tuskpoint.walrus.puts", "{put}", "Puts that stored or found a blob."
        )
        self._retries = meter.create_counter(
            "tuskpoint.walrus.retries",
            "{retry}",
            "Attempts that failed and were followed by another, by reason.",
        )
        self._billed = meter.create_counter(
            "tuskpoint.walrus.billed_bytes", "By", "Encoded bytes that puts were billed for."
        )
        self._publishers = _Peers(
            Endpoints(settings.publishers, clock, sleep, random, self._note_retry),
            asyncio.Semaphore(settings.puts_at_once),
            settings.put_timeout_s,
            settings.put_budget_s,
            _MAX_ANSWER_BYTES,
            meter.create_histogram(
                "tuskpoint.walrus.put.duration", "s", "Time of a put, its retries included.",
                explicit_bucket_boundaries_advisory=[
                    0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 25, 30, 60, 120, 300
                ],
            ),
        )  # fmt: skip
        self._aggregators = _Peers(
            Endpoints(settings.aggregators, clock, sleep, random, self._note_retry),
            asyncio.Semaphore(settings.gets_at_once),
            settings.get_timeout_s,
            settings.get_budget_s,
            settings.max_body_bytes,
            meter.create_histogram(
                "tuskpoint.walrus.get.duration", "s", "Time of a read, its retries included.",
                explicit_bucket_boundaries_advisory=[
                    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 120
                ],
            ),
        )  # fmt: skip

    async def put(self, content: Sequence[Patch] | bytes) -> StoredBlob:
        """Store patches as a quilt, or bytes as a blob of their own.

        Raises:
            AttemptFailedError: No endpoint stored the patches.
        """
        parse: Callable[[bytes], StoredBlob] = parse_blob_result
        if isinstance(content, bytes):
            size = len(content)
            question = _Question(Operation.PUT_BLOB, ["blobs"], body=content, max_size=size)
        else:
            size = sum(len(patch.data) for patch in content)
            quilt = quilt_bytes(
                (patch.identifier, patch.tags, len(patch.data)) for patch in content
            )
            form, kind = await asyncio.to_thread(_form, content)
            question = _Question(
                Operation.PUT_QUILT,
                ["quilts"],
                body=form,
                content_type=kind,
                max_size=max(len(form), quilt),
            )
            parse = partial(parse_quilt_result, identifiers=[patch.identifier for patch in content])
        stored = await self._ask(question, parse)
        self._puts.add(1, {"operation": question.operation, "outcome": _outcome(stored)})
        self._billed.add(stored.billed_bytes, {"operation": question.operation})
        self._recent.add(stored.blob_id)
        return replace(stored, size_bytes=size)

    async def read(self, location: BlobLocation, progress: Progress | None = None) -> bytes:
        """Return the bytes at a location, after checking their SHA-256."""
        mismatch: Refusal | None = None

        def check(body: bytes) -> bytes:
            nonlocal mismatch
            try:
                return verify_bytes(body, location)
            except Refusal as refusal:
                mismatch = refusal
                raise RequestFailedError(Symptom(WalrusTrouble.MISMATCH)) from refusal

        operation, route = Operation.GET_BLOB, ["blobs", location.blob_id]
        if location.identifier:
            operation = Operation.GET_PATCH
            route = ["blobs", "by-quilt-id", location.blob_id, location.identifier]
        question = _Question(operation, route, location.blob_id, progress=progress)
        try:
            return await self._ask(question, check)
        except AttemptFailedError as failed:
            if mismatch is not None:
                raise mismatch from failed
            raise

    async def read_raw(self, blob_id: str, *, patient: bool) -> bytes:
        """Return a whole blob or quilt, unchecked; unless `patient`, ask each aggregator once."""
        question = _Question(Operation.GET_BLOB, ["blobs", blob_id], blob_id, patient)
        return await self._ask(question, bytes)

    async def list_quilt(self, blob_id: str) -> list[Patch]:
        """Return the patches of a quilt, without their data."""
        route = ["quilts", blob_id, "patches"]
        return await self._ask(_Question(Operation.LIST_QUILT, route, blob_id), parse_patches)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _ask(self, question: _Question, take: Callable[[bytes], _T]) -> _T:
        """Return the result of `take` for the first answer that it accepts."""
        peers = self._aggregators if question.body is None else self._publishers

        async def attempt(endpoint: Endpoint, stale: int) -> _T:
            recent = question.blob_id in self._recent
            try:
                async with peers.places:
                    request = self._request(question, endpoint, stale)
                    body = await self._exchange(request, peers, question.progress)
                try:
                    if len(body) > _THREAD_ABOVE_BYTES:
                        return await asyncio.to_thread(take, body)
                    return take(body)
                except ValueError as error:
                    symptom = Symptom(WalrusTrouble.UNREADABLE, detail=printable_line(str(error)))
                    raise RequestFailedError(symptom) from error
            except RequestFailedError as error:
                symptom = replace(error.symptom, recent=recent)
                raise AttemptFailedError(question.operation, endpoint.base, symptom) from error

        began, outcome = self._clock(), "failed"
        try:
            result = await peers.endpoints.ask(attempt, peers.budget_s, patient=question.patient)
            outcome = _outcome(result)
            return result
        finally:
            peers.duration.record(
                self._clock() - began, {"operation": question.operation, "outcome": outcome}
            )

    def _request(self, question: _Question, endpoint: Endpoint, stale: int) -> httpx.Request:
        headers = {"Authorization": endpoint.authorization} if endpoint.authorization else {}
        url = endpoint.url(*question.route)
        if question.body is not None:
            if question.content_type:
                headers["Content-Type"] = question.content_type
            if token := self._settings.token(self._now(), question.max_size):
                headers["Authorization"] = f"Bearer {token}"
            return self._http.build_request(
                "PUT", url, params=self._put_params, content=question.body, headers=headers
            )
        if stale or question.blob_id in self._recent:
            headers["Cache-Control"] = "no-store"
        # A query changes the key under which a cache stores the answer.
        params: tuple[tuple[str, str], ...] | None = None
        if stale and question.operation is Operation.GET_BLOB:
            params = _BLOB_VARIATIONS[(stale - 1) % len(_BLOB_VARIATIONS)]
        elif stale:
            params = (("fresh", str(stale)),)  # quilt routes ignore every query parameter
        return self._http.build_request("GET", url, params=params, headers=headers)

    async def _exchange(
        self, request: httpx.Request, peers: _Peers, progress: Progress | None
    ) -> bytes:
        """Send a request and return the body of its answer, bounded in time and size."""
        try:
            async with (
                asyncio.timeout(peers.timeout_s),
                aclosing(await self._http.send(request, stream=True)) as response,
            ):
                if response.status_code != httpx.codes.OK:
                    body = await _read(response, _MAX_ERROR_BYTES) or b""
                    kind = response.headers.get("content-type", "")
                    raise RequestFailedError(read_error(response.status_code, kind, body))
                answer = await _read(response, peers.max_bytes, progress)
                if answer is None:
                    raise RequestFailedError(Symptom(WalrusTrouble.TOO_LONG))
                return answer
        except _UNREACHED as error:
            raise RequestFailedError(
                Symptom(WalrusTrouble.UNREACHED, detail=printable_line(str(error)))
            ) from error
        except (TimeoutError, httpx.TimeoutException):
            raise RequestFailedError(Symptom(WalrusTrouble.TIMEOUT)) from None
        except httpx.TransportError as error:
            raise RequestFailedError(
                Symptom(WalrusTrouble.LOST, detail=printable_line(str(error)))
            ) from error

    def _note_retry(self, failed: AttemptFailedError) -> None:
        self._retries.add(1, {"operation": failed.operation, "reason": failed.rule.name})
        _log.info("another attempt follows: %s", failed.problem)


def _outcome(result: object) -> str:
    if isinstance(result, StoredBlob):
        return "found" if result.epoch is None else "created"
    return "read"


def _open(settings: WalrusSettings) -> httpx.AsyncClient:
    """Return the HTTP client that every request uses.

    Proxies and certificates from the environment apply, except that requests to this machine use no
    proxy. Redirects are not followed: a put must reach the configured host only.
    """
    hosts = [urlsplit(url).hostname or "" for url in settings.publishers + settings.aggregators]
    local = {host for host in hosts if is_loopback(host)}
    at_once = settings.puts_at_once + settings.gets_at_once
    return httpx.AsyncClient(
        # Blobs are used byte for byte, so a content encoding would only have to be undone.
        headers={"User-Agent": "tuskpoint-server", "Accept-Encoding": "identity"},
        timeout=httpx.Timeout(None, connect=_CONNECT_S),
        limits=httpx.Limits(
            max_connections=at_once,
            max_keepalive_connections=at_once,
            keepalive_expiry=_KEPT_ALIVE_S,
        ),
        follow_redirects=False,
        verify=_tls(),
        trust_env=local != set(hosts),
        mounts={f"all://[{host}]" if ":" in host else f"all://{host}": None for host in local},
    )


async def _read(
    response: httpx.Response, max_bytes: int, progress: Progress | None = None
) -> bytes | None:
    """Return a body; return `None` as soon as the body is known to exceed the bound."""
    length = response.headers.get("content-length", "")
    if length.isdecimal() and int(length) > max_bytes:
        return None
    chunks = []
    remaining_bytes = max_bytes
    async for chunk in response.aiter_raw():
        remaining_bytes -= len(chunk)
        if remaining_bytes < 0:
            return None
        chunks.append(chunk)
        if progress is not None:
            progress(max_bytes - remaining_bytes)
    return b"".join(chunks)


def _form(patches: Sequence[Patch]) -> tuple[bytes, str]:
    """Return the multipart form of a quilt, and its content type.

    The form is one piece of bytes: field by field, a form of hundreds of patches would need a
    thousand small writes in the event loop at every attempt.
    """
    tagged = [
        {"identifier": patch.identifier, "tags": dict(patch.tags)}
        for patch in patches
        if patch.tags
    ]
    kind = "application/octet-stream"
    request = httpx.Request(
        "PUT",
        "http://form",
        data={"_metadata": json.dumps(tagged)} if tagged else None,
        files=[(patch.identifier, (patch.identifier, patch.data, kind)) for patch in patches],
    )
    return request.read(), request.headers["Content-Type"]
