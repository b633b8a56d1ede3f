"""One `SaveCheckpoints` stream: many saves in flight, answered as they get durable.

Frames are read while earlier saves commit. Saves go to the journal in the order in which
their frames are complete; each is answered by a task of its own. Memory is bounded: one
save is put together at a time, and reading pauses while too many saves or bytes are on
their way to the journal or wait for a client that does not read its answers.

A client that goes away ends the stream; saves that were complete go on to the journal.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import errors_pb2, value_pb2

from ..domain.errors import Reason, Refusal, invalid_field
from ..domain.limits import LIMITS, MIB
from ..domain.model import Durability, Value
from ..service.checkpoints import Checkpoints, SaveOutcome
from . import convert
from .calls import Call
from .errors import incident, to_call_error
from .validation import check

MAX_UNANSWERED = 256  # saves that may wait for their last answer before reading pauses

MAX_UNCOMMITTED_BYTES = 64 * MIB
"""Bytes of saves that may wait for the journal before reading pauses."""


class Assembly:
    """Puts the announced values of one save together, into `received`.

    Chunks must come in order and without gaps; sizes are those announced, which were
    checked against the limits before. Of a save that was `refused` chunks are checked and dropped.
    """

    def __init__(
        self, save_id: int, announced: Sequence[value_pb2.LargeValue], *, refused: bool = False
    ) -> None:
        self.save_id = save_id
        self.refused = refused
        self.received: list[convert.Received] = []
        self._announced = announced
        self._begin()

    @property
    def complete(self) -> bool:
        return not self.refused and len(self.received) == len(self._announced)

    def add(self, chunk: value_pb2.ValueChunk) -> None:
        """Take the next chunk."""
        if not 1 <= len(chunk.data) <= LIMITS.max_chunk:
            raise invalid_field("chunk.data", f"must be 1 to {LIMITS.max_chunk} bytes")
        if self.refused:
            return
        if self.complete:
            raise invalid_field("chunk", f"save {self.save_id} waits for no chunks")
        index = len(self.received)
        if chunk.value_index != index or chunk.offset != self._offset:
            raise Refusal(
                Reason.CHUNK_OUT_OF_ORDER,
                save_id=self.save_id,
                expected_value=index,
                expected_offset=self._offset,
                value=chunk.value_index,
                offset=chunk.offset,
            )
        size = self._announced[index].size_bytes
        if len(chunk.data) > size - self._offset:
            raise invalid_field(
                "chunk.data",
                f"value {index} of save {self.save_id} was announced with "
                f"{size} bytes; {size - self._offset} of them are left",
            )
        self._pieces.append(chunk.data)
        self._hash.update(chunk.data)
        self._offset += len(chunk.data)
        if self._offset == size:
            self._finish()

    def _begin(self) -> None:
        """Begin the next value that has bytes; empty values have no chunks."""
        self._offset = 0
        self._pieces: list[bytes] = []
        if len(self.received) < len(self._announced):
            announced = self._announced[len(self.received)]
            self._hash = hashlib.sha256(announced.type.encode() + b"\0")
            if not announced.size_bytes:
                self._finish()

    def _finish(self) -> None:
        kind = self._announced[len(self.received)].type
        self.received.append(
            convert.Received(Value(kind, b"".join(self._pieces)), self._hash.digest())
        )
        self._begin()


class SaveStream:
    """State of one stream."""

    def __init__(self, checkpoints: Checkpoints, call: Call) -> None:
        self._checkpoints = checkpoints
        self._call = call
        self._request: pb.SaveCheckpointRequest | pb.SaveWritesRequest | None = None
        self._assembly = Assembly(0, ())  # of the last save, whose number it has
        # Answers, whether each is the last of its save, and `None` behind all of them.
        self._outgoing = asyncio.Queue[tuple[pb.SaveCheckpointsResponse, bool] | None]()
        self._running: set[asyncio.Task[None]] = set()  # the reader, and what answers a save
        self._certifying: set[asyncio.Task[Any] | None] = set()
        self._gone = False
        self._unanswered = 0
        self._uncommitted = 0
        self._room = asyncio.Event()

    async def answers(
        self, requests: AsyncIterator[pb.SaveCheckpointsRequest]
    ) -> AsyncIterator[pb.SaveCheckpointsResponse]:
        """Yield the answers to what the stream brings, until it ends or the server drains."""
        reader = self._start(self._read(requests))
        draining = asyncio.create_task(self._call.draining.wait())
        draining.add_done_callback(lambda _: reader.cancel())
        try:
            while (answer := await self._outgoing.get()) is not None:
                yield answer[0]
                if answer[1]:
                    self._unanswered -= 1
                    self._room.set()
            if reader.cancelled():
                raise Refusal(Reason.DRAINING)
            reader.result()
        finally:
            # Whoever waits for certification may stop; whoever waits for the journal goes on.
            self._gone = True
            waiting = [reader, draining, *(task for task in self._certifying if task is not None)]
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not self._running:
            self._outgoing.put_nowait(None)

    async def _read(self, requests: AsyncIterator[pb.SaveCheckpointsRequest]) -> None:
        async for frame in requests:
            if not frame.HasField("chunk"):
                self._begin(frame)
            elif frame.save_id == self._assembly.save_id:
                self._assembly.add(frame.chunk)
            else:
                raise invalid_field(
                    "save_id", f"chunks must be of save {self._assembly.save_id}, begun last"
                )
            if self._request is not None and self._assembly.complete:
                self._submit(self._request)
            while self._unanswered >= MAX_UNANSWERED or self._uncommitted >= MAX_UNCOMMITTED_BYTES:
                self._room.clear()
                await self._room.wait()
        if self._request is not None:
            raise Refusal(Reason.STREAM_TRUNCATED, save_id=self._assembly.save_id)

    def _begin(self, frame: pb.SaveCheckpointsRequest) -> None:
        kind, last = frame.WhichOneof("frame"), self._assembly.save_id
        if kind is None:
            raise invalid_field("frame", "one of checkpoint, writes or chunk must be set")
        if frame.save_id <= last:
            raise invalid_field("save_id", f"must be above {last}, the number of the save before")
        if self._request is not None:
            raise invalid_field("frame", f"save {last} waits for chunks; send them first")
        request = frame.checkpoint if kind == "checkpoint" else frame.writes
        try:
            check(request, streamed=True)
        except Refusal as refusal:
            self._refuse(frame.save_id, refusal)
        else:
            self._request = request
            self._assembly = Assembly(frame.save_id, convert.announced(request))

    def _refuse(self, save_id: int, refusal: Refusal) -> None:
        """Answer a save with an error, and drop the chunks that may still come for it."""
        self._request = None
        self._assembly = Assembly(save_id, (), refused=True)
        self._unanswered += 1
        self._outgoing.put_nowait((_error(save_id, refusal), True))

    def _submit(self, request: pb.SaveCheckpointRequest | pb.SaveWritesRequest) -> None:
        save_id, received = self._assembly.save_id, self._assembly.received
        size = request.ByteSize() + sum(len(value.data) for value, _ in received)
        self._request = None
        self._assembly = Assembly(save_id, ())
        tenant, wanted = self._call.tenant, Durability(request.durability)
        try:
            if isinstance(request, pb.SaveCheckpointRequest):
                kind, draft = "checkpoint", convert.checkpoint_draft(request, received)
                commit = self._checkpoints.save(tenant, draft)
            else:
                kind, key = "writes", convert.key(request.ref)
                writes = convert.write_drafts(request.writes, iter(received))
                # The order of the stream must not wait for a look at the checkpoint.
                commit = self._checkpoints.save_writes(tenant, key, writes, Durability.JOURNALED)
        except Refusal as refusal:
            self._refuse(save_id, refusal)
            return
        self._unanswered += 1
        self._uncommitted += size
        self._start(self._acknowledge(save_id, kind, commit, size, wanted))

    async def _acknowledge(
        self,
        save_id: int,
        kind: str,
        commit: Coroutine[Any, Any, SaveOutcome],
        size: int,
        wanted: Durability,
    ) -> None:
        """Answer a save once it is journaled, and again once it has the durability asked for."""
        task, answer = asyncio.current_task(), self._outgoing.put_nowait
        try:
            try:
                outcome = await commit
            finally:
                self._uncommitted -= size
                self._room.set()
            last = wanted <= outcome.durability
            answer((_saved(save_id, kind, outcome), last))
            if not last and not self._gone:
                self._certifying.add(task)
                outcome = await self._checkpoints.reach(self._call.tenant, outcome, wanted)
                answer((_saved(save_id, kind, outcome), True))
        except Refusal as refusal:
            answer((_error(save_id, refusal), True))
        except Exception as error:  # noqa: BLE001 - a defect ends its save, not the stream
            answer((_error(save_id, incident(error, self._call.method)), True))
        finally:
            self._certifying.discard(task)


def _error(save_id: int, refusal: Refusal) -> pb.SaveCheckpointsResponse:
    return pb.SaveCheckpointsResponse(save_id=save_id, error=to_call_error(refusal))


def _saved(save_id: int, kind: str, outcome: SaveOutcome) -> pb.SaveCheckpointsResponse:
    answer: dict[str, Any] = {kind: save_fields(kind, outcome)}
    return pb.SaveCheckpointsResponse(save_id=save_id, **answer)


def save_fields(kind: str, outcome: SaveOutcome) -> dict[str, Any]:
    """Return the fields of the answer to a save of a `checkpoint` or of `writes`."""
    saved = outcome.saved
    told: dict[str, Any] = {
        "durability": outcome.durability,
        "seq": saved.seq,
        "catalog_blob_id": outcome.catalog_blob_id,
    }
    if outcome.backlog_warning:
        waiting = "much is waiting for certification; saves are refused if it grows on"
        told["warnings"] = [
            errors_pb2.Warning(kind=errors_pb2.WARNING_KIND_BACKLOG, message=waiting)
        ]
    if kind == "writes":
        return {**told, "early": saved.early}
    return {**told, "ref": convert.ref(saved.key), "incarnation": saved.incarnation}
