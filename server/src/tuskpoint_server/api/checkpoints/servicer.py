"""`CheckpointService` on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import ClassVar

from tuskpoint.v1 import checkpoint_service_pb2 as saves_pb

from ...core.limits import LIMITS
from ...core.model import SaveOutcome, Source, View
from ...features.checkpoints.checkpoints import Checkpoints
from ...features.checkpoints.completing import content_bytes
from ...features.checkpoints.incoming import IncomingCheckpoint, IncomingWrites
from ..messages import convert
from ..messages.saves import take_checkpoint, take_writes
from ..messages.validation import Check, Checks
from ..middleware.pipeline import Call, CallPipeline, Fields, Frames, Take, mark_endless
from .answers import SavedT, checkpoint_in_one, fill_saved
from .exchange import Exchange, Sessions


def _list(checks: Checks, request: saves_pb.ListCheckpointsRequest) -> None:
    checks.at_most("filter_json", len(request.filter_json), LIMITS.max_metadata, " bytes")


def _delta_history(checks: Checks, request: saves_pb.GetDeltaHistoryRequest) -> None:
    checks.channels("channels", request.channels)


@dataclass(frozen=True, slots=True)
class CheckpointServicer:
    """`CheckpointService`: saves checkpoints and pending writes, and loads them exactly."""

    checks: ClassVar[Mapping[str, Check]] = {
        "ListCheckpointsRequest": _list,
        "GetDeltaHistoryRequest": _delta_history,
    }
    takes: ClassVar[Mapping[str, Take]] = {
        "SaveCheckpointRequest": take_checkpoint,
        "SaveWritesRequest": take_writes,
    }
    _checkpoints: Checkpoints
    _sessions: Sessions = field(default_factory=dict)

    async def SaveCheckpoint(
        self, checkpoint: IncomingCheckpoint, call: Call
    ) -> saves_pb.SaveCheckpointResponse:
        saved = await self._checkpoints.save(call.tenant, checkpoint)
        return await self._reached(saves_pb.SaveCheckpointResponse(), saved, call)

    @mark_endless
    async def Exchange(self, call: Call, pipeline: CallPipeline) -> None:
        await Exchange(self._checkpoints, self._sessions, call, pipeline).run()

    async def SaveWrites(self, save: IncomingWrites, call: Call) -> saves_pb.SaveWritesResponse:
        saved = await self._checkpoints.save_writes(call.tenant, *save, call.wanted)
        return await self._reached(saves_pb.SaveWritesResponse(), saved, call)

    async def _reached(self, answer: SavedT, saved: SaveOutcome, call: Call) -> SavedT:
        catalog = await self._checkpoints.reach(call.tenant, saved, call.wanted)
        warns = self._checkpoints.warns(call.tenant)
        if saved.latest:
            self._checkpoints.log_below_latest(call.tenant, saved)
        return fill_saved(answer, saved, call.wanted, catalog, warns=warns)

    async def SetLabel(self, request: saves_pb.SetLabelRequest, call: Call) -> Fields:
        key = convert.key(request.ref)
        saved = await self._checkpoints.set_label(call.tenant, key, request.label)
        await self._checkpoints.reach(call.tenant, saved, call.wanted)
        return {"ref": convert.ref(saved.key), "seq": saved.seq}

    async def GetCheckpoint(
        self, request: saves_pb.GetCheckpointRequest, call: Call
    ) -> Fields | saves_pb.GetCheckpointResponse:
        query = convert.read_load_request(request)
        (checkpoint,) = self._checkpoints.load_inline(call.tenant, [query])
        checkpoint = checkpoint or await self._checkpoints.load_batched(call.tenant, *query)
        if checkpoint is None:
            loaded = await checkpoint_in_one(self._checkpoints, call.tenant, request, call)
            return {"checkpoint": loaded}
        answer = saves_pb.GetCheckpointResponse()
        convert.fill_stored(answer.checkpoint, checkpoint)
        return answer

    async def LoadCheckpoint(self, request: saves_pb.LoadCheckpointRequest, call: Call) -> Frames:
        loaded = await self._checkpoints.load(
            call.tenant, *convert.read_load_request(request), call
        )
        for frame in convert.checkpoint_frames(loaded):
            yield frame

    async def ListCheckpoints(self, request: saves_pb.ListCheckpointsRequest, call: Call) -> Frames:
        query, view = convert.checkpoint_query(request), View(request.view)
        limit = request.limit if request.HasField("limit") else None
        source, list_checkpoints = Source(request.source), self._checkpoints.completer.listed
        listing = list_checkpoints(call.tenant, query, view, source, limit)
        if view.has_values:
            listing = call.one_by_one(listing, content_bytes)
        async with aclosing(listing) as checkpoints:
            async for loaded in checkpoints:
                for frame in convert.checkpoint_frames(loaded):
                    yield frame

    async def GetDeltaHistory(self, request: saves_pb.GetDeltaHistoryRequest, call: Call) -> Frames:
        key = convert.key(request.ref)
        histories = await self._checkpoints.delta_history(call.tenant, key, request.channels, call)
        for history in histories:
            for frame in convert.history_frames(history):
                yield frame
