"""One `SaveCheckpoints` stream: many saves in flight, answered as they get durable.

Frames are read while earlier saves commit. Saves go to the journal in the order in which
their frames are complete; each is answered by a task of its own. Memory is bounded: one
save is put together at a time, and reading pauses while too many saves or bytes are on
their way to the journal or wait for a client that does not read its answers.

A client that goes away ends the stream; saves that were complete go on to the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from google.protobuf.message import Message

from tuskpoint.v1 import checkpoint_service_pb2 as pb

from ..domain.errors import Reason, Refusal, invalid_field
from ..domain.limits import MIB
from ..domain.model import Durability
from ..service.checkpoints import Checkpoints, SaveOutcome
from . import convert, validation
from .answers import save_response, writes_response
from .calls import Call
from .chunks import Assembly
from .errors import incident, to_call_error

MAX_UNANSWERED = 256
"""Saves that may wait for their last answer before reading pauses."""

MAX_UNCOMMITTED_BYTES = 64 * MIB
"""Bytes of saves that may wait for the journal before reading pauses."""


class SaveStream:
    """State of one stream."""

    def __init__(self, checkpoints: Checkpoints, call: Call) -> None:
        self._checkpoints = checkpoints
        self._call = call
        self._last_id = 0
        self._request: pb.SaveCheckpointRequest | pb.SaveWritesRequest | None = None
        self._assembly = Assembly(0, ())
        self._outgoing: asyncio.Queue[tuple[pb.SaveCheckpointsResponse, bool] | None] = (
            asyncio.Queue()
        )
        self._acknowledging: set[asyncio.Task[None]] = set()
        self._certifying: set[asyncio.Task[Any]] = set()
        self._gone = False
        self._unanswered = 0
        self._uncommitted = 0
        self._room = asyncio.Event()

    async def answers(
        self, requests: AsyncIterator[pb.SaveCheckpointsRequest]
    ) -> AsyncIterator[pb.SaveCheckpointsResponse]:
        """Yield the answers to what the stream brings.

        Raises:
            Refusal: `CHUNK_OUT_OF_ORDER`, `STREAM_TRUNCATED`, `INVALID_FIELD` if the stream
                breaks the protocol, `DRAINING`; after the answers to complete saves.
        """
        reader = asyncio.create_task(self._read_to_end(requests))
        try:
            while (answer := await self._outgoing.get()) is not None:
                yield answer[0]
                if answer[1]:
                    self._unanswered -= 1
                    self._room.set()
            await reader
        finally:
            # Whoever waits for certification may stop; whoever waits for the journal goes on.
            self._gone = True
            waiting = [reader, *self._certifying]
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    # --- reading -----------------------------------------------------------------------

    async def _read_to_end(self, requests: AsyncIterator[pb.SaveCheckpointsRequest]) -> None:
        """Read until the stream ends or the server drains, then let all answers go out."""
        reading = asyncio.create_task(self._read(requests))
        draining = asyncio.create_task(self._call.draining.wait())
        try:
            await asyncio.wait({reading, draining}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                await asyncio.wait({reading})
            while self._acknowledging:
                await asyncio.wait(self._acknowledging)
            self._outgoing.put_nowait(None)
            if reading.cancelled():
                raise Refusal(Reason.DRAINING)
            reading.result()
        finally:
            draining.cancel()
            reading.cancel()
            await asyncio.gather(reading, draining, return_exceptions=True)

    async def _read(self, requests: AsyncIterator[pb.SaveCheckpointsRequest]) -> None:
        async for frame in requests:
            if frame.HasField("chunk"):
                self._continue(frame)
            else:
                self._begin(frame)
            while self._unanswered >= MAX_UNANSWERED or self._uncommitted >= MAX_UNCOMMITTED_BYTES:
                self._room.clear()
                await self._room.wait()
        if self._unfinished:
            raise Refusal(Reason.STREAM_TRUNCATED, save_id=self._assembly.save_id)

    @property
    def _unfinished(self) -> bool:
        return not self._assembly.complete and not self._assembly.refused

    def _begin(self, frame: pb.SaveCheckpointsRequest) -> None:
        kind = frame.WhichOneof("frame")
        if kind is None:
            raise invalid_field("frame", "one of checkpoint, writes or chunk must be set")
        if frame.save_id <= self._last_id:
            raise invalid_field(
                "save_id", f"must be above {self._last_id}, the number of the save before"
            )
        if self._unfinished:
            raise invalid_field(
                "frame", f"save {self._assembly.save_id} waits for chunks; send them first"
            )
        self._last_id = frame.save_id
        try:
            if kind == "checkpoint":
                validation.check(frame.checkpoint, streamed=True)
                self._request = frame.checkpoint
            else:
                validation.check(frame.writes, streamed=True)
                self._request = frame.writes
        except Refusal as refusal:
            self._refuse(frame.save_id, refusal)
            return
        self._assembly = Assembly(frame.save_id, convert.announced(self._request))
        self._submit_if_complete()

    def _continue(self, frame: pb.SaveCheckpointsRequest) -> None:
        if frame.save_id != self._assembly.save_id:
            raise invalid_field(
                "save_id", f"chunks must be of save {self._assembly.save_id}, begun last"
            )
        self._assembly.add(frame.chunk)
        self._submit_if_complete()

    def _refuse(self, save_id: int, refusal: Refusal) -> None:
        """Answer a save with an error, and drop the chunks that may still come for it."""
        self._request = None
        self._assembly = Assembly(save_id, (), refused=True)
        self._unanswered += 1
        self._answer(_error(save_id, refusal), last=True)

    # --- committing --------------------------------------------------------------------

    def _submit_if_complete(self) -> None:
        request = self._request
        if request is None or not self._assembly.complete:
            return
        save_id, received = self._assembly.save_id, self._assembly.received()
        size = request.ByteSize() + sum(len(each.value.data) for each in received)
        self._request = None
        self._assembly = Assembly(save_id, ())
        wanted = convert.durability(request.durability)
        commit: Coroutine[Any, Any, SaveOutcome]
        try:
            if isinstance(request, pb.SaveCheckpointRequest):
                draft = convert.checkpoint_draft(request, received)
                commit = self._checkpoints.save(self._call.tenant, draft)
                respond: Callable[[SaveOutcome], Message] = save_response
            else:
                writes = convert.write_drafts(request.writes, iter(received))
                # The order of the stream must not wait for a look at the checkpoint.
                commit = self._checkpoints.save_writes(
                    self._call.tenant, convert.key(request.ref), writes, Durability.JOURNALED
                )
                respond = writes_response
        except Refusal as refusal:
            self._refuse(save_id, refusal)
            return
        self._unanswered += 1
        self._uncommitted += size
        task = asyncio.create_task(self._acknowledge(save_id, commit, size, wanted, respond))
        self._acknowledging.add(task)
        task.add_done_callback(self._acknowledging.discard)

    async def _acknowledge(
        self,
        save_id: int,
        commit: Coroutine[Any, Any, SaveOutcome],
        size: int,
        wanted: Durability,
        respond: Callable[[SaveOutcome], Message],
    ) -> None:
        """Wait for a save and answer each durability that it reaches."""
        try:
            try:
                outcome = await commit
            finally:
                self._uncommitted -= size
                self._room.set()
            last = wanted <= outcome.durability
            self._answer(_response(save_id, respond(outcome)), last=last)
            if not last and not self._gone:
                outcome = await self._reach(outcome, wanted)
                self._answer(_response(save_id, respond(outcome)), last=True)
        except Refusal as refusal:
            self._answer(_error(save_id, refusal), last=True)
        except Exception as error:  # noqa: BLE001 - a defect ends its save, not the stream
            self._answer(_error(save_id, incident(error, self._call.method)), last=True)

    async def _reach(self, outcome: SaveOutcome, wanted: Durability) -> SaveOutcome:
        task = asyncio.create_task(self._checkpoints.reach(self._call.tenant, outcome, wanted))
        self._certifying.add(task)
        try:
            return await task
        finally:
            self._certifying.discard(task)

    def _answer(self, answer: pb.SaveCheckpointsResponse, *, last: bool) -> None:
        self._outgoing.put_nowait((answer, last))


def _response(save_id: int, result: Message) -> pb.SaveCheckpointsResponse:
    if isinstance(result, pb.SaveCheckpointResponse):
        return pb.SaveCheckpointsResponse(save_id=save_id, checkpoint=result)
    assert isinstance(result, pb.SaveWritesResponse)  # noqa: S101 - saves have two kinds of answer
    return pb.SaveCheckpointsResponse(save_id=save_id, writes=result)


def _error(save_id: int, refusal: Refusal) -> pb.SaveCheckpointsResponse:
    return pb.SaveCheckpointsResponse(save_id=save_id, error=to_call_error(refusal))
