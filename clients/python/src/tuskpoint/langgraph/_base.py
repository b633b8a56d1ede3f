"""State of a saver: connections, settings, and the requests that depend on them."""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
)

from .._async.calls import AsyncCalls
from .._messages.records import DurabilityName
from .._sync.calls import SyncCalls
from ..errors import NotFound
from ..v1 import checkpoint_pb2, checkpoint_service_pb2
from ._encode import encode_checkpoint
from ._summary import Summarize, summary_of
from ._vector import Vectorize, vector_of


class SaverBase(BaseCheckpointSaver[str]):
    """State of a saver, which never changes, and the requests that depend on the state."""

    _calls: SyncCalls
    _async_calls: AsyncCalls
    _waits_for: DurabilityName
    _durability: checkpoint_pb2.Durability
    _fence: bool
    _agent_id: str
    _summarize: Summarize | None
    _vectorize: Vectorize | None
    _searchable: bool | None

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


def as_early(
    request: checkpoint_service_pb2.SaveWritesRequest, refusal: NotFound
) -> checkpoint_service_pb2.SaveWritesRequest:
    """Return a request for writes that are certified together with their checkpoint.

    If the answer is not `early`, the checkpoint was saved in the meantime and may be certified
    without these writes.

    Raises:
        NotFound: The refusal has another reason.
    """
    if refusal.reason != "CHECKPOINT_MISSING":
        raise refusal
    early = checkpoint_service_pb2.SaveWritesRequest()
    early.CopyFrom(request)
    early.durability = checkpoint_pb2.DURABILITY_JOURNALED
    return early
