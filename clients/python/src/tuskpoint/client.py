"""`Client`: the service for agents without LangGraph, blocking."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ._calls import SyncCalls
from ._faces.admin import SyncAdmin
from ._faces.checkpoints import SyncCheckpoints
from ._faces.handoffs import SyncHandoffs
from ._faces.history import SyncHistory
from ._faces.interrupts import SyncInterrupts
from ._faces.lineage import SyncLineage
from ._faces.search import SyncSearch
from ._faces.snapshots import SyncSnapshots
from ._faces.threads import SyncThreads
from ._options import Options
from ._saving import Memory
from ._token import FilePath


class Client(
    SyncCheckpoints,
    SyncThreads,
    SyncInterrupts,
    SyncLineage,
    SyncHistory,
    SyncSearch,
    SyncHandoffs,
    SyncSnapshots,
    SyncAdmin,
):
    """Saves and loads the state of agents.

    One client may be shared by all threads of a process. Failed calls are tried again where
    that is safe, and every call has a deadline; errors are those of `tuskpoint.errors`.

    Args:
        target: `host:port` of the server. Default: the environment variable `TUSKPOINT_TARGET`,
            else `127.0.0.1:7390`.
        timeout_s: Seconds after which a quick call gives up, its retries included. Calls that
            wait for the blob store or read streams have longer ones.
        token: What the server knows the caller by. Default: `TUSKPOINT_TOKEN`, else what is in
            the file that `TUSKPOINT_TOKEN_FILE` names, read again whenever it changes.
        ca_file: Certificates in PEM that the server's may be signed by. Default:
            `TUSKPOINT_CA_FILE`, else those that this machine trusts.
        cert_file: The client's own certificate, PEM, for a server that asks for one. Default:
            `TUSKPOINT_CERT_FILE`.
        key_file: The key of that certificate, PEM. Default: `TUSKPOINT_KEY_FILE`.
        tls: Whether to use TLS. Default: `TUSKPOINT_TLS` ("1" or "0"); else it is used if there
            is a certificate, or if there is a token and the server is not on this machine.

    Raises:
        InvalidRequest: The target cannot be one, `timeout_s` is not above 0, the token cannot be
            one, or a file cannot be used.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        timeout_s: float = 30.0,
        token: str | None = None,
        ca_file: FilePath | None = None,
        cert_file: FilePath | None = None,
        key_file: FilePath | None = None,
        tls: bool | None = None,
    ) -> None:
        options = Options.of(
            target,
            timeout_s=timeout_s,
            token=token,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            tls=tls,
        )
        self._calls = SyncCalls(options)
        self._memory = Memory()

    @property
    def target(self) -> str:
        """Where the server is."""
        return self._calls.options.target

    def close(self) -> None:
        """Let go of the connection. Calls made afterwards raise; closing again does nothing."""
        self._calls.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
