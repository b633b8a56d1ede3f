"""Reads: a blob, a patch or the list of a quilt, asked for until they are right."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import httpx

from ...domain.digests import blob_digest
from ...domain.model import BlobLocation
from ..api import Progress
from .answers import PatchName, parse_patches
from .endpoints import Endpoints
from .exchange import Request, exchange
from .failures import Failed
from .recent import RecentBlobs
from .retrying import Attempt, Retrying
from .settings import WalrusSettings
from .symptoms import Operation, Symptom, Trouble, told
from .telemetry import Instruments

_T = TypeVar("_T")

_SKIP = ("skip_consistency_check", "false")
_BLOB_VARIATIONS = (
    (_SKIP,),
    (("strict_consistency_check", "true"),),
    (("strict_consistency_check", "false"),),
    (_SKIP, ("strict_consistency_check", "false")),
    (("strict_consistency_check", "false"), _SKIP),
    (("strict_consistency_check", "true"), _SKIP),
)
"""Queries under which a cache has no answer yet; aggregators refuse names they do not know."""

_THREAD_ABOVE_BYTES = 1024 * 1024


class Aggregator:
    """Reads from aggregators and the caches before them.

    Args:
        settings: What was chosen.
        client: Sends the requests.
        endpoints: The aggregators.
        retrying: The retry policy.
        recent: Which blobs were stored a moment ago: their absence may be a delay.
        instruments: What is measured.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        settings: WalrusSettings,
        client: httpx.AsyncClient,
        endpoints: Endpoints,
        retrying: Retrying,
        recent: RecentBlobs,
        instruments: Instruments,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._client = client
        self._endpoints = endpoints
        self._retrying = retrying
        self._recent = recent
        self._instruments = instruments
        self._clock = clock
        self._places = asyncio.Semaphore(settings.gets_at_once)

    async def read(self, location: BlobLocation, progress: Progress | None = None) -> bytes:
        """Return the bytes at a location, after checking their SHA-256.

        Args:
            location: The location.
            progress: Told of bytes as they arrive, anew with every attempt.

        Raises:
            Failed: They could not be read. Once wrong bytes came and right ones did
                not, that is what is raised, whatever came later.
        """
        mismatch: Failed | None = None

        async def check(request: Request, body: bytes) -> bytes:
            nonlocal mismatch
            if len(body) > _THREAD_ABOVE_BYTES:
                actual = await asyncio.to_thread(blob_digest, body)
            else:
                actual = blob_digest(body)
            if actual != location.sha256:
                mismatch = Failed(
                    request.operation, request.endpoint.base, Symptom(Trouble.MISMATCH), actual
                )
                raise mismatch
            return body

        try:
            operation, segments = _route(location)
            return await self._get(operation, segments, location.blob_id, check, progress=progress)
        except Failed as failed:
            if mismatch is None or mismatch is failed:
                raise
            raise mismatch from failed

    async def read_raw(self, blob_id: str, *, patient: bool) -> bytes:
        """Return a whole blob, unchecked.

        Args:
            blob_id: The blob, or a quilt.
            patient: Go on after each aggregator was asked once.

        Raises:
            Failed: It could not be read.
        """

        async def accept(_: Request, body: bytes) -> bytes:
            return body

        return await self._get(
            Operation.GET_BLOB, ("blobs", blob_id), blob_id, accept, patient=patient
        )

    async def list_quilt(self, blob_id: str) -> list[PatchName]:
        """Return the patches of a quilt.

        Raises:
            Failed: There is no list, perhaps because the blob is not a quilt.
        """

        async def parse(request: Request, body: bytes) -> list[PatchName]:
            try:
                return parse_patches(body)
            except ValueError as error:
                symptom = Symptom(Trouble.UNREADABLE, detail=told(str(error)))
                raise request.failure(symptom) from error

        return await self._get(Operation.LIST_QUILT, ("quilts", blob_id, "patches"), blob_id, parse)

    async def _get(
        self,
        operation: Operation,
        segments: tuple[str, ...],
        blob_id: str,
        take: Callable[[Request, bytes], Awaitable[_T]],
        *,
        patient: bool = True,
        progress: Progress | None = None,
    ) -> _T:
        began = self._clock()

        async def attempt(attempt: Attempt) -> _T:
            request = replace(
                self._request(operation, attempt, segments, blob_id), progress=progress
            )
            async with self._places:
                body = await exchange(self._client, request)
            return await take(request, body)

        succeeded = False
        try:
            result = await self._retrying.run(
                self._endpoints,
                attempt,
                budget_s=self._settings.get_budget_s,
                patient=patient,
            )
            succeeded = True
            return result
        finally:
            self._instruments.read(operation, self._clock() - began, succeeded=succeeded)

    def _request(
        self, operation: Operation, attempt: Attempt, segments: tuple[str, ...], blob_id: str
    ) -> Request:
        endpoint = attempt.endpoint
        recent = blob_id in self._recent
        headers = {}
        if endpoint.authorization:
            headers["Authorization"] = endpoint.authorization
        if attempt.stale or recent:
            headers["Cache-Control"] = "no-store"
        wire = self._client.build_request(
            "GET",
            endpoint.url(*segments),
            params=_variation(operation, attempt.stale) or None,
            headers=headers,
        )
        return Request(
            operation,
            endpoint,
            wire,
            self._settings.get_timeout_s,
            self._settings.max_body_bytes,
            recent=recent,
        )


def _route(location: BlobLocation) -> tuple[Operation, tuple[str, ...]]:
    """Return what reads a location: a patch of a quilt, or a blob of its own."""
    if location.identifier:
        return (
            Operation.GET_PATCH,
            ("blobs", "by-quilt-id", location.blob_id, location.identifier),
        )
    return Operation.GET_BLOB, ("blobs", location.blob_id)


def _variation(operation: Operation, stale: int) -> tuple[tuple[str, str], ...]:
    """Return a query that changes the key under which a cache keeps the answer."""
    if not stale:
        return ()
    if operation is Operation.GET_BLOB:
        return _BLOB_VARIATIONS[(stale - 1) % len(_BLOB_VARIATIONS)]
    return (("fresh", str(stale)),)  # quilt routes know no query and ignore every one
