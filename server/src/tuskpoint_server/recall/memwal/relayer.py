"""MemWal's SDK, guarded: every call ends in time, and every failure is one of four kinds.

The SDK sends without a deadline, raises errors of three libraries, shares the making of
its session among callers so that cancelling one cancels all, and belongs to one event loop.
So each client here makes one call at a time, and nothing else in the server calls the SDK.

It derives idempotency keys where it is given none, and keeps the texts of those whose
sending failed for as long as it lives. It is always given one, or sends a batch, which has
none.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from ..settings import MemWalSettings
from .api import (
    MAX_BATCH,
    MAX_RECALLED,
    Job,
    JobState,
    Memorised,
    Recollection,
    RelayerError,
    Trouble,
)
from .wire import Wire

_T = TypeVar("_T")

Count = Callable[[str, str], None]
"""Told the operation and the outcome of each call: "ok", or the kind of trouble."""

LONGEST_RETRY_AFTER_S = 3600.0
"""Bound on what a relayer may ask to wait: its longest window."""

CHECK_CREDENTIALS = "check MEMWAL_PRIVATE_KEY, MEMWAL_ACCOUNT_ID and MEMWAL_SERVER_URL"

_MAX_NAMESPACE_BYTES = 255
_MAX_JOB_ID_CHARS = 255
_CLOSE_S = 5.0
_ACCOUNT = re.compile(r"0x[0-9a-fA-F]{1,64}")
_SERVER_ERRORS = 500
_KEYS_NOT_CHECKED = "AUTH_UPSTREAM_UNAVAILABLE"


def count_nothing(operation: str, outcome: str) -> None:
    """Count no calls."""


class UnusableError(Exception):
    """MemWal cannot be used as it is set up; the message says why, without secrets."""


def open_relayer(settings: MemWalSettings, count: Count = count_nothing) -> Relayer:
    """Return a client of the relayer; to be used for one call at a time, in the running loop.

    Nothing is sent yet. `count` counts the calls.

    Raises:
        UnusableError: The SDK is not installed, or a setting is malformed.
    """
    try:
        import memwal
    except ImportError:
        raise UnusableError(
            "MemWal's SDK is not installed: pip install 'tuskpoint-server[memwal]'"
        ) from None
    _check(settings)
    try:
        client = memwal.MemWal.create(
            key=settings.private_key,
            account_id=settings.account_id,
            server_url=settings.server_url.rstrip("/"),
            namespace=settings.namespace,
        )
    except (ValueError, TypeError):  # their text may repeat the key
        raise UnusableError(
            "MEMWAL_PRIVATE_KEY is not a key: give 64 hex digits, or what begins with suiprivkey1"
        ) from None
    try:
        wire = Wire()
    except (ImportError, ValueError, OSError) as error:
        raise UnusableError(
            f"the environment's proxies or certificates are unusable: {told(str(error))}"
        ) from None
    # The SDK takes no client; it uses the one that it finds here, and would make its own.
    client._client = wire
    return Relayer(client, wire, settings, count)


def _check(settings: MemWalSettings) -> None:
    if not _ACCOUNT.fullmatch(settings.account_id):
        raise UnusableError("MEMWAL_ACCOUNT_ID is not an object ID: give 0x and 64 hex digits")
    if not _is_server(settings.server_url):
        raise UnusableError("MEMWAL_SERVER_URL is not a URL such as https://relayer.example")
    if not 0 < len(settings.namespace.encode()) <= _MAX_NAMESPACE_BYTES:
        raise UnusableError("MEMWAL_NAMESPACE has to have 1 to 255 bytes")


def _is_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        httpx.URL(url)
        ported = parts.port is None or parts.port > 0
    except (ValueError, httpx.InvalidURL):
        return False
    extra = parts.username or parts.password or parts.query or parts.fragment
    return parts.scheme in ("http", "https") and bool(parts.hostname) and ported and not extra


class Relayer:
    """A relayer through the SDK, for one call at a time.

    Every call ends within its deadline. `RelayerError` can come from every call. The first
    one, and one every few minutes, takes longer than others: the SDK compares versions and
    makes a session first.

    Args:
        client: The SDK's client.
        wire: What it sends through.
        settings: Deadlines.
        count: Counts the calls.
    """

    def __init__(
        self, client: Any, wire: Wire, settings: MemWalSettings, count: Count = count_nothing
    ) -> None:
        self._count = count
        self._client = client
        self._wire = wire
        self._send_s = settings.send_timeout_s
        self._recall_s = settings.recall_timeout_s

    async def remember(self, namespace: str, text: str, key: str) -> str:
        """Send a text under an idempotency key; return its job."""

        async def call() -> str:
            accepted = await self._client.remember(text, namespace, key)
            return _job_id(accepted.job_id)

        return await self._counted("remember", self._send_s, call)

    async def remember_batch(self, namespace: str, texts: Sequence[str]) -> list[str]:
        """Send up to `MAX_BATCH` texts; return their jobs, in order."""
        import memwal

        if not 0 < len(texts) <= MAX_BATCH:
            raise ValueError(f"a batch has 1 to {MAX_BATCH} texts, not {len(texts)}")
        items = [memwal.RememberBulkItem(text=text, namespace=namespace) for text in texts]

        async def call() -> list[str]:
            accepted = await self._client.remember_bulk_async(items)
            return [_job_id(job_id) for job_id in accepted.job_ids]

        return await self._counted("remember_batch", self._send_s, call)

    async def jobs(self, job_ids: Sequence[str]) -> list[Job]:
        """Return how up to `MAX_BATCH` jobs stand, in order.

        One that the answer leaves out is running, for all that is known.
        """
        if not 0 < len(job_ids) <= MAX_BATCH:
            raise ValueError(f"1 to {MAX_BATCH} jobs are asked for at once, not {len(job_ids)}")

        async def call() -> list[Job]:
            answer = await self._client.get_remember_bulk_status(list(job_ids))
            found = {item.job_id: _job(item) for item in answer.results}
            return [found.get(job_id) or Job(job_id, JobState.RUNNING) for job_id in job_ids]

        return await self._counted("jobs", self._send_s, call)

    async def recall(self, namespace: str, query: str, limit: int) -> Recollection:
        """Return up to `limit` memories, at most `MAX_RECALLED`, nearest to a query."""
        import memwal

        most = min(limit, MAX_RECALLED)
        params = memwal.RecallParams(query=query, limit=most, namespace=namespace)

        async def call() -> Recollection:
            answer = await self._client.recall(params)
            found = [memory for memory in map(_memory, answer.results) if memory is not None]
            dropped = max(0, answer.dropped_count) + len(answer.results) - len(found)
            found.sort(key=lambda memory: memory.distance)
            return Recollection(tuple(found[:most]), dropped)

        return await self._counted("recall", self._recall_s, call)

    async def close(self) -> None:
        """Close its connections."""
        await self._guarded(_CLOSE_S, self._client.close)

    async def _counted(
        self, operation: str, deadline_s: float, call: Callable[[], Awaitable[_T]]
    ) -> _T:
        try:
            answer = await self._guarded(deadline_s, call)
        except RelayerError as error:
            self._count(operation, error.trouble.value)
            raise
        self._count(operation, "ok")
        return answer

    async def _guarded(self, deadline_s: float, call: Callable[[], Awaitable[_T]]) -> _T:
        """Make a call that ends in time with an answer, a `RelayerError`, or our own end."""
        try:
            return await self._attempt(deadline_s, call)
        except asyncio.CancelledError:
            if _being_cancelled():
                raise
        # Somebody else's end reached us through a task of the SDK's.
        if not self._wire.asked:
            try:
                return await self._attempt(deadline_s, call)
            except asyncio.CancelledError:
                if _being_cancelled():
                    raise
        raise RelayerError(
            Trouble.UNAVAILABLE, "the SDK abandoned the call", unsure=self._wire.asked
        )

    async def _attempt(self, deadline_s: float, call: Callable[[], Awaitable[_T]]) -> _T:
        self._wire.asked = False
        try:
            async with asyncio.timeout(deadline_s):
                return await call()
        except TimeoutError:
            raise RelayerError(
                Trouble.UNAVAILABLE,
                f"no answer within {deadline_s:g} seconds",
                unsure=self._wire.asked,
            ) from None
        # The chain ends here: what the SDK raises may repeat what the relayer says.
        except Exception as error:  # noqa: BLE001 - errors of three libraries become one
            raise failure(error, asked=self._wire.asked) from None


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


# --- what is answered ------------------------------------------------------------------


def _job_id(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_JOB_ID_CHARS:
        raise TypeError("not the ID of a job")
    return value


_STATES = {
    "done": JobState.DONE,
    "failed": JobState.FAILED,
    "not_found": JobState.UNKNOWN,
}


def _job(item: Any) -> Job:
    """Return how a job stands; whatever else a relayer may call it, it is under way."""
    state = _STATES.get(item.status, JobState.RUNNING)
    blob_id = item.blob_id if isinstance(item.blob_id, str) else ""
    error = told(item.error) if isinstance(item.error, str) else ""
    return Job(_job_id(item.job_id), state, blob_id, error)


def _memory(result: Any) -> Memorised | None:
    """Return a memory; `None` if it has no text, or is at no distance that there is."""
    distance = _number(result.distance)
    if not isinstance(result.text, str) or distance is None:
        return None
    return Memorised(result.text, distance)


# --- what goes wrong -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What a status means, for the server and for people."""

    trouble: Trouble
    says: str


