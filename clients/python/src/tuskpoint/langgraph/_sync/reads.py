# Written by `make sync` from _async/reads.py; do not edit.
"""Methods that read single checkpoints and streams of checkpoints."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory

from ..._messages.history import replaying
from ...v1.checkpoint_pb2 import Checkpoint
from .._base import SaverBase
from .._decode import decode_history, decode_tuple, parent_with_sends
from .._encode import checkpoint_ref, history_request, list_request, thread_text
from .._leases import begin_run


class SyncReads(SaverBase):
    """Methods that read checkpoints."""

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint of a config, or the latest of its namespace; `None` if missing."""
        ref = checkpoint_ref(config)
        begin_run(ref.thread_id)
        message = self._calls.get_checkpoint(ref)
        return None if message is None else self._decode(message)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first.

        Args:
            config: Filter by thread, namespace and checkpoint. A missing key, or `None`, matches
                all.
            filter: Metadata keys and the values that they must have. Values are compared as a
                whole.
            before: Only checkpoints with an ID below this config's.
            limit: Most checkpoints to yield; 0 or less yields no checkpoint.
        """
        if limit is not None and limit <= 0:
            return
        request = list_request(config, filter, before, limit)
        with closing(self._calls.list_checkpoints(request)) as messages:
            for message in messages:
                yield self._decode(message)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the data that rebuilds delta channels: a stored value and the writes after it."""
        if not channels:
            return {}
        histories = self._calls.get_delta_history(history_request(config, channels))
        return decode_history(channels, histories, self.serde)

    def replay(self, thread_id: str) -> Generator[CheckpointTuple, None, None]:
        """Yield the checkpoints of a thread and its subgraphs, oldest first.

        The stream resumes after a lost connection or a restart of the server.

        Raises:
            NotFound: The thread does not exist.
        """
        request = replaying(thread_text(thread_id), None, "", "", "full", "any")
        with closing(self._calls.replay_thread(request)) as messages:
            for message in messages:
                yield self._decode(message)

    def _decode(self, message: Checkpoint) -> CheckpointTuple:
        parent = parent_with_sends(message)
        sender = None if parent is None else self._calls.get_checkpoint(parent)
        return decode_tuple(message, self.serde, sender)
