"""`AsyncClient`: the asyncio client for agents without LangGraph."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from .._messages.checkpoints.saving import Memory
from .._messages.checkpoints.value_cache import DEFAULT_BYTES
from .._transport.settings.options import Options
from .._transport.settings.token import FilePath
from .calls import AsyncCalls
from .effects.methods import AsyncEffects
from .parts.admin import AsyncAdmin
from .parts.checkpoints import AsyncCheckpoints
from .parts.handoffs import AsyncHandoffs
from .parts.history import AsyncHistory
from .parts.interrupts import AsyncInterrupts
from .parts.items import AsyncItems
from .parts.leases import AsyncLeases
from .parts.lineage import AsyncLineage
from .parts.offers import AsyncOffers
from .parts.search import AsyncSearch
from .parts.snapshots import AsyncSnapshots
from .parts.threads import AsyncThreads
from .parts.webhooks import AsyncWebhooks


class AsyncClient(
    AsyncCheckpoints,
    AsyncThreads,
    AsyncLeases,
    AsyncInterrupts,
    AsyncLineage,
    AsyncHistory,
    AsyncSearch,
    AsyncHandoffs,
    AsyncOffers,
    AsyncSnapshots,
    AsyncItems,
    AsyncEffects,
    AsyncAdmin,
    AsyncWebhooks,
):
    """Saves and loads the state of agents.

    One client may be shared by all tasks, and by any number of event loops and their threads.
    Failed calls are retried where that is safe, and every call has a deadline. Methods raise the
    errors of `tuskpoint.errors`.

    Args:
        target: `host:port` of the server, or several with commas between. Default: the
            environment variable `TUSKPOINT_TARGET`, else `127.0.0.1:7390`.
        timeout_s: Deadline of a quick call in seconds, its retries included. Calls that wait for
            the blob store or read streams have longer deadlines. Default: 30, but 5 until the
            server has answered once.
        token: Bearer token of the caller. Default: `TUSKPOINT_TOKEN`, else the content of the
            file that `TUSKPOINT_TOKEN_FILE` names, read again when it changes.
        ca_file: Trusted CA certificates, PEM. Default: `TUSKPOINT_CA_FILE`, else the certificates
            that this machine trusts.
        cert_file: The client's certificate, PEM, for a server that requires client certificates.
            Default: `TUSKPOINT_CERT_FILE`.
        key_file: Private key of the client's certificate, PEM. Default: `TUSKPOINT_KEY_FILE`.
        tls: Whether to use TLS. Default: `TUSKPOINT_TLS` ("1" or "0"); else TLS is used if there is
            a certificate, or if there is a token and the server is on another machine.
        value_cache_bytes: Most bytes of values that the client keeps of the checkpoints that it
            saved and loaded last. Loads do not send these values again. 0 keeps no values.

    Raises:
        InvalidRequest: The target or the token is malformed, `timeout_s` is not above 0,
            `value_cache_bytes` is below 0, or a file cannot be used.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        timeout_s: float | None = None,
        token: str | None = None,
        ca_file: FilePath | None = None,
        cert_file: FilePath | None = None,
        key_file: FilePath | None = None,
        tls: bool | None = None,
        value_cache_bytes: int = DEFAULT_BYTES,
    ) -> None:
        options = Options.of(
            target,
            timeout_s=timeout_s,
            token=token,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            tls=tls,
            value_cache_bytes=value_cache_bytes,
        )
        self._calls = AsyncCalls(options)
        self._memory = Memory()

    @property
    def target(self) -> str:
        """Address of the server, normalized."""
        return self._calls.options.target

    async def aclose(self) -> None:
        """Close the connection. Later calls raise; a second `aclose` does nothing."""
        await self._calls.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