# Statuses of the relayer: services/server/src/{auth,rate_limit,routes/remember}.rs.
_MEANINGS: Mapping[int, _Meaning] = {
    400: _Meaning(Trouble.REFUSED, "the relayer finds the request malformed"),
    401: _Meaning(
        Trouble.DENIED, f"the relayer does not accept the credentials: {CHECK_CREDENTIALS}"
    ),
    # Recalls do not mind, so it is not the limit that they share with deliveries.
    402: _Meaning(Trouble.UNAVAILABLE, "the storage of the account is used up"),
    403: _Meaning(Trouble.DENIED, f"the relayer forbids it: {CHECK_CREDENTIALS}"),
    409: _Meaning(Trouble.REFUSED, "the key of the request was used for another text"),
    413: _Meaning(Trouble.REFUSED, "the relayer finds the request too long"),
    422: _Meaning(Trouble.REFUSED, "the relayer finds the request malformed"),
    429: _Meaning(Trouble.LIMITED, "the rate limit of the account or key is exhausted"),
}
_BROKEN = _Meaning(Trouble.UNAVAILABLE, "something is broken at the relayer")
_ELSEWHERE = _Meaning(Trouble.UNAVAILABLE, "that is not how a relayer answers")

_UNREACHED = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


def failure(error: Exception, *, asked: bool) -> RelayerError:
    """Return what an error of the SDK, or of what it uses, means.

    Args:
        error: The error.
        asked: A signed request was begun before it; so it may have been carried out,
            unless the error says that it was not.
    """
    import memwal

    if isinstance(error, memwal.MemWalClockDriftError):
        return RelayerError(
            Trouble.DENIED, "the relayer finds the clock of this machine wrong: set it (NTP)"
        )
    if isinstance(error, memwal.MemWalError):
        status = getattr(error, "status", None)
        if isinstance(status, int):
            return _refused(error, status)
        # It is about versions or about what the SDK does before it asks.
        return RelayerError(Trouble.UNAVAILABLE, told(str(error)))
    if isinstance(error, httpx.TransportError):
        return _broken_off(error, asked)
    return RelayerError(
        Trouble.UNAVAILABLE,
        f"the answer is not what a relayer says ({type(error).__name__})",
        unsure=asked,
    )


