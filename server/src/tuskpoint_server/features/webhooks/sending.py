"""Sends a payload to a webhook: one attempt, bounded in time and bytes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import httpx

from ...core.webhooks import Webhook
from . import signing
from .addresses import AddressRefusedError, resolve
from .attempts import Attempt

ATTEMPT_S = 20.0
"""Longest time of an attempt, from the look-up of the name to the end of the answer."""

_ANSWER_BYTES = 16 * 1024  # no more of an answer's body is read
_SHOWN = 200  # characters of an answer in an error
_GONE = 410
_LONGEST_RETRY_AFTER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends payloads.

    Each attempt has a connection of its own: it goes to the address that was checked for it.
    Redirects are not followed, and proxies of the environment are not used.
    """

    _agent: str  # User-Agent
    _clock_s: Callable[[], float] = time.time

    async def post(self, webhook: Webhook, message_id: str, payload: bytes) -> Attempt:
        """Post a payload once, and return how the webhook answered."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(ATTEMPT_S):
                attempt = await self._post(webhook, message_id, payload)
        except TimeoutError:
            attempt = Attempt(problem=f"no whole answer within {ATTEMPT_S:.0f} seconds")
        except AddressRefusedError as error:
            attempt = Attempt(problem=str(error))
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            attempt = Attempt(problem=_told(error))
        return attempt._replace(seconds=time.monotonic() - began)

    async def _post(self, webhook: Webhook, message_id: str, payload: bytes) -> Attempt:
        address = await resolve(webhook.url, allow_private=webhook.allow_private)
        url = httpx.URL(webhook.url)
        headers = signing.headers(webhook.secrets, message_id, int(self._clock_s()), payload)
        headers |= {
            "host": url.netloc.decode("ascii"),
            "content-type": "application/json",
            "user-agent": self._agent,
            "connection": "close",
        }
        extensions = {"sni_hostname": url.host} if url.scheme == "https" else {}
        async with (
            httpx.AsyncClient(
                timeout=ATTEMPT_S, trust_env=False, follow_redirects=False, http2=False
            ) as client,
            client.stream(
                "POST",
                url.copy_with(host=address),
                content=payload,
                headers=headers,
                extensions=extensions,
            ) as answer,
        ):
            return attempt_of(answer, await _start_of(answer), self._clock_s())


async def _start_of(answer: httpx.Response) -> bytes:
    """Return the start of an answer's body; the rest is not read."""
    body = b""
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) > _ANSWER_BYTES:
            break
    return body


def attempt_of(answer: httpx.Response, body: bytes, now_s: float) -> Attempt:
    """Return the outcome of an answered attempt, from the start of the answer's body."""
    status = answer.status_code
    if answer.is_success:
        return Attempt(status)
    text = " ".join(body[:_SHOWN].decode(errors="replace").split())
    shown = "".join(char if char.isprintable() else "?" for char in text)
    problem = f"it answered {status}"
    if answer.is_redirect:
        problem += ", and redirects are not followed; give the new address"
    elif shown:
        problem += f": {shown}"
    retry_after_s = _seconds(answer.headers.get("retry-after", ""), now_s)
    return Attempt(status, problem, retry_after_s, is_final=status == _GONE)


def _seconds(value: str, now_s: float) -> float:
    """Return the time of a `Retry-After` header (RFC 9110, section 10.2.3), bounded; 0: none."""
    if value.isascii() and value.isdigit():
        seconds = float(value[:10])
    else:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now_s
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER_S)


def _told(error: Exception) -> str:
    """Return the problem of a failed request, without the path of its address."""
    inner: BaseException | None = error
    while inner is not None:  # the library hides what the operating system said
        if isinstance(inner, ConnectionError) and inner.errno:
            return f"it cannot be reached: {os.strerror(inner.errno)}"
        inner = inner.__cause__ or inner.__context__
    return f"it cannot be reached: {str(error) or type(error).__name__}"
