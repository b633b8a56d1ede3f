"""Vectors from an endpoint with OpenAI's embeddings API.

The API is https://platform.openai.com/docs/api-reference/embeddings; Ollama, vLLM, LiteLLM and
text-embeddings-inference implement it too. Every answer is checked in full: a vector in the wrong
place would find the wrong checkpoint, and nobody would notice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx

from ...core.credentials import is_loopback
from ...core.limits import LIMITS, MIB
from ...core.search import pack_vector, unpack_vector, vector_dimension, vector_problem
from ..pacing import retry_after_s
from . import EmbedderError

# most bytes of a text that are sent. A token has at least one byte, and models accept 8,191 tokens
MAX_TEXT = 8000
MAX_ANSWER = 64 * MIB  # longest answer, in bytes
_MEANINGS = {
    400: ": it refused the request: check the model and its dimensions",
    401: ": it refused the key",
    403: ": the key may not use this model",
    404: ": it has no such address or model",
    413: ": the texts are too long for it: a smaller batch may help",
    422: ": it refused the request: check the model and its dimensions",
    429: ": it was asked too often",
}


class OpenAIEmbedder:
    """An `Embedder` with an endpoint over HTTP; a bad URL or key is an error."""

    batch = 64

    def __init__(
        self,
        url: str,  # base URL of the API, such as "https://api.openai.com/v1"
        model: str,
        *,
        key: str = "",  # sent as a bearer token, if not empty. Never logged
        dimensions: int | None = None,
        timeout_s: float = 30.0,  # timeout of one request
    ) -> None:
        host = _host(url)
        if not (key.isascii() and (key.isprintable() or not key)):
            raise EmbedderError("its key must be printable ASCII")
        self.name = f"openai:{model}" + (f":{dimensions}" if dimensions else "")
        self._url = f"{url.rstrip('/')}/embeddings"
        self._asked = {"model": model, "encoding_format": "float"} | (
            {"dimensions": dimensions} if dimensions else {}
        )
        self._dimension = dimensions
        self._timeout_s = timeout_s
        headers = {"User-Agent": "tuskpoint-server"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None),
            follow_redirects=False,
            verify=httpx.create_ssl_context(),
            # Proxies of the environment apply, except that requests to this machine use no proxy.
            trust_env=not is_loopback(host),
        )

    async def dimension(self) -> int:
        """Return the number of components; the first call may have to request a vector."""
        if self._dimension is None:
            (vector,) = await self.embed(["dimension"])
            return vector_dimension(vector)
        return self._dimension

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return a packed vector for each text, after checking the answer."""
        # The start of the text, which a model accepts; never an empty text, which models refuse.
        inputs = [
            text[:MAX_TEXT].encode(errors="replace")[:MAX_TEXT].decode(errors="ignore") or " "
            for text in texts
        ]
        body = await self._post(inputs)
        try:
            embedded = await asyncio.to_thread(_read, body, len(inputs))
        except ValueError as error:
            raise self._error(f"answered with {error}") from None
        for dimension in {vector_dimension(vector) for vector in embedded}:
            self._dimension = self._dimension or dimension
            if dimension != self._dimension:
                raise self._error(
                    f"answered with a vector of {dimension} components, not {self._dimension}"
                )
        return embedded

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _post(self, texts: list[str]) -> bytes:
        body, request = bytearray(), self._asked | {"input": texts}
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream("POST", self._url, json=request) as answer,
            ):
                # The bodies of other answers are left out: they may repeat key and texts.
                if answer.status_code != httpx.codes.OK:
                    problem = (
                        f"answered {answer.status_code}{_MEANINGS.get(answer.status_code, '')}"
                    )
                    raise self._error(problem, retry_after_s(answer.headers.get("retry-after")))
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > MAX_ANSWER:
                        raise self._error(f"answered with more than {MAX_ANSWER} bytes")
        except TimeoutError:
            raise self._error(f"gave no answer in {self._timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise self._error(f"cannot be reached ({type(error).__name__})") from None
        return bytes(body)

    def _error(self, problem: str, after_s: float | None = None) -> EmbedderError:
        # The URL is left out: callers of search see this message too.
        return EmbedderError(f"{self.name} {problem}", after_s)


def _read(body: bytes, count: int) -> list[bytes]:
    """Return the vectors of an answer, one for each text; raise `ValueError` if one is invalid."""
    try:
        rows = json.loads(body)["data"]
        by_index = {row["index"]: row["embedding"] for row in rows}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("something other than a list of embeddings") from None
    if len(rows) != count or by_index.keys() != set(range(count)):
        raise ValueError(f"{len(rows)} embeddings, which do not match the {count} texts")
    embedded = [_pack_vector(by_index[index]) for index in range(count)]
    if len(set(map(len, embedded))) > 1:
        raise ValueError("vectors of several dimensions")
    return embedded


def _pack_vector(embedding: object) -> bytes:
    if not isinstance(embedding, list) or not all(
        isinstance(component, int | float) and not isinstance(component, bool)
        for component in embedding
    ):
        raise ValueError("an embedding that is not a list of numbers")
    try:
        packed = pack_vector(embedding)
    except OverflowError:
        raise ValueError("a component that 32 bits do not hold") from None
    # Check after packing: in 32 bits a tiny component becomes 0, and a huge one infinite.
    problem = vector_problem(unpack_vector(packed), LIMITS.max_vector_dimension, zero_allowed=False)
    if problem:
        raise ValueError(f"a vector that cannot be used: {problem}")
    return packed


def _host(url: str) -> str:
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
