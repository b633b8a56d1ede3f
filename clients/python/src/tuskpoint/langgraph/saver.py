"""Checkpointer of LangGraph."""

from __future__ import annotations

from types import TracebackType
from typing import Self, cast, get_args

from langgraph.checkpoint.serde.base import SerializerProtocol

from .._async.calls import AsyncCalls
from .._messages import requests
from .._messages.checkpoints.value_cache import DEFAULT_BYTES, ValueCache
from .._messages.leases import TTL_S, HeldLeases, OnBusy, acquiring
from .._messages.records import DurabilityName
from .._sync.calls import SyncCalls
from .._transport.settings.options import Options
from .._transport.settings.token import FilePath
from ._async import AsyncMethods
from ._effect_blocks import EffectMethods
from ._encode import thread_text
from ._leases import SaverLease, check_run
from ._summary import Summarize
from ._sync import SyncMethods
from ._vector import Vectorize
from ._versions import next_version


class TuskPointSaver(AsyncMethods, SyncMethods, EffectMethods):
    """A LangGraph checkpointer that keeps checkpoints in a TuskPoint server.

    Sync and async methods both work, from any thread and any event loop; sync methods never
    use a loop. The constructor does no I/O. Copies from `copy.copy` share the connection; closing
    one copy closes the connection of all copies.

    The saver sends only values of changed channels, and other values if the server lacks them. Each
    checkpoint has a summary: `config["configurable"]["tuskpoint_summary"]`, else the result of
    `summarize`, else a sentence from the names of nodes and channels. It has a vector for
    search if `config["configurable"]["tuskpoint_vector"]` or `vectorize` supplies a vector.

    Beyond LangGraph's interface, the saver hands checkpoints off to other agents, forks threads,
    rolls threads back, verifies stored checkpoints, replays, and searches.

    Args:
        target: `host:port`, several addresses with commas between, or a gRPC name. `None` means the
            environment variable `TUSKPOINT_TARGET`, else `127.0.0.1:7390`.
        serde: Serializer of values; LangGraph's own by default.
        durability: Durability that a save waits for: "journaled" (milliseconds) or "certified"
            (seconds). Writes whose checkpoint is not saved yet are certified together with it.
        fence: Whether a save is refused (`Conflict`) unless its parent is the latest checkpoint of
            its namespace. This setting detects two agents that drive one thread; it also refuses
            deliberate forks within a thread.
        timeout_s: Deadline of quick calls, retries included, in seconds. Default: 30, but 5 until
            the server has answered once.
        agent_id: Name of the agent, recorded with the threads that the agent drives.
        summarize: Returns the summary of a checkpoint from the checkpoint and its metadata.
        vectorize: Returns the vector with which `search_similar` finds a checkpoint, from the
            checkpoint and its metadata, or `None` for no vector. Runs before each save and blocks
            the event loop.
        searchable: Whether search finds the threads that this saver saves to; `None` changes
            nothing; a new thread is searchable.
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
            `value_cache_bytes` is below 0, `searchable` is not a boolean or `None`, or a file
            cannot be used.
        ValueError: `durability` is unknown.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        serde: SerializerProtocol | None = None,
        durability: DurabilityName = "journaled",
        fence: bool = False,
        timeout_s: float | None = None,
        agent_id: str = "",
        summarize: Summarize | None = None,
        vectorize: Vectorize | None = None,
        searchable: bool | None = None,
        token: str | None = None,
        ca_file: FilePath | None = None,
        cert_file: FilePath | None = None,
        key_file: FilePath | None = None,
        tls: bool | None = None,
        value_cache_bytes: int = DEFAULT_BYTES,
    ) -> None:
        super().__init__(serde=serde)
        if durability not in get_args(DurabilityName):
            raise ValueError(f'durability must be "journaled" or "certified", not {durability!r}')
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
        values, leases = ValueCache(value_cache_bytes), HeldLeases.of_environment()
        self._calls = SyncCalls(options, values, leases)
        self._async_calls = AsyncCalls(options, values, leases)
        self._durability = requests.durability(durability)
        self._waits_for = durability
        self._fence = fence
        self._agent_id = agent_id
        self._summarize = summarize
        self._vectorize = vectorize
        self._searchable = requests.flag("searchable", searchable)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return the version after `current`. Threads that have number versions keep numbers.

        Raises:
            LeaseLost: The run is in the context of a lease that was lost.
            TuskPointError: A save of the run failed.
        """
        check_run()
        return cast(str, next_version(current))

    def lease(
        self,
        thread_id: str,
        *,
        owner: str | None = None,
        ttl_s: float = TTL_S,
        on_busy: OnBusy | None = None,
        wait_s: float | None = None,
        advisory: bool = False,
    ) -> SaverLease:
        """Return a context, for `with` and `async with`, in which only this saver drives a thread.

        Inside the context, the saver extends the lease in the background, and names the lease in
        each save and write of the thread. If the lease was lost, the next save raises `LeaseLost`,
        which ends the run. The end of the context releases the lease.

        Args:
            thread_id: The thread, which need not exist.
            owner: Name of the driver, for people. Default: agent, machine and process.
            ttl_s: Seconds after which the lease ends if this process no longer extends it, 1 to
                3600.
            on_busy: What to do if another driver has the thread: "reject" raises `ThreadBusy`;
                "wait" waits for the end of its lease; "take_over" ends its lease: its run ends with
                `LeaseLost` at its next save. Default: "wait" if `wait_s` is given, else "reject".
            wait_s: Longest wait in seconds, with "wait". Default: 30.
            advisory: Whether the server accepts changes of callers without a lease.

        Raises:
            ThreadBusy: Another driver has the thread, on entry.
        """
        request = acquiring(
            *(thread_text(thread_id), owner, ttl_s, on_busy, wait_s),
            advisory=advisory,
            agent_id=self._agent_id,
        )
        return SaverLease(self._calls, self._async_calls, request)

    def close(self) -> None:
        """Close the connection of the sync methods."""
        self._calls.close()

    async def aclose(self) -> None:
        """Close all connections, including the connection of the sync methods."""
        self._calls.close()
        await self._async_calls.aclose()

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
