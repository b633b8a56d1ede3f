"""Cache of LangGraph."""

from __future__ import annotations

from types import TracebackType
from typing import Self, get_args

from langgraph.cache.base import ValueT
from langgraph.checkpoint.serde.base import SerializerProtocol

from .._async.client import AsyncClient
from .._messages.records import DurabilityName
from .._sync.client import Client
from .._transport.settings.token import FilePath
from ._async.cache import AsyncCache
from ._cache_entries import check_name
from ._sync.cache import SyncCache


class TuskPointCache(AsyncCache[ValueT], SyncCache[ValueT]):
    """A LangGraph cache that processes and machines share through a TuskPoint server.

    Nodes with a `CachePolicy` in a graph that was compiled with `cache=TuskPointCache(...)` reuse
    the results of every process that uses a cache with the same name on the same server.

    Sync and async methods both work, from any thread and any event loop; sync methods never use a
    loop. The constructor does no I/O. The cache never returns an expired entry. An entry that is
    damaged, or that `serde` cannot decode, is a miss: the client logs a warning, and the node runs.
    A call that fails for another reason raises, as calls of the saver do.

    Entries are items in namespaces that start with `langgraph.cache`, a label that LangGraph's
    stores refuse.

    Args:
        target: `host:port`, several addresses with commas between, or a gRPC name. `None` means the
            environment variable `TUSKPOINT_TARGET`, else `127.0.0.1:7390`.
        serde: Serializer of values. Default: LangGraph's own, without pickle.
        name: Name of the cache, 1 to 128 bytes of UTF-8. Caches with different names share no
            entries. `clear()` deletes only entries of the cache with this name.
        durability: Durability that `set` and `clear` wait for: "journaled" (milliseconds) or
            "certified" (seconds).
        timeout_s: Deadline of quick calls, retries included, in seconds. Default: 30, but 5 until
            the server has answered once.
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
        InvalidRequest: The target, the token or the name is malformed, `timeout_s` is not above 0,
            or a file cannot be used.
        ValueError: `durability` is unknown.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        serde: SerializerProtocol | None = None,
        name: str = "default",
        durability: DurabilityName = "journaled",
        timeout_s: float | None = None,
        token: str | None = None,
        ca_file: FilePath | None = None,
        cert_file: FilePath | None = None,
        key_file: FilePath | None = None,
        tls: bool | None = None,
    ) -> None:
        super().__init__(serde=serde)
        if durability not in get_args(DurabilityName):
            raise ValueError(f'durability must be "journaled" or "certified", not {durability!r}')
        self._name = check_name(name)
        self._durability = durability
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