def _refused(error: Exception, status: int) -> RelayerError:
    """Return what an answer with another status than those of success means."""
    body = str(getattr(error, "body", ""))
    broken = status >= _SERVER_ERRORS
    meaning = _MEANINGS.get(status, _BROKEN if broken else _ELSEWHERE)
    header = getattr(error, "retry_after", None)
    said = _said(body)
    unchecked = getattr(error, "auth_error", None) == _KEYS_NOT_CHECKED
    return RelayerError(
        meaning.trouble,
        f"{meaning.says} (HTTP {status}{': ' if said else ''}{said})",
        unsure=broken and not unchecked,
        retry_after_s=retry_after_s(header, body, time.time()),
    )


def _broken_off(error: httpx.TransportError, asked: bool) -> RelayerError:
    try:
        host = error.request.url.host
    except RuntimeError:  # not all of them know
        host = "the relayer"
    if isinstance(error, _UNREACHED):
        return RelayerError(Trouble.UNAVAILABLE, f"no connection to {host}: {told(str(error))}")
    return RelayerError(
        Trouble.UNAVAILABLE, f"the connection to {host} broke: {told(str(error))}", unsure=asked
    )


def _fields(body: str) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _said(body: str) -> str:
    said = _fields(body).get("error")
    return told(said) if isinstance(said, str) else ""


def retry_after_s(header: str | None, body: str, now: float) -> float | None:
    """Return the seconds after which a relayer says it is worth trying again, bounded.

    Args:
        header: Its `Retry-After`: seconds or a date (RFC 9110, section 10.2.3).
        body: Its answer; where the header says nothing, `retry_after_seconds` counts.
        now: Seconds since the Unix epoch.
    """
    for value in (header, _fields(body).get("retry_after_seconds")):
        seconds = _seconds(value, now)
        if seconds is not None:
            return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_S)
    return None


def _seconds(value: object, now: float) -> float | None:
    seconds = _number(value)
    if seconds is not None or not isinstance(value, str):
        return seconds
    try:
        when = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


_TOLD_CHARS = 160
_SECRET = re.compile(r"suiprivkey1\w*|[A-Za-z0-9+/=_-]{60,}")
_CREDENTIALS = re.compile(r"//[^/\s@]*@")


def told(text: str) -> str:
    """Return what a stranger says as one short printable line; what may be a secret is not told.

    Keys, signatures and sessions are all long runs of letters and digits.
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text[:2000]).split())
    line = _CREDENTIALS.sub("//", _SECRET.sub("(hidden)", line))
    return line if len(line) <= _TOLD_CHARS else line[: _TOLD_CHARS - 3] + "..."
