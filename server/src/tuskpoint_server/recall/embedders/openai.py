"""Vectors from an endpoint that speaks OpenAI's embeddings API.

The API is https://platform.openai.com/docs/api-reference/embeddings; Ollama, vLLM, LiteLLM
and text-embeddings-inference speak it too. What an endpoint answers is checked in full: a
vector in the wrong place would be found for the wrong checkpoint, and nobody would notice.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpx

from ...domain.credentials import is_loopback
from ...domain.limits import LIMITS, MIB
from ...domain.search import pack_vector, unpack_vector, vector_dimension, vector_problem
from .api import EmbedderError

MAX_TEXT = 8000
"""Most bytes that are sent of a text. No token is shorter, and models take 8,191 tokens."""

MAX_ANSWER = 64 * MIB
"""Longest answer, in bytes."""

LONGEST_RETRY_AFTER_S = 3600.0
"""What an endpoint may ask to wait for; it is asked again after that, whatever it said."""

_OK = 200
_TOO_MANY = 429
_MEANINGS = {
    400: "it refused the request: check the model and its dimensions",
    401: "it refused the key",
    403: "the key may not use this model",
    404: "it has no such address or model",
    413: "the texts are too long for it: a smaller batch may help",
    422: "it refused the request: check the model and its dimensions",
    _TOO_MANY: "it was asked too often",
}
"""What a status says about the request."""


class OpenAIEmbedder:
    """Satisfies `api.Embedder` with an endpoint over HTTP.

    Args:
        url: Where the API begins, such as "https://api.openai.com/v1".
        model: Name of the model.
        key: Sent as a bearer token, if not empty. Never logged.
        dimensions: Ask for vectors of so many components; `None`: as the model makes them.
        timeout_s: Bound on one request.
        batch: Most texts in one request.

    Raises:
        EmbedderError: The URL is none that paths can be added to, or holds credentials; or
            the key cannot be sent.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str = "",
        dimensions: int | None = None,
        timeout_s: float = 30.0,
        batch: int = 64,
    ) -> None:
        host = _host(url)
        if not (key.isascii() and (key.isprintable() or not key)):
            raise EmbedderError("its key must be printable ASCII")
        self._url = f"{url.rstrip('/')}/embeddings"
        self._model = model
        self._asked_dimension = dimensions
        self._dimension = dimensions
        self._timeout_s = timeout_s
        self._batch = batch
        headers = {"User-Agent": "tuskpoint-server"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None),
            follow_redirects=False,
            verify=_tls(),
            # Proxies of the environment count, but nothing asks one for this machine itself.
            trust_env=not is_loopback(host),
        )

    @property
    def name(self) -> str:
        """Name of the model, and of its dimensions if they were chosen."""
        chosen = f":{self._asked_dimension}" if self._asked_dimension else ""
        return f"openai:{self._model}{chosen}"

    @property
    def batch(self) -> int:
        """Number of texts in one request."""
        return self._batch

    async def dimension(self) -> int:
        """Return the number of components; the first call may have to ask for a vector.

        Raises:
            EmbedderError: That failed.
        """
        if self._dimension is None:
            (vector,) = await self.embed(["dimension"])
            return vector_dimension(vector)
        return self._dimension

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return a packed vector for each text, in order.

        The endpoint refuses a text without a character, so it gets a space in its place.

        Raises:
            EmbedderError: A request failed or its answer is not what was asked for.
        """
        embedded: list[bytes] = []
        for begin in range(0, len(texts), self._batch):
            sent = [_sendable(text) for text in texts[begin : begin + self._batch]]
            body = await self._post(sent)
            try:
                embedded += await asyncio.to_thread(_read, body, len(sent))
            except _AnswerError as error:
                raise self._error(f"answered with {error}") from None
        self._check_dimension(embedded)
        return embedded

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _check_dimension(self, embedded: Sequence[bytes]) -> None:
        for vector in embedded:
            found = vector_dimension(vector)
            if self._dimension is None:
                self._dimension = found
            if found != self._dimension:
                raise self._error(
                    f"answered with a vector of {found} components, not {self._dimension}"
                )

    async def _post(self, texts: list[str]) -> bytes:
        asked: dict[str, object] = {
            "model": self._model,
            "input": texts,
            "encoding_format": "float",
        }
        if self._asked_dimension:
            asked["dimensions"] = self._asked_dimension
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream("POST", self._url, json=asked) as response,
            ):
                if response.status_code != _OK:
                    raise self._refusal(response)
                return await self._body(response)
        except TimeoutError:
            raise self._error(f"gave no answer in {self._timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise self._error(f"cannot be reached ({type(error).__name__})") from None

    async def _body(self, response: httpx.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_ANSWER:
                raise self._error(f"answered with more than {MAX_ANSWER} bytes")
        return bytes(body)

    def _refusal(self, response: httpx.Response) -> EmbedderError:
        """Return what a status says. Bodies are left out: they may repeat key and texts."""
        status = response.status_code
        meaning = _MEANINGS.get(status, "")
        return self._error(
            f"answered {status}{f': {meaning}' if meaning else ''}",
            _seconds(response.headers.get("retry-after", "")),
        )

    def _error(self, problem: str, retry_after_s: float | None = None) -> EmbedderError:
        # The address is not told: what goes wrong is also told to whoever searches.
        return EmbedderError(f"{self.name} {problem}", retry_after_s)


class _AnswerError(Exception):
    """An answer is not what the API promises; the message says what it is instead."""


def _read(body: bytes, count: int) -> list[bytes]:
    """Return the vectors of an answer in the order of the texts.

    Raises:
        _AnswerError: They are not one good vector for each of `count` texts.
    """
    try:
        answer = json.loads(body)
        rows = answer["data"]
        by_index = {row["index"]: row["embedding"] for row in rows}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _AnswerError("something else than a list of embeddings") from None
    if len(rows) != count or by_index.keys() != set(range(count)):
        raise _AnswerError(f"{len(rows)} embeddings, which are not those of the {count} texts")
    embedded = [_packed(by_index[index]) for index in range(count)]
    dimensions = {vector_dimension(vector) for vector in embedded}
    if len(dimensions) > 1:
        raise _AnswerError("vectors of several dimensions")
    return embedded


def _packed(embedding: object) -> bytes:
    if not isinstance(embedding, list) or not all(
        isinstance(component, int | float) and not isinstance(component, bool)
        for component in embedding
    ):
        raise _AnswerError("an embedding that is not a list of numbers")
    try:
        packed = pack_vector(embedding)
    except OverflowError:
        raise _AnswerError("a component that 32 bits do not hold") from None
    # What is tiny or huge becomes 0 or infinite in 32 bits, so it is looked at after that.
    problem = vector_problem(unpack_vector(packed), LIMITS.max_vector_dimension, zero_allowed=False)
    if problem:
        raise _AnswerError(f"a vector that cannot be used: {problem}")
    return packed


def _sendable(text: str) -> str:
    """Return the beginning of a text that a model takes; never an empty one."""
    return text[:MAX_TEXT].encode(errors="replace")[:MAX_TEXT].decode(errors="ignore") or " "


def _seconds(retry_after: str) -> float | None:
    """Return the seconds that a header `Retry-After` asks for (RFC 9110, section 10.2.3)."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            moment = parsedate_to_datetime(retry_after)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    return None if math.isnan(seconds) else min(max(seconds, 0.0), LONGEST_RETRY_AFTER_S)


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return what checks certificates; making it takes longer than many a request."""
    return httpx.create_ssl_context()


def _host(url: str) -> str:
    """Return the host of a URL.

    Raises:
        EmbedderError: It is none that paths can be added to, or it holds credentials.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:
        raise EmbedderError("its URL has no host or port that can be read") from None
    if parts.scheme not in ("http", "https") or not host:
        raise EmbedderError("its URL must begin with http:// or https:// and a host")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise EmbedderError("its URL must not hold credentials or parameters")
    return host
