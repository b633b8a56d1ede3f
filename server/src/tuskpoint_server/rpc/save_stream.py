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
from collections.abc import AsyncIterator, Coroutine, Iterable
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


async def assembled(
    requests: AsyncIterator[pb.SaveCheckpointsRequest],
    save_id: int,
    announced: Iterable[value_pb2.LargeValue],
) -> list[convert.Received]:
    """Take the chunks of the announced values of a save, and return the values.

    Chunks must come in order and without gaps; sizes are those announced, which were checked
    against the limits before. Empty values have no chunks.
    """
    received = []
    for index, value in enumerate(announced):
        pieces: list[bytes] = []
        offset, size, digest = 0, value.size_bytes, hashlib.sha256(value.type.encode() + b"\0")
        while offset < size:
            frame = await anext(requests, None)
            if frame is None:
                raise Refusal(Reason.STREAM_TRUNCATED, save_id=save_id)
            if not frame.HasField("chunk"):
                raise invalid_field("frame", f"save {save_id} waits for chunks; send them first")
            chunk = _chunk(frame, save_id)
            if chunk.value_index != index or chunk.offset != offset:
                raise Refusal(
                    Reason.CHUNK_OUT_OF_ORDER,
                    save_id=save_id,
                    expected_value=index,
                    expected_offset=offset,
                    value=chunk.value_index,
                    offset=chunk.offset,
                )
            if len(chunk.data) > size - offset:
                raise invalid_field(
                    "chunk.data",
                    f"value {index} of save {save_id} was announced with "
                    f"{size} bytes; {size - offset} of them are left",
                )
            pieces.append(chunk.data)
            digest.update(chunk.data)
            offset += len(chunk.data)
        received.append(convert.Received(Value(value.type, b"".join(pieces)), digest.digest()))
    return received


def _chunk(frame: pb.SaveCheckpointsRequest, save_id: int) -> value_pb2.ValueChunk:
    if frame.save_id != save_id:
        raise invalid_field("save_id", f"chunks must be of save {save_id}, begun last")
    if not 1 <= len(frame.chunk.data) <= LIMITS.max_chunk:
        raise invalid_field("chunk.data", f"must be 1 to {LIMITS.max_chunk} bytes")
    return frame.chunk


class SaveStream:
    """State of one stream."""

    def __init__(self, checkpoints: Checkpoints, call: Call) -> None:
        self._checkpoints = checkpoints
        self._call = call
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
        last, dropped = 0, False  # the save begun last, and whether its chunks are dropped
        async for frame in requests:
            kind = frame.WhichOneof("frame")
            if kind == "chunk":
                _chunk(frame, last)
                if not dropped:
                    raise invalid_field("chunk", f"save {last} waits for no chunks")
                continue
            if kind is None:
                raise invalid_field("frame", "one of checkpoint, writes or chunk must be set")
            if frame.save_id <= last:
                problem = f"must be above {last}, the number of the save before"
                raise invalid_field("save_id", problem)
            last, dropped = frame.save_id, False
            request = frame.checkpoint if kind == "checkpoint" else frame.writes
            try:
                check(request, streamed=True)
            except Refusal as refusal:
                dropped = True
                self._refuse(last, refusal)
            else:
                announced = convert.announced(request)
                self._submit(last, request, await assembled(requests, last, announced))
            while self._unanswered >= MAX_UNANSWERED or self._uncommitted >= MAX_UNCOMMITTED_BYTES:
                self._room.clear()
                await self._room.wait()

    def _refuse(self, save_id: int, refusal: Refusal) -> None:
        self._unanswered += 1
        self._outgoing.put_nowait((_error(save_id, refusal), True))

    def _submit(
        self,
        save_id: int,
        request: pb.SaveCheckpointRequest | pb.SaveWritesRequest,
        received: list[convert.Received],
    ) -> None:
        tenant, wanted = self._call.tenant, Durability(request.durability)
        size = request.ByteSize() + sum(len(value.data) for value, _ in received)
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
