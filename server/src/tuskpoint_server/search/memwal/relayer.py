"""Guard around MemWal's SDK: every call ends in time; every failure is one of four kinds.

The SDK sends without a deadline, raises errors of three libraries, and shares the creation of its
session among callers, so that cancelling one caller cancels all. So each client here makes one call
at a time, and no other module calls the SDK.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from ...core.errors import foreign_text
from ..pacing import retry_after_s
from .api import (
    MAX_RECALLED,
    Job,
    JobState,
    MemWalSettings,
    Recollection,
    RelayerError,
    RelayerMemory,
    RelayerTrouble,
)

_T = TypeVar("_T")

# called with the operation and the outcome of each call: "ok", or the kind of trouble
Count = Callable[[str, str], None]
# a hundred memories of this server, escaped, need a sixth of that; other memories may be longer
MAX_ANSWER_BYTES = 4 * 1024 * 1024
_MAX_JOB_ID_CHARS = 255
_CONNECT_S = 4.0
_CLOSE_S = 5.0
_ACCOUNT = re.compile(r"0x[0-9a-fA-F]{1,64}")


class UnusableError(Exception):
    """MemWal cannot be used as configured; the message gives the reason, without secrets."""


class Wire(httpx.AsyncClient):
    """HTTP client of the SDK, with the bounds that the SDK lacks.

    Proxies and certificates from the environment apply, except that requests to this machine use no
    proxy. Redirects are not followed: a signature is valid for one place. `asked` is set when a
    signed request starts: a call that fails before that can be repeated.
    """

    def __init__(self) -> None:
        super().__init__(
            headers={"User-Agent": "tuskpoint-server", "Accept-Encoding": "identity"},
            http2=False,
            follow_redirects=False,
            verify=httpx.create_ssl_context(),
            mounts={f"all://{host}": None for host in ("*localhost", "127.0.0.1", "[::1]")},
        )
        self.asked = False

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send a request and return its answer, read to the end unless it is too long."""
        if "x-signature" in request.headers:
            self.asked = True
        # The SDK sets no timeout; the caller bounds the whole call.
        bounds = dict(request.extensions.get("timeout") or {})
        request.extensions["timeout"] = bounds | {"connect": _CONNECT_S}
        response = await super().send(request, **(options | {"stream": True}))
        content = bytearray()
        try:
            if response.headers.get("content-encoding", "") not in ("", "identity"):
                raise httpx.RemoteProtocolError("the answer has an unexpected content encoding")
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) > MAX_ANSWER_BYTES:
                    raise httpx.RemoteProtocolError("the answer is too long")
        finally:
            await response.aclose()
        return httpx.Response(
            response.status_code, headers=response.headers, content=bytes(content), request=request
        )


def open_relayer(settings: MemWalSettings, count: Count = lambda *_: None) -> Relayer:
    """Return a client of the relayer; raise `UnusableError` without the SDK or for bad settings."""
    try:
        import memwal
    except ImportError:
        raise UnusableError(
            "MemWal's SDK is not installed: pip install 'tuskpoint-server[memwal]'"
        ) from None
    if not _ACCOUNT.fullmatch(settings.account_id):
        raise UnusableError("MEMWAL_ACCOUNT_ID is not an object ID: give 0x and 64 hex digits")
    if not _is_server(settings.server_url):
        raise UnusableError("MEMWAL_SERVER_URL is not a URL such as https://relayer.example")
    try:
        client = memwal.MemWal.create(
            key=settings.private_key,
            account_id=settings.account_id,
            server_url=settings.server_url.rstrip("/"),
            namespace=settings.namespace,
        )
    except (ValueError, TypeError):  # the error's text may repeat the key
        raise UnusableError(
            "MEMWAL_PRIVATE_KEY is not a key: give 64 hex digits, or what begins with suiprivkey1"
        ) from None
    try:
        wire = Wire()
    except (ImportError, ValueError, OSError) as error:
        raise UnusableError(
            f"the environment's proxies or certificates are unusable: {printable_line(str(error))}"
        ) from None
    # The SDK accepts no client: it uses the client in this attribute, or creates its own.
    client._client = wire
    return Relayer(client, wire, settings, count)


