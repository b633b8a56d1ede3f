"""Store of LangGraph."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self, get_args

from langgraph.store.base import TTLConfig

from .._async.client import AsyncClient
from .._messages.records import DurabilityName
from .._sync.client import Client
from .._transport.settings.token import FilePath
from ._async.store import AsyncStore
from ._sync.store import SyncStore


class TuskPointStore(AsyncStore, SyncStore):
    """A LangGraph store that keeps items in a TuskPoint server.

    Sync and async methods both work, from any thread and any event loop; sync methods never use a
    loop. The constructor does no I/O. Values are JSON objects. A part that JSON cannot express is
    refused with its path, and tuples become lists.

    Expired items are never returned. Search compares by meaning if the server has an embedder;
    otherwise a query has no effect, and the client logs a warning.

    Args:
        target: `host:port`, several addresses with commas between, or a gRPC name. `None` means the
            environment variable `TUSKPOINT_TARGET`, else `127.0.0.1:7390`.
        durability: Durability that a put waits for: "journaled" (milliseconds) or "certified"
            (seconds).
        timeout_s: Deadline of quick calls, retries included, in seconds. Default: 30, but 5 until
            the server has answered once.
        ttl: Expiry of items: `default_ttl` in minutes, and `refresh_on_read`. The server decides
            when it deletes expired items, and always omits them.
        index_fields: Paths of the parts of a value that a search compares, unless a put names other
            paths. Default: the whole value.
        token: Bearer token of the caller. Default: `TUSKPOINT_TOKEN`, else the content of the
            file that `TUSKPOINT_TOKEN_FILE` names, read again when it changes.
        ca_file: Trusted CA certificates, PEM. Default: `TUSKPOINT_CA_FILE`, else the certificates
            that this machine trusts.
        cert_file: The client's certificate, PEM, for a server that requires client certificates.
            Default: `TUSKPOINT_CERT_FILE`.
        key_file: Private key of the client's certificate, PEM. Default: `TUSKPOINT_KEY_FILE`.
        tls: Whether to use TLS. Default: `TUSKPOINT_TLS` ("1" or "0"); else TLS is used if there is
            a certificate, or if there is a token and the server is on another machine.

    Raises:
        InvalidRequest: The target or the token is malformed, `timeout_s` is not above 0, or a
            file cannot be used.
        ValueError: `durability` is unknown.
    """

    supports_ttl = True

    def __init__(
        self,
        target: str | None = None,
        *,
        durability: DurabilityName = "journaled",
        timeout_s: float | None = None,
        ttl: TTLConfig | None = None,
        index_fields: Sequence[str] | None = None,
        token: str | None = None,
        ca_file: FilePath | None = None,
        cert_file: FilePath | None = None,
        key_file: FilePath | None = None,
        tls: bool | None = None,
    ) -> None:
        if durability not in get_args(DurabilityName):
            raise ValueError(f'durability must be "journaled" or "certified", not {durability!r}')
        self._client = Client(
            target,
            timeout_s=timeout_s,
            token=token,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            tls=tls,
        )
        self._async_client = AsyncClient(
            target,
            timeout_s=timeout_s,
            token=token,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            tls=tls,
        )
        self._durability = durability
        self._index_fields = index_fields
        self.ttl_config = ttl

    def close(self) -> None:
        """Close the connection of the sync methods."""
        self._client.close()

    async def aclose(self) -> None:
        """Close all connections, including the connection of the sync methods."""
        self._client.close()
        await self._async_client.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
