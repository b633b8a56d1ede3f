"""The Walrus emulator on a socket, and a client of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tuskpoint_emulators.walrus.server import WalrusEmulator
from tuskpoint_emulators.walrus.settings import EmulatorSettings

BOUNDARY = "a-boundary-that-occurs-nowhere"

SMALLEST_ENCODED_BYTES = 66_034_000
"""Encoded size of each blob of up to 445,556 bytes on 1000 shards."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A running emulator and a client of it."""

    emulator: WalrusEmulator
    http: httpx.AsyncClient

    async def put(self, data: bytes, **query: Any) -> httpx.Response:
        return await self.http.put("/v1/blobs", content=data, params=query)

    async def store(self, data: bytes, **query: Any) -> dict[str, Any]:
        return body_of(await self.put(data, **query))

    async def blob_id(self, data: bytes, **query: Any) -> str:
        """Store a new blob and return its ID."""
        answer = await self.store(data, **query)
        return str(answer["newlyCreated"]["blobObject"]["blobId"])

    async def put_quilt(
        self,
        files: Mapping[str, bytes] | Iterable[tuple[str, bytes]],
        metadata: Any = None,
        **query: Any,
    ) -> httpx.Response:
        pairs = list(files.items() if isinstance(files, Mapping) else files)
        if metadata is not None:
            pairs.append(("_metadata", json.dumps(metadata).encode()))
        return await self.http.put(
            "/v1/quilts",
            content=form(pairs),
            headers={"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"},
            params=query,
        )

    async def store_quilt(
        self, files: Mapping[str, bytes], metadata: Any = None, **query: Any
    ) -> dict[str, Any]:
        return body_of(await self.put_quilt(files, metadata, **query))

    async def quilt_id(self, files: Mapping[str, bytes], metadata: Any = None, **query: Any) -> str:
        """Store a new quilt and return its ID."""
        answer = await self.store_quilt(files, metadata, **query)
        return str(answer["blobStoreResult"]["newlyCreated"]["blobObject"]["blobId"])

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.http.get(path, headers=headers)


@asynccontextmanager
async def running(settings: EmulatorSettings | None = None) -> AsyncIterator[Peer]:
    """Run an emulator."""
    async with WalrusEmulator(settings) as emulator, client(emulator.url) as http:
        yield Peer(emulator, http)


def client(url: str) -> httpx.AsyncClient:
    """Return a client without proxies and certificates."""
    return httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False)  # noqa: S501


def form(parts: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a form with these names, unescaped, and contents."""
    pieces = []
    for name, content in parts:
        disposition = f'Content-Disposition: form-data; name="{name}"; filename="x"'
        pieces += [f"--{BOUNDARY}\r\n{disposition}\r\n\r\n".encode(), content, b"\r\n"]
    return b"".join(pieces) + f"--{BOUNDARY}--\r\n".encode()


def body_of(response: httpx.Response) -> dict[str, Any]:
    """Return the object in a successful answer."""
    assert response.status_code == 200, response.text
    value = response.json()
    assert isinstance(value, dict)
    return value


def reason(response: httpx.Response, code: int) -> str:
    """Return the reason of an answer that is an error in JSON, after checking its shape."""
    assert response.status_code == code, response.text
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    error = response.json()["error"]
    assert set(error) == {"status", "code", "message", "details"}
    assert error["code"] == code
    info = error["details"][0]
    assert info["@type"] == "ErrorInfo"
    assert set(info) == {"@type", "reason", "domain", "metadata"}
    assert (len(error["details"]) == 2) == (code == 500)
    return str(info["reason"])


def is_text(response: httpx.Response, code: int) -> bool:
    """Return whether an answer is an error in plain text."""
    return (
        response.status_code == code
        and response.headers["content-type"].startswith("text/plain")
        and not response.text.startswith("{")
    )


@asynccontextmanager
async def running_beside(
    peer: Peer, settings: EmulatorSettings | None = None
) -> AsyncIterator[Peer]:
    """Run another endpoint of the same network."""
    emulator = WalrusEmulator(settings, world=peer.emulator.world)
    async with emulator, client(emulator.url) as http:
        yield Peer(emulator, http)


async def until(condition: Callable[[], bool]) -> None:
    """Run other tasks until a condition holds."""
    while not condition():  # noqa: ASYNC110 - it is not always one event
        await asyncio.sleep(0.001)
