"""Walrus aggregators as a source, with retries and a change of endpoint."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import ipaddress
import random
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import httpx

from . import answers
from .answers import Sort, Trouble
from .formats.stored import Location
from .sources import (
    BadSource,
    BlobMissingError,
    BlobTooLongError,
    BlobUnreadableError,
    FetchedBytes,
    Member,
    Traffic,
    hash_of_id,
    is_patch_id,
)

TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 5.0
BUDGET_S = 120.0
"""Time after the first attempt for a blob after which no further attempt starts."""

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Largest blob of this service on Walrus."""

_MAX_ERROR_BYTES = 64 * 1024
_MAX_REMARKS = 100
_OK = 200
_ROUTE = re.compile(r"/v1(/blobs|/quilts)?/?$")
_PAST_CACHES = (
    ("skip_consistency_check", "false"),
    ("strict_consistency_check", "true"),
    ("strict_consistency_check", "false"),
)
"""Queries that no cache has an answer for yet; aggregators refuse unknown names."""


class _Target(NamedTuple):
    """A request: the route, whether the route accepts any query, and the expected hash."""

    segments: tuple[str, ...]
    free_query: bool
    sha256: str = ""


class _AttemptError(Exception):
    """A failed attempt, with the wrong bytes if the endpoint returned any."""

    def __init__(self, trouble: Trouble, fetched: FetchedBytes | None = None) -> None:
        super().__init__(trouble.text)
        self.trouble = trouble
        self.fetched = fetched


class AggregatorSource:
    """Aggregators of one network, tried in turn until one returns the right bytes.

    Args:
        urls: Base URLs in order of preference. A URL that fails moves to the end.
        timeout_s: Timeout of one request.
        recent: Whether the blobs were stored a moment ago. Then a 404 is retried for 31.5 s.
        client: The HTTP client; `None` opens a new client.
        sleep: Waits for a number of seconds.
        chance: Returns a random number from 0 to 1.

    Raises:
        BadSource: There is no URL, or a URL is malformed.
    """

    kind = "aggregator"
    ids_are_hashes = False

    def __init__(
        self,
        urls: Sequence[str],
        *,
        timeout_s: float = TIMEOUT_S,
        recent: bool = False,
        client: httpx.AsyncClient | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._bases = list(dict.fromkeys(_base(url) for url in urls))
        if not self._bases:
            raise BadSource("no aggregator was given; give its URL")
        self._order = list(self._bases)
        self._timeout_s = timeout_s
        self._recent = recent
        self._client = client or _open_client(self._bases)
        self._sleep = sleep
        self._chance = chance
        self.traffic = Traffic()
        self.remarks: list[str] = []

    @property
    def places(self) -> Sequence[str]:
        """URLs without credentials."""
        return [_shown(base) for base in self._bases]

    async def fetch(self, location: Location, max_bytes: int) -> FetchedBytes:
        """Return the bytes of a blob or of a patch; see `Source`."""
        return await self._ask(_target(location), min(max_bytes, MAX_BODY_BYTES))

    async def members(self, blob_id: str) -> list[Member] | None:
        """Return the patches of a quilt; see `Source`.

        For a blob that is not a quilt an aggregator reports only a failure.
        """
        target = _Target(("quilts", _blob_id(blob_id), "patches"), True)
        try:
            fetched = await self._ask(target, MAX_BODY_BYTES)
            return [Member(*pair) for pair in answers.listed(fetched.data)]
        except (BlobUnreadableError, ValueError):
            return None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _ask(self, target: _Target, max_bytes: int) -> FetchedBytes:
        """Try all endpoints, in rounds, until one returns the right bytes."""
        attempts = _Attempts(max_bytes)
        deadline = time.monotonic() + BUDGET_S
        while True:
            for base in [base for base in self._order if base not in attempts.given_up]:
                try:
                    fetched = await self._attempt(base, target, max_bytes, attempts.stale)
                except _AttemptError as failure:
                    attempts.note(base, _shown(base), failure)
                    if failure.trouble.blames and base == self._order[0]:
                        self._order.append(self._order.pop(0))
                else:
                    self._remark(target, attempts.wrong)
                    return fetched
            pause_s = attempts.next_round(self._chance())
            if pause_s is None or time.monotonic() + pause_s > deadline:
                return attempts.outcome()
            await self._sleep(pause_s)

    async def _attempt(
        self, base: str, target: _Target, max_bytes: int, stale: int
    ) -> FetchedBytes:
        url = "/".join([base, "v1", *(quote(segment, safe="") for segment in target.segments)])
        past = _PAST_CACHES[(stale - 1) % len(_PAST_CACHES)]
        query = dict([("fresh", str(stale)) if target.free_query else past]) if stale else None
        headers = {"Cache-Control": "no-store"} if stale or self._recent else {}
        self.traffic.requests += 1
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream("GET", url, params=query, headers=headers) as answer,
            ):
                return await self._judge(answer, target, max_bytes)
        except TimeoutError:
            raise _AttemptError(answers.LATE) from None
        except httpx.TransportError as error:
            raise _AttemptError(_trouble_of(error)) from error

    async def _judge(self, answer: httpx.Response, target: _Target, max_bytes: int) -> FetchedBytes:
        if answer.status_code != _OK:
            beginning = await self._body(answer, _MAX_ERROR_BYTES)
            body = b"" if beginning is None else beginning.data
            raise _AttemptError(answers.trouble_of(answer.status_code, body, recent=self._recent))
        fetched = await self._body(answer, max_bytes)
        if fetched is None:
            raise _AttemptError(answers.ENDLESS)
        if fetched.sha256 == target.sha256:
            return fetched
        if answers.is_web_page(answer.headers.get("content-type", ""), fetched.data):
            raise _AttemptError(answers.WEB_PAGE)
        if target.sha256:
            raise _AttemptError(answers.OTHER_BYTES, fetched)
        return fetched

    async def _body(self, answer: httpx.Response, max_bytes: int) -> FetchedBytes | None:
        """Return a body and its hash, or `None` if the body is too long."""
        announced = answer.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > max_bytes:
            return None
        digest = hashlib.sha256()
        chunks: list[bytes] = []
        room_bytes = max_bytes
        async for chunk in answer.aiter_raw():
            self.traffic.bytes_read += len(chunk)
            room_bytes -= len(chunk)
            if room_bytes < 0:
                return None
            digest.update(chunk)
            chunks.append(chunk)
        return FetchedBytes(b"".join(chunks), digest.hexdigest())

    def _remark(self, target: _Target, wrong: dict[str, str]) -> None:
        for place, sha256 in wrong.items():
            if len(self.remarks) < _MAX_REMARKS:
                path = "/".join(target.segments)
                self.remarks.append(f"{place} sent bytes with SHA-256 {sha256} for {path}")


