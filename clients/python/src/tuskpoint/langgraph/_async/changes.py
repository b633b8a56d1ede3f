"""Saves of checkpoints and writes, and deletions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata

from ...errors import NotFound, ValuesMissing
from .._base import SaverBase, as_early
from .._decode import decode_config
from .._encode import inline_channels, prune_requests, run_requests


class AsyncChanges(SaverBase):
    """Saves and deletions."""

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint as the successor of the one in `config`; return its own config.

        Raises:
            Conflict: `fence` is on and another agent saved to the thread.
            ThreadDeleted: The thread was deleted since its parent was saved.
        """
        request = self._save_request(config, checkpoint, metadata, new_versions)
        try:
            answer = await self._async_calls.save_checkpoint(request)
        except ValuesMissing as missing:
            inline_channels(request.checkpoint, missing.channels, checkpoint, self.serde)
            try:
                answer = await self._async_calls.save_checkpoint(request)
            except (
                ValuesMissing
            ):  # trailers are bounded: the refusal named only the channels that fit
                inline_channels(request.checkpoint, None, checkpoint, self.serde)
                answer = await self._async_calls.save_checkpoint(request)
        return decode_config(answer.ref)

    async def aput_writes(
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
                await self._async_calls.save_writes(request)
            except NotFound as early:
                if not (await self._async_calls.save_writes(as_early(request, early))).early:
                    await self._async_calls.save_writes(request)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its namespaces, if it exists."""
        await self._async_calls.delete_thread(self._delete_request(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata has one of these runs, in all threads."""
        for request in run_requests(run_ids, self._durability):
            await self._async_calls.delete_runs(request)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with IDs, parents and writes.

        Raises:
            NotFound: There is no such source.
            AlreadyExists: The target has checkpoints.
        """
        await self._async_calls.copy_thread(self._copy_request(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete old checkpoints of threads.

        Args:
            thread_ids: The threads; unknown ones are skipped.
            strategy: "keep_latest" keeps the latest of each namespace and whatever its delta
                channels are rebuilt from; "delete" and "delete_all" keep nothing.

        Raises:
            TypeError: `thread_ids` is one string.
            ValueError: The strategy is unknown.
        """
        for request in prune_requests(thread_ids, strategy, self._durability):
            await self._async_calls.prune_threads(request)

    async def aflush(self) -> None:
        """Wait until everything saved so far is certified."""
        await self._async_calls.flush()