def _is_server(url: str) -> bool:
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    has_server = parts.host and (parts.port is None or 0 < parts.port < 65536)
    extra = parts.userinfo or parts.query or parts.fragment
    return parts.scheme in ("http", "https") and bool(has_server) and not extra


@dataclass(frozen=True, eq=False, repr=False)
class Relayer:
    """Relayer, called through the SDK, for one call at a time, which ends within its deadline.

    Every call may raise `RelayerError`. The first call, and one call every few minutes, takes
    longer than others, because the SDK first compares versions and creates a session.
    """

    _client: Any
    _wire: Wire
    _settings: MemWalSettings
    _count: Count = lambda *_: None

    async def remember(self, namespace: str, text: str, key: str) -> str:
        """Send a text under an idempotency key; return the ID of its job."""

        async def call() -> str:
            accepted = await self._client.remember(text, namespace, key)
            return _job_id(accepted.job_id)

        return await self._guarded(self._settings.send_timeout_s, call, "remember")

    async def remember_batch(self, namespace: str, texts: Sequence[str]) -> list[str]:
        """Send up to `MAX_BATCH` texts; return the IDs of their jobs, in order."""
        import memwal

        items = [memwal.RememberBulkItem(text=text, namespace=namespace) for text in texts]

        async def call() -> list[str]:
            accepted = await self._client.remember_bulk_async(items)
            return [_job_id(job_id) for job_id in accepted.job_ids]

        return await self._guarded(self._settings.send_timeout_s, call, "remember_batch")

    async def jobs(self, job_ids: Sequence[str]) -> list[Job]:
        """Return the state of up to `MAX_BATCH` jobs; a job without an answer may be running."""

        async def call() -> list[Job]:
            answer = await self._client.get_remember_bulk_status(list(job_ids))
            jobs_by_id = {item.job_id: _job(item) for item in answer.results}
            return [jobs_by_id.get(job_id) or Job(job_id, JobState.RUNNING) for job_id in job_ids]

        return await self._guarded(self._settings.send_timeout_s, call, "jobs")

    async def recall(self, namespace: str, query: str, limit: int) -> Recollection:
        """Return up to `limit` memories, at most `MAX_RECALLED`, nearest to a query."""
        import memwal

        count = min(limit, MAX_RECALLED)
        params = memwal.RecallParams(query=query, limit=count, namespace=namespace)

        async def call() -> Recollection:
            answer = await self._client.recall(params)
            memories = [memory for memory in map(_memory, answer.results) if memory is not None]
            dropped = max(0, answer.dropped_count) + len(answer.results) - len(memories)
            memories.sort(key=lambda memory: memory.distance)
            return Recollection(tuple(memories[:count]), dropped)

        return await self._guarded(self._settings.recall_timeout_s, call, "recall")

    async def close(self) -> None:
        """Close the connections of the relayer."""
        with contextlib.suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(_CLOSE_S):
                await self._wire.aclose()

    async def _guarded(
        self, deadline_s: float, call: Callable[[], Awaitable[_T]], counted: str
    ) -> _T:
        problem, outcome = "the SDK abandoned the call", None
        for _ in range(2):
            self._wire.asked = False
            try:
                async with asyncio.timeout(deadline_s):
                    answer = await call()
                self._count(counted, "ok")
                return answer
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Another caller's cancellation arrived through a task of the SDK.
                if self._wire.asked:
                    break
            except TimeoutError:
                problem = f"no answer within {deadline_s:g} seconds"
                break
            except Exception as error:  # noqa: BLE001 - errors of three libraries become one
                outcome = failure(error, asked=self._wire.asked)
                break
        # No exception chain: exceptions of the SDK may repeat the relayer's text.
        outcome = outcome or RelayerError(
            RelayerTrouble.UNAVAILABLE, problem, unsure=self._wire.asked
        )
        self._count(counted, outcome.trouble.value)
        raise outcome from None


