"""Effects of a cache in front of the emulated aggregator on readers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from emulators.tests.walrus.peer import Peer, reason, running
from tuskpoint_emulators.walrus.encoding.blob_id import to_text
from tuskpoint_emulators.walrus.faults import Fault, FaultKind, Operation
from tuskpoint_emulators.walrus.requests.cdn import CdnSettings
from tuskpoint_emulators.walrus.settings import EmulatorSettings


class Time:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def cached(time: Time) -> AsyncIterator[Peer]:
    cdn = CdnSettings(not_found_s=30, found_s=100, now=time)
    async with running(EmulatorSettings(cdn=cdn)) as walrus:
        yield walrus


def future_path(walrus: Peer, data: bytes) -> str:
    """Return the path of a blob that is not stored yet."""
    return f"/v1/blobs/{to_text(walrus.emulator.world.ids.of(data))}"


async def test_probe_before_the_put_hides_the_blob() -> None:
    async with cached(Time()) as walrus:
        path = future_path(walrus, b"hello")
        assert (await walrus.get(path, range="bytes=0-0")).status_code == 404
        await walrus.blob_id(b"hello")
        for headers in ({}, {"range": "bytes=0-0"}):
            response = await walrus.get(path, **headers)
            assert reason(response, 404) == "BLOB_NOT_FOUND"
            assert response.headers["x-cache"] == "HIT"
        assert walrus.emulator.cdn is not None
        assert walrus.emulator.cdn.hits == 2


async def test_client_that_tries_again_with_growing_pauses_recovers_in_its_budget() -> None:
    time = Time()
    async with cached(time) as walrus:
        path = future_path(walrus, b"hello")
        await walrus.get(path)
        await walrus.blob_id(b"hello")
        # Upstream's own budget: six retries, from half a second on, doubling.
        outcomes = [(await walrus.get(path)).status_code]
        for retry in range(6):
            time.now_s += 0.5 * 2**retry
            outcomes.append((await walrus.get(path)).status_code)
        assert outcomes == [404] * 6 + [200]


async def test_another_legal_url_of_the_same_blob_is_another_entry() -> None:
    async with cached(Time()) as walrus:
        path = future_path(walrus, b"hello")
        await walrus.get(path)
        object_id = (await walrus.store(b"hello"))["newlyCreated"]["blobObject"]["id"]
        assert (await walrus.get(path)).status_code == 404
        for other in (
            f"{path}?skip_consistency_check=false",
            f"{path}?strict_consistency_check=true",
            f"{path}/byte-range?start=0&length=5",
            f"/v1/blobs/by-object-id/{object_id}",
        ):
            response = await walrus.get(other)
            assert (response.status_code, response.content) == (200, b"hello")
        assert (await walrus.get(f"{path}?cb=1")).status_code == 400


async def test_success_is_kept_beyond_the_end_of_the_blob() -> None:
    time = Time()
    async with cached(time) as walrus:
        path = f"/v1/blobs/{await walrus.blob_id(b'hello')}"
        assert (await walrus.get(path)).headers["x-cache"] == "MISS"
        walrus.emulator.ledger.advance()
        time.now_s += 99
        response = await walrus.get(path)
        assert (response.content, response.headers["x-cache"]) == (b"hello", "HIT")
        assert response.headers["etag"]
        time.now_s += 1
        assert (await walrus.get(path)).status_code == 404


async def test_range_is_never_served_from_a_whole_answer() -> None:
    async with cached(Time()) as walrus:
        path = f"/v1/blobs/{await walrus.blob_id(b'hello')}"
        await walrus.get(path)
        response = await walrus.get(path, range="bytes=1-2")
        assert (response.status_code, response.content) == (206, b"el")


async def test_corrupted_success_is_kept_too() -> None:
    async with cached(Time()) as walrus:
        path = f"/v1/blobs/{await walrus.blob_id(b'hello')}"
        walrus.emulator.faults.add(Operation.GET_BLOB, Fault(kind=FaultKind.CORRUPT))
        bad = (await walrus.get(path)).content
        assert bad != b"hello"
        assert (await walrus.get(path)).content == bad
        other = await walrus.get(f"{path}?skip_consistency_check=false")
        assert other.content == b"hello"


async def test_server_error_and_refused_query_are_not_kept() -> None:
    async with cached(Time()) as walrus:
        path = f"/v1/blobs/{await walrus.blob_id(b'hello')}"
        unavailable = Fault(kind=FaultKind.REFUSE, status=503)
        walrus.emulator.faults.add(Operation.GET_BLOB, unavailable)
        assert (await walrus.get(path)).status_code == 503
        response: httpx.Response = await walrus.get(path)
        assert (response.status_code, response.headers["x-cache"]) == (200, "MISS")
