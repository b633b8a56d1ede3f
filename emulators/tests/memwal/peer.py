"""The MemWal emulator on a socket, and clients of it, with the SDK and without."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import nacl.signing
from memwal import MemWal

from tuskpoint_emulators.memwal.clock import Clock
from tuskpoint_emulators.memwal.server import MemWalEmulator
from tuskpoint_emulators.memwal.settings import RelayerSettings

NOON = 1_800_000_000.0
"""Start time of a clock that only `advance` moves."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A running emulator, a client that signs by hand, and the unmodified SDK."""

    emulator: MemWalEmulator
    http: httpx.AsyncClient
    sdk: MemWal

    @property
    def key(self) -> nacl.signing.SigningKey:
        return nacl.signing.SigningKey(bytes.fromhex(self.emulator.credentials.private_key))

    def headers(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        key: nacl.signing.SigningKey | None = None,
        timestamp: str | None = None,
        nonce: str | None = None,
        account_id: str | None = None,
    ) -> dict[str, str]:
        """Sign a request like the SDK, or with an error."""
        key = self.key if key is None else key
        timestamp = str(int(time.time())) if timestamp is None else timestamp
        nonce = str(uuid.uuid4()) if nonce is None else nonce
        account_id = self.emulator.credentials.account_id if account_id is None else account_id
        digest = hashlib.sha256(body).hexdigest()
        message = ".".join((timestamp, method, target, digest, nonce, account_id))
        return {
            "x-public-key": bytes(key.verify_key).hex(),
            "x-signature": key.sign(message.encode()).signature.hex(),
            "x-timestamp": timestamp,
            "x-nonce": nonce,
            "x-account-id": account_id,
            "content-type": "application/json",
        }

    async def post(self, path: str, body: Any, **signing: Any) -> httpx.Response:
        """Send a signed body: bytes, or a value as JSON."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = self.headers("POST", path, raw, **signing)
        return await self.http.post(path, content=raw, headers=headers)

    async def get(self, path: str, **signing: Any) -> httpx.Response:
        return await self.http.get(path, headers=self.headers("GET", path, **signing))

    async def tell(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        """Call the control API, as another process does."""
        response = await self.http.request(method, f"/emulator/{path}", json=body or None)
        assert response.status_code == 200, response.text
        value = response.json()
        assert isinstance(value, dict)
        return value

    async def plan(self, operation: str | None, fault: Mapping[str, Any], **when: Any) -> None:
        """Plan a fault, as another process does."""
        await self.tell("POST", "faults", operation=operation, fault=dict(fault), **when)

    async def accept(self, text: str, **more: Any) -> str:
        """Have a text accepted and return its job's ID."""
        response = await self.post("/api/remember", {"text": text, **more})
        assert response.status_code == 202, response.text
        return str(response.json()["job_id"])

    async def status(self, job_id: str) -> str:
        """Return the status of a job."""
        return str((await self.get(f"/api/remember/{job_id}")).json()["status"])

    async def recalled(self, query: str, **more: Any) -> list[str]:
        """Return the texts that a recall finds."""
        response = await self.post("/api/recall", {"query": query, **more})
        assert response.status_code == 200, response.text
        return [result["text"] for result in response.json()["results"]]


@asynccontextmanager
async def running(
    settings: RelayerSettings | None = None, *, still: bool = True
) -> AsyncIterator[Peer]:
    """Run an emulator, by default with a clock that stands still."""
    clock = Clock(lambda: NOON) if still else Clock()
    async with MemWalEmulator(settings, clock=clock) as emulator:
        credentials = emulator.credentials
        async with (
            httpx.AsyncClient(
                base_url=emulator.url,
                timeout=60,
                trust_env=False,
                verify=False,  # noqa: S501 - plain HTTP; reading certificates takes long
            ) as http,
            MemWal.create(credentials.private_key, credentials.account_id, emulator.url) as sdk,
        ):
            yield Peer(emulator, http, sdk)


def free(**settings: Any) -> RelayerSettings:
    """Return settings without rate limits."""
    return RelayerSettings(limited=False, **settings)


async def until(condition: Callable[[], bool]) -> None:
    """Run other tasks until a condition holds."""
    while not condition():  # noqa: ASYNC110 - it is not always one event
        await asyncio.sleep(0.001)