class _Attempts:
    """The attempts to read one blob.

    Attributes:
        stale: Number of answers that may be outdated.
        given_up: Endpoints that are no longer tried.
        wrong: Maps each endpoint to the hash of the wrong bytes that it sent.
    """

    def __init__(self, max_bytes: int) -> None:
        self.stale = 0
        self.given_up: set[str] = set()
        self.wrong: dict[str, str] = {}
        self._max_bytes = max_bytes
        self._round = 1
        self._latest: list[Trouble] = []
        self._first_wrong: FetchedBytes | None = None
        self._sorts: set[Sort] = set()
        self._texts: dict[str, str] = {}

    def note(self, base: str, place: str, failed: _AttemptError) -> None:
        """Record a failed attempt."""
        trouble = failed.trouble
        self._sorts.add(trouble.sort)
        self._texts[place] = trouble.text
        self._latest.append(trouble)
        if failed.fetched is not None:
            self.wrong[place] = failed.fetched.sha256
            self._first_wrong = self._first_wrong or failed.fetched
        if trouble.pace.rounds < self._round:
            self.given_up.add(base)

    def next_round(self, chance: float) -> float | None:
        """Return the pause before the next round in seconds, or `None` if there is none."""
        pace = max((trouble.pace for trouble in self._latest), default=answers.NEVER)
        if pace.rounds < self._round:
            return None
        bound = min(pace.first_s * 2.0 ** (self._round - 1), pace.longest_s)
        self._round += 1
        self.stale += any(trouble.stale for trouble in self._latest)
        self._latest = []
        return bound if pace == answers.VISIBLE_SOON else bound * chance

    def outcome(self) -> FetchedBytes:
        """Return wrong bytes if there were any, else raise the failure."""
        if self._first_wrong is not None:
            return self._first_wrong
        if Sort.TOO_LONG in self._sorts:
            raise BlobTooLongError(self._max_bytes)
        if Sort.ABSENT in self._sorts:
            raise BlobMissingError
        raise BlobUnreadableError(
            "; ".join(f"{place} {text}" for place, text in self._texts.items())
        )


def _target(location: Location) -> _Target:
    """Return the request for a location: a patch by name, a patch by its own ID, or a blob."""
    blob_id, sha256 = location.blob_id, location.sha256
    if location.identifier:
        name = (_blob_id(blob_id), location.identifier)
        return _Target(("blobs", "by-quilt-id", *name), True, sha256)
    if is_patch_id(blob_id):
        return _Target(("blobs", "by-quilt-patch-id", blob_id), True, sha256)
    return _Target(("blobs", _blob_id(blob_id)), False, sha256)


def _blob_id(text: str) -> str:
    """Return a text if it is a blob ID.

    Raises:
        BlobMissingError: The text is not a blob ID, so nothing is stored under it.
    """
    if hash_of_id(text) is None:
        raise BlobMissingError
    return text


def _base(url: str) -> str:
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
        _ = parts.port
    except ValueError:
        usable = False
    if not usable:
        raise BadSource(f"'{_shown(url)}' is not the http(s) URL of an aggregator")
    return _ROUTE.sub("", url.strip()).rstrip("/")


def _shown(url: str) -> str:
    """Return a URL without credentials."""
    return re.sub(r"//[^/@]*@", "//", url)


def _open_client(bases: Sequence[str]) -> httpx.AsyncClient:
    """Return the HTTP client; requests to this machine bypass proxies."""
    hosts = {urlsplit(base).hostname or "" for base in bases}
    local = set(filter(_is_loopback, hosts))
    return httpx.AsyncClient(
        headers={"User-Agent": "tuskpoint-audit", "Accept-Encoding": "identity"},
        timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
        follow_redirects=False,
        verify=_certificates(),
        trust_env=local != hosts,
        mounts={f"all://{f'[{host}]' if ':' in host else host}": None for host in local},
    )


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Return the TLS context, created once because creation takes longer than most requests."""
    return httpx.create_ssl_context()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _trouble_of(error: httpx.TransportError) -> Trouble:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
        return answers.UNREACHED
    if isinstance(error, httpx.TimeoutException):
        return answers.LATE
    return answers.BROKEN
