"""Methods that save checkpoints and writes, and that delete."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata

from ..._async.saving import save_inlining
from ..._messages.requests import copying, deletion
from ..._transport import methods
from ...errors import NotFound, TuskPointError
from ...v1.admin_service_pb2 import FlushRequest
from ...v1.checkpoint_service_pb2 import SaveWritesRequest
from .._base import SaverBase, as_early
from .._decode import decode_config
from .._encode import inline_channels, prune_requests, run_requests, write_requests
from .._leases import note_failure


class AsyncChanges(SaverBase):
    """Methods that save and delete."""

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint as the successor of the one in `config`; return the new config.

        Raises:
            Conflict: `fence` is on and another agent saved to the thread.
            ThreadDeleted: The thread was deleted after the parent was saved.
        """
        request = self._save_request(config, checkpoint, metadata, new_versions)
        inline = partial(inline_channels, request.checkpoint, checkpoint, self.serde)
        try:
            answer = await save_inlining(self._async_calls, request, inline)
        except TuskPointError as failure:
            note_failure(request.checkpoint.ref.thread_id, failure)
            raise
        return decode_config(answer.ref)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save the writes of a task after the checkpoint in `config`, which need not exist yet.

        Raises:
            ThreadDeleted: The thread was deleted after the checkpoint was saved.
        """
        for request in write_requests(
            config, writes, task_id, task_path, self.serde, self._durability
        ):
            try:
                await self._asave_writes(request)
            except TuskPointError as failure:
                note_failure(request.ref.thread_id, failure)
                raise

    async def _asave_writes(self, request: SaveWritesRequest) -> None:
        try:
            await self._async_calls.save_writes(request)
        except NotFound as early:
            if not (await self._async_calls.save_writes(as_early(request, early))).early:
                await self._async_calls.save_writes(request)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its namespaces, if it exists."""
        request = deletion(str(thread_id), self._waits_for)
        await self._async_calls.unary(methods.DELETE_THREAD, request)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata has one of these runs, in all threads."""
        for request in run_requests(run_ids, self._waits_for):
            await self._async_calls.unary(methods.DELETE_RUNS, request)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with IDs, parents and writes.

        Raises:
            NotFound: The source thread does not exist.
            AlreadyExists: The target thread has checkpoints.
        """
        request = copying(str(source_thread_id), str(target_thread_id), self._waits_for)
        await self._async_calls.unary(methods.COPY_THREAD, request)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete old checkpoints of threads.

        Args:
            thread_ids: The threads; unknown ones are skipped.
            strategy: "keep_latest" keeps the latest checkpoint of each namespace and the data from
                which its delta channels are rebuilt; "delete" and "delete_all" keep nothing.

        Raises:
            TypeError: `thread_ids` is one string.
            ValueError: The strategy is unknown.
        """
        for request in prune_requests(thread_ids, strategy, self._waits_for):
            await self._async_calls.unary(methods.PRUNE_THREADS, request)

    async def aflush(self) -> None:
        """Wait until everything saved so far is certified."""
        await self._async_calls.unary(methods.FLUSH, FlushRequest())
