"""The checkpointer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from types import TracebackType
from typing import Any, Self, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from .._calls import AsyncCalls, SyncCalls
from .._options import Options
from .._records import DurabilityName
from .._requests import flag
from .._token import FilePath
from ..errors import NotFound, ValuesMissing
from ..v1 import checkpoint_pb2, checkpoint_service_pb2, thread_service_pb2
from ._decode import decode_config, decode_history, decode_tuple, parent_with_sends
from ._encode import (
    checkpoint_ref,
    encode_checkpoint,
    history_request,
    inline_channels,
    list_request,
    prune_requests,
    run_requests,
    write_requests,
)
from ._lineage import LineageMethods
from ._search import SearchMethods, Vectorize, vector_of
from ._summary import Summarize, summary_of
from ._versions import next_version

_DURABILITIES: dict[str, checkpoint_pb2.Durability] = {
    "journaled": checkpoint_pb2.DURABILITY_JOURNALED,
    "certified": checkpoint_pb2.DURABILITY_CERTIFIED,
}


class TuskPointSaver(LineageMethods, SearchMethods, BaseCheckpointSaver[str]):
    """Keeps LangGraph's checkpoints in a TuskPoint server.

    Sync and async methods both work, from any thread and any event loop; sync methods never
    touch a loop. Constructing does no I/O. Copies made by `copy.copy` share the connection;
    closing any of them closes it for all.

    Values are sent only where a channel changed; whatever else the server lacks is sent again
    unnoticed. A summary goes with each checkpoint: what
    `config["configurable"]["tuskpoint_summary"]` says, else what `summarize` returns, else a
    sentence made from the names of nodes and channels. So does a vector for search, if
    `config["configurable"]["tuskpoint_vector"]` or `vectorize` gives one.

    Beyond what LangGraph asks for it hands checkpoints off to other agents, forks threads and
    rolls them back, proves what is stored, replays, and searches.

    Args:
        target: `host:port` or a gRPC name; `None` takes `TUSKPOINT_TARGET` from the
            environment, else `127.0.0.1:7390`.
        serde: Serializer of values; LangGraph's own by default.
        durability: What a save waits for: "journaled" (milliseconds) or "certified" (seconds).
            Writes whose checkpoint is not saved yet are certified together with it.
        fence: Whether a save is refused (`Conflict`) unless its parent is the latest of its
            namespace. Two agents that drive one thread then find out; deliberate forks within
            a thread are refused too.
        timeout_s: Deadline of quick calls, in seconds, retries included.
        agent_id: Name of the agent, recorded with the threads it drives.
        summarize: Makes the summary from checkpoint and metadata.
        vectorize: Makes the vector by which `search_similar` finds a checkpoint, from checkpoint
            and metadata; it may return `None`. Saves wait for it, and so does the event loop.
        searchable: Whether search finds the threads that this saver saves to; `None` leaves
            that as it is.
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
        InvalidRequest: `target` cannot be one, `timeout_s` is not above 0, `searchable` is none
            of its values, the token cannot be one, or a file cannot be used.
        ValueError: `durability` is neither of the two.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        serde: SerializerProtocol | None = None,
        durability: DurabilityName = "journaled",
        fence: bool = False,
        timeout_s: float = 30.0,
        agent_id: str = "",
        summarize: Summarize | None = None,
        vectorize: Vectorize | None = None,
        searchable: bool | None = None,
        token: str | None = None,
        ca_file: FilePath | None = None,
        cert_file: FilePath | None = None,
        key_file: FilePath | None = None,
        tls: bool | None = None,
    ) -> None:
        super().__init__(serde=serde)
        if durability not in _DURABILITIES:
            raise ValueError(f'durability is "journaled" or "certified", not {durability!r}')
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
        self._async_calls = AsyncCalls(options)
        self._durability = _DURABILITIES[durability]
        self._waits_for = durability
        self._fence = fence
        self._agent_id = agent_id
        self._summarize = summarize
        self._vectorize = vectorize
        self._searchable = flag("searchable", searchable)

    # --- reads -----------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint a config names, or the latest of its namespace; else `None`."""
        message = self._calls.get_checkpoint(checkpoint_ref(config))
        return None if message is None else self._decode(message)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async twin of `get_tuple`."""
        message = await self._async_calls.get_checkpoint(checkpoint_ref(config))
        return None if message is None else await self._adecode(message)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first, as the server streams them.

        Args:
            config: Thread, namespace and checkpoint to look at; what it leaves out, or `None`,
                means all of them.
            filter: Metadata keys and the values that they must have, compared whole.
            before: Only checkpoints with an ID below this one's; nothing else of it counts.
            limit: At most this many; 0 and less means none.
        """
        if limit is not None and limit <= 0:
            return
        request = list_request(config, filter, before, limit)
        with closing(self._calls.list_checkpoints(request)) as messages:
            for message in messages:
                yield self._decode(message)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async twin of `list`."""
        if limit is not None and limit <= 0:
            return
        request = list_request(config, filter, before, limit)
        async with aclosing(self._async_calls.list_checkpoints(request)) as messages:
            async for message in messages:
                yield await self._adecode(message)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what rebuilds delta channels: a stored value and the writes since."""
        if not channels:
            return {}
        histories = self._calls.get_delta_history(history_request(config, channels))
        return decode_history(channels, histories, self.serde)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async twin of `get_delta_channel_history`."""
        if not channels:
            return {}
        histories = await self._async_calls.get_delta_history(history_request(config, channels))
        return decode_history(channels, histories, self.serde)

    # --- saves -----------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint whose parent is the one in `config`; return a config that names it.

        Raises:
            Conflict: `fence` is on and another agent moved the thread on.
            ThreadDeleted: The thread was deleted since its parent was saved.
        """
        request = self._save_request(config, checkpoint, metadata, new_versions)
        try:
            answer = self._calls.save_checkpoint(request)
        except ValuesMissing as missing:
            inline_channels(request.checkpoint, missing.channels, checkpoint, self.serde)
            try:
                answer = self._calls.save_checkpoint(request)
            except ValuesMissing:  # trailers are bounded: the refusal named what fitted
                inline_channels(request.checkpoint, None, checkpoint, self.serde)
                answer = self._calls.save_checkpoint(request)
        return decode_config(answer.ref)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async twin of `put`."""
        request = self._save_request(config, checkpoint, metadata, new_versions)
        try:
            answer = await self._async_calls.save_checkpoint(request)
        except ValuesMissing as missing:
            inline_channels(request.checkpoint, missing.channels, checkpoint, self.serde)
            try:
                answer = await self._async_calls.save_checkpoint(request)
            except ValuesMissing:  # trailers are bounded: the refusal named what fitted
                inline_channels(request.checkpoint, None, checkpoint, self.serde)
                answer = await self._async_calls.save_checkpoint(request)
        return decode_config(answer.ref)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save what a task wrote after the checkpoint in `config`, which need not exist yet.

        Raises:
            ThreadDeleted: The thread was deleted since that checkpoint was saved.
        """
        for request in self._write_requests(config, writes, task_id, task_path):
            try:
                self._calls.save_writes(request)
            except NotFound as early:
                if not self._calls.save_writes(_as_early(request, early)).early:
                    self._calls.save_writes(request)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Async twin of `put_writes`."""
        for request in self._write_requests(config, writes, task_id, task_path):
            try:
                await self._async_calls.save_writes(request)
            except NotFound as early:
                if not (await self._async_calls.save_writes(_as_early(request, early))).early:
                    await self._async_calls.save_writes(request)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return the version after `current`; threads that have numbers keep numbers."""
        return cast(str, next_version(current))

    # --- threads ---------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its namespaces; nothing if there is none."""
        self._calls.delete_thread(self._delete_request(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Async twin of `delete_thread`."""
        await self._async_calls.delete_thread(self._delete_request(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata names one of these runs, in all threads."""
        for request in run_requests(run_ids, self._durability):
            self._calls.delete_runs(request)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async twin of `delete_for_runs`."""
        for request in run_requests(run_ids, self._durability):
            await self._async_calls.delete_runs(request)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with IDs, parents and writes.

        Raises:
            NotFound: There is no such source.
            AlreadyExists: The target has checkpoints.
        """
        self._calls.copy_thread(self._copy_request(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async twin of `copy_thread`."""
        await self._async_calls.copy_thread(self._copy_request(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete old checkpoints of threads.

        Args:
            thread_ids: The threads; unknown ones are passed over.
            strategy: "keep_latest" keeps the latest of each namespace and whatever its delta
                channels are rebuilt from; "delete" and "delete_all" keep nothing.

        Raises:
            TypeError: `thread_ids` is one string.
            ValueError: The strategy is not known.
        """
        for request in prune_requests(thread_ids, strategy, self._durability):
            self._calls.prune_threads(request)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Async twin of `prune`."""
        for request in prune_requests(thread_ids, strategy, self._durability):
            await self._async_calls.prune_threads(request)

    # --- connection ------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until everything saved so far is certified."""
        self._calls.flush()

    async def aflush(self) -> None:
        """Async twin of `flush`."""
        await self._async_calls.flush()

    def close(self) -> None:
        """Close the connection of the sync methods."""
        self._calls.close()

    async def aclose(self) -> None:
        """Close the connection, that of the sync methods included."""
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

    # --- requests and answers --------------------------------------------------------

    def _save_request(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> checkpoint_service_pb2.SaveCheckpointRequest:
        request = checkpoint_service_pb2.SaveCheckpointRequest(
            durability=self._durability,
            agent_id=self._agent_id,
            vector=vector_of(config, checkpoint, metadata, self._vectorize),
        )
        message = request.checkpoint
        encode_checkpoint(config, checkpoint, metadata, new_versions, self.serde, message)
        message.summary = summary_of(config, checkpoint, metadata, new_versions, self._summarize)
        if self._searchable is not None:
            request.searchable = self._searchable
        if self._fence:
            request.expected_head = message.parent_checkpoint_id
        return request

    def _write_requests(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> Sequence[checkpoint_service_pb2.SaveWritesRequest]:
        return write_requests(config, writes, task_id, task_path, self.serde, self._durability)

    def _delete_request(self, thread_id: str) -> thread_service_pb2.DeleteThreadRequest:
        return thread_service_pb2.DeleteThreadRequest(
            thread_id=str(thread_id), durability=self._durability
        )

    def _copy_request(
        self, source_thread_id: str, target_thread_id: str
    ) -> thread_service_pb2.CopyThreadRequest:
        return thread_service_pb2.CopyThreadRequest(
            source_thread_id=str(source_thread_id),
            target_thread_id=str(target_thread_id),
            durability=self._durability,
        )

    def _decode(self, message: checkpoint_pb2.Checkpoint) -> CheckpointTuple:
        parent = parent_with_sends(message)
        sender = None if parent is None else self._calls.get_checkpoint(parent)
        return decode_tuple(message, self.serde, sender)

    async def _adecode(self, message: checkpoint_pb2.Checkpoint) -> CheckpointTuple:
        parent = parent_with_sends(message)
        sender = None if parent is None else await self._async_calls.get_checkpoint(parent)
        return decode_tuple(message, self.serde, sender)


def _as_early(
    request: checkpoint_service_pb2.SaveWritesRequest, refusal: NotFound
) -> checkpoint_service_pb2.SaveWritesRequest:
    """Return a request for writes that their checkpoint, once saved, certifies with itself.

    If the answer is not `early`, the checkpoint has come meanwhile and may have been certified
    without these writes.

    Raises:
        NotFound: The refusal is about something else.
    """
    if refusal.reason != "CHECKPOINT_MISSING":
        raise refusal
    early = checkpoint_service_pb2.SaveWritesRequest()
    early.CopyFrom(request)
    early.durability = checkpoint_pb2.DURABILITY_JOURNALED
    return early