def _job_id(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_JOB_ID_CHARS:
        raise TypeError("not the ID of a job")
    return value


def _job(item: Any) -> Job:
    states = {"done": JobState.DONE, "failed": JobState.FAILED, "not_found": JobState.UNKNOWN}
    blob_id = item.blob_id if isinstance(item.blob_id, str) else ""
    error = printable_line(item.error) if isinstance(item.error, str) else ""
    return Job(_job_id(item.job_id), states.get(item.status, JobState.RUNNING), blob_id, error)


def _memory(result: Any) -> RelayerMemory | None:
    try:
        distance = float(result.distance)
    except (TypeError, ValueError, OverflowError):
        return None
    is_valid = isinstance(result.text, str) and math.isfinite(distance)
    return RelayerMemory(result.text, distance) if is_valid else None


_CHECK = "check MEMWAL_PRIVATE_KEY, MEMWAL_ACCOUNT_ID and MEMWAL_SERVER_URL"

# HTTP statuses of the relayer: services/server/src/{auth,rate_limit,routes/remember}.rs.
_MEANINGS = {
    400: (RelayerTrouble.REFUSED, "the relayer rejects the request as malformed"),
    401: (RelayerTrouble.DENIED, f"the relayer does not accept the credentials: {_CHECK}"),
    # Recalls still work, so this is not the rate limit, which recalls share with deliveries.
    402: (RelayerTrouble.UNAVAILABLE, "the storage of the account is used up"),
    403: (RelayerTrouble.DENIED, f"the relayer forbids it: {_CHECK}"),
    409: (RelayerTrouble.REFUSED, "the key of the request was used for another text"),
    413: (RelayerTrouble.REFUSED, "the relayer rejects the request as too long"),
    422: (RelayerTrouble.REFUSED, "the relayer rejects the request as malformed"),
    429: (RelayerTrouble.LIMITED, "the rate limit of the account or key is exhausted"),
}
_UNREACHED = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


def failure(error: Exception, *, asked: bool) -> RelayerError:
    """Return the failure behind an error of the SDK; `asked`: a signed request was started."""
    import memwal

    if isinstance(error, memwal.MemWalClockDriftError):
        return RelayerError(
            RelayerTrouble.DENIED,
            "the relayer reports that the clock of this machine is wrong: set it (NTP)",
        )
    if isinstance(error, memwal.MemWalError):
        status = getattr(error, "status", None)
        if isinstance(status, int):
            return _refused_call(error, status)
        # The error is about versions, or about the SDK's preparations.
        return RelayerError(RelayerTrouble.UNAVAILABLE, printable_line(str(error)))
    problem = f"the answer did not come from a relayer ({type(error).__name__})"
    if isinstance(error, httpx.TransportError):
        try:
            host = error.request.url.host
        except RuntimeError:  # not every error has its request
            host = "the relayer"
        if isinstance(error, _UNREACHED):
            return RelayerError(
                RelayerTrouble.UNAVAILABLE, f"no connection to {host}: {printable_line(str(error))}"
            )
        problem = f"the connection to {host} broke: {printable_line(str(error))}"
    return RelayerError(RelayerTrouble.UNAVAILABLE, problem, unsure=asked)


def _refused_call(error: Exception, status: int) -> RelayerError:
    broken = status >= httpx.codes.INTERNAL_SERVER_ERROR
    trouble, says = _MEANINGS.get(status) or (
        RelayerTrouble.UNAVAILABLE,
        "the relayer failed" if broken else "the answer did not come from a relayer",
    )
    try:
        fields = json.loads(str(getattr(error, "body", "")))
    except (ValueError, RecursionError):
        fields = {}
    fields = fields if isinstance(fields, dict) else {}
    reason = fields.get("error")
    reason = printable_line(reason) if isinstance(reason, str) else ""
    # The relayer could not check the account's keys, so it did nothing else.
    unchecked = getattr(error, "auth_error", None) == "AUTH_UPSTREAM_UNAVAILABLE"
    after_s = retry_after_s(getattr(error, "retry_after", None))
    if after_s is None:
        after_s = retry_after_s(fields.get("retry_after_seconds"))
    return RelayerError(
        trouble,
        f"{says} (HTTP {status}{reason and ': '}{reason})",
        unsure=broken and not unchecked,
        retry_after_s=after_s,
    )


_SECRET = re.compile(r"suiprivkey1\w*|[A-Za-z0-9+/=_-]{60,}")


def printable_line(text: str) -> str:
    """Return another program's text as one short line; hide long runs of letters, as in keys."""
    return foreign_text(text, _SECRET)
