# Written by `make sync` from _async/calls.py; do not edit.
"""The calls of the service: contract messages in, contract messages out."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

from .._messages.checkpoints.large_values import CheckpointAssembler, DeltaHistoryAssembler
from .._messages.checkpoints.value_cache import ValueCache, fill_held
from .._messages.items import namespaces_page, page_of
from .._messages.leases import HeldLeases
from .._transport import methods
from .._transport.policy import with_request_id
from .._transport.resume import AdoptionStream, OfferStream, ReplayStream, WatchStream
from .._transport.settings.options import Options
from .._transport.warnings import WARNINGS
from ..errors import LeaseLost, NotFound, PreconditionFailed, ServerError
from ..v1 import checkpoint_service_pb2 as checkpoints
from ..v1 import effect_service_pb2 as effects
from ..v1 import handoff_service_pb2 as handoffs
from ..v1 import history_service_pb2 as history
from ..v1 import search_service_pb2 as search
from ..v1 import store_service_pb2 as store
from ..v1 import thread_service_pb2 as threads
from ..v1.checkpoint_pb2 import SOURCE_ANY, VIEW_FULL, Checkpoint, CheckpointRef, Source, View
from .transport import SyncTransport


class SyncCalls(SyncTransport):
    """Calls that need more than one request and one answer. `unary` makes all other calls.

    Args:
        options: Target, timeouts, and most bytes of values to keep.
        values: Values that loads need not send again. `None` creates a cache for these calls alone.
        leases: Leases under which these calls change threads. `None`: the lease in the environment.

    Attributes:
        leases: Leases under which these calls change threads.

    Raises:
        InvalidRequest: The environment variable of a lease is malformed.
    """

    def __init__(
        self,
        options: Options,
        values: ValueCache | None = None,
        leases: HeldLeases | None = None,
    ) -> None:
        super().__init__(options)
        self._values = ValueCache(options.value_cache_bytes) if values is None else values
        self.leases = HeldLeases.of_environment() if leases is None else leases

    def save_checkpoint(
        self, request: checkpoints.SaveCheckpointRequest
    ) -> checkpoints.SaveCheckpointResponse:
        """Save a checkpoint of any size."""
        self.leases.fill(request)
        try:
            answer = self._exchange(methods.SAVE_CHECKPOINT, request)
        except LeaseLost as error:
            self.leases.note(error)
            raise
        self._values.add_saved(request, answer.ref.checkpoint_id)
        WARNINGS.log(self.options.target, answer.warnings)
        return answer

    def save_writes(self, request: checkpoints.SaveWritesRequest) -> checkpoints.SaveWritesResponse:
        """Save pending writes of any size."""
        self.leases.fill(request)
        try:
            answer = self._exchange(methods.SAVE_WRITES, request)
        except LeaseLost as error:
            self.leases.note(error)
            raise
        self._values.add_written(request)
        WARNINGS.log(self.options.target, answer.warnings)
        return answer

    def get_checkpoint(
        self, ref: CheckpointRef, *, view: View = VIEW_FULL, source: Source = SOURCE_ANY
    ) -> Checkpoint | None:
        """Return a checkpoint of any size with all values inline, or `None` if it does not exist.

        The server leaves out values that are in the client's cache.
        """
        is_whole = view == VIEW_FULL and source == SOURCE_ANY
        held = self._values.held_for(ref.thread_id, ref.checkpoint_ns) if is_whole else {}
        get = checkpoints.GetCheckpointRequest(ref=ref, view=view, source=source, held_digests=held)
        load = checkpoints.LoadCheckpointRequest(
            ref=ref, view=view, source=source, held_digests=held
        )
        try:
            try:
                checkpoint = self._exchange(methods.GET_CHECKPOINT, get).checkpoint
            except PreconditionFailed as error:
                if error.reason != "CHECKPOINT_TOO_LARGE":
                    raise
                checkpoint = self._load(load)
        except NotFound as error:
            if error.reason != "CHECKPOINT_NOT_FOUND":
                raise
            return None
        if is_whole:
            fill_held(checkpoint, held)
            self._values.add_loaded(checkpoint, held)
        return checkpoint

    def list_checkpoints(
        self, request: checkpoints.ListCheckpointsRequest
    ) -> Generator[Checkpoint, None, None]:
        """Yield checkpoints with all values inline, greatest ID first."""
        assembler = CheckpointAssembler()
        with closing(self._stream(methods.LIST_CHECKPOINTS, request)) as frames:
            for frame in frames:
                complete = assembler.add(frame)
                if complete is not None:
                    yield complete
        assembler.end()

    def get_delta_history(
        self, request: checkpoints.GetDeltaHistoryRequest
    ) -> list[checkpoints.DeltaChannelHistory]:
        """Return what rebuilds each delta channel, in the order of the request."""
        assembler = DeltaHistoryAssembler()
        with closing(self._stream(methods.GET_DELTA_HISTORY, request)) as frames:
            for frame in frames:
                assembler.add(frame)
        return assembler.end()

    def rollback_thread(
        self, request: threads.RollbackThreadRequest
    ) -> threads.RollbackThreadResponse:
        """Append a checkpoint with the state of an earlier one."""
        self.leases.fill(request)
        return self.unary(methods.ROLLBACK_THREAD, request)

    def verify_thread(
        self, request: threads.VerifyThreadRequest
    ) -> Generator[threads.VerifyThreadResponse, None, None]:
        """Yield a verdict for each checkpoint, then the total."""
        return self._stream(methods.VERIFY_THREAD, request)

    def replay_thread(
        self, request: history.ReplayThreadRequest
    ) -> Generator[Checkpoint, None, None]:
        """Yield checkpoints with all values inline, smallest ID first; resume after breaks."""
        return self._resume(methods.REPLAY_THREAD, ReplayStream(request))

    def watch_thread(
        self, request: history.WatchThreadRequest
    ) -> Generator[history.ThreadEvent, None, None]:
        """Yield the events of a thread without end, all values inline; resume after breaks."""
        return self._resume(methods.WATCH_THREAD, WatchStream(request))

    def search_checkpoints(
        self, request: search.SearchCheckpointsRequest
    ) -> search.SearchCheckpointsResponse:
        """Find checkpoints."""
        answer = self.unary(methods.SEARCH_CHECKPOINTS, request)
        WARNINGS.log(self.options.target, answer.warnings)
        return answer

    def put_items(self, request: store.PutItemsRequest) -> None:
        """Put and delete items."""
        answer = self.unary(methods.PUT_ITEMS, request)
        WARNINGS.log(self.options.target, answer.warnings)

    def get_items(self, request: store.GetItemsRequest) -> list[store.Item]:
        """Return the items that exist; request further answers until all items have arrived."""
        items: list[store.Item] = []
        while True:
            answer = self.unary(methods.GET_ITEMS, request)
            items += answer.items
            del request.keys[: max(1, answer.answered_keys)]
            if not request.keys:
                return items

    def search_items(self, request: store.SearchItemsRequest) -> list[store.SearchItemsResponse]:
        """Find items; request further answers until the limit is reached."""
        answers: list[store.SearchItemsResponse] = []
        count = 0
        while True:
            page = page_of(request, count)
            answer = self.unary(methods.SEARCH_ITEMS, page)
            WARNINGS.log(self.options.target, answer.warnings)
            answers.append(answer)
            count += len(answer.items)
            ended = not answer.items or not (answer.cut or len(answer.items) == page.limit)
            if ended or count >= request.limit:
                return answers

    def list_item_namespaces(
        self, request: store.ListItemNamespacesRequest
    ) -> list[store.ItemNamespace]:
        """Return namespaces that have items; request further answers until the limit is reached."""
        namespaces: list[store.ItemNamespace] = []
        while True:
            page = namespaces_page(request, len(namespaces))
            answer = self.unary(methods.LIST_ITEM_NAMESPACES, page)
            namespaces += answer.namespaces
            if len(answer.namespaces) < page.limit or len(namespaces) >= request.limit:
                return namespaces

    def begin_effect(self, request: effects.BeginEffectRequest) -> effects.BeginEffectResponse:
        """Begin an effect, under the lease of the thread if these calls have one."""
        self.leases.fill(request)
        return self.unary(methods.BEGIN_EFFECT, request)

    def adopt_handoff(
        self, request: handoffs.AdoptHandoffRequest
    ) -> Generator[handoffs.AdoptHandoffResponse, None, None]:
        """Yield the stages of an adoption. An empty `request_id` is generated."""
        return self._resume(methods.ADOPT_HANDOFF, AdoptionStream(with_request_id(request)))

    def watch_handoffs(
        self, request: handoffs.WatchHandoffsRequest
    ) -> Generator[handoffs.WatchHandoffsResponse, None, None]:
        """Yield frames of a watch of an inbox without end; watch again after breaks."""
        return self._resume(methods.WATCH_HANDOFFS, OfferStream(request))

    def _load(self, request: checkpoints.LoadCheckpointRequest) -> Checkpoint:
        assembler = CheckpointAssembler()
        checkpoint = None
        with closing(self._stream(methods.LOAD_CHECKPOINT, request)) as frames:
            for frame in frames:
                checkpoint = assembler.add(frame) or checkpoint
        assembler.end()
        if checkpoint is None:
            raise ServerError("the server's stream ended without a checkpoint", status="INTERNAL")
        return checkpoint
