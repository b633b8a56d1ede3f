"""One `Exchange` stream: calls of many callers in batches, answered in batches.

Messages are read while earlier calls run. Saves enter the journal in the order of their frames;
loads may overtake them. Answers that are ready while a message is being sent leave together in the
next message, without a timer. Memory is bounded: reading pauses while too many frames, or frames of
too many bytes, have no answer that was sent, and loads wait while too many bytes of answers do.

A client that goes away ends the stream; saves in the journal's queue are still committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial

from tuskpoint.v1 import checkpoint_service_pb2 as pb

from ...core.credentials import Presented
from ...core.errors import Reason, Refusal, invalid_field
from ...core.limits import KIB, MIB
from ...core.model import Durability, SaveOutcome
from ...core.state import RawCheckpoint
from ...features.call_memory import Holder
from ...features.checkpoints.checkpoints import Checkpoints
from ...features.checkpoints.incoming import IncomingCheckpoint
from ..messages import convert
from ..messages.chunks import announced_values
from ..messages.validation import check
from ..middleware.errors import incident, to_call_error
from ..middleware.naming import threads_named
from ..middleware.pipeline import Call, CallPipeline, parse_received
from ..middleware.policy import POLICY
from . import frames
from .answers import checkpoint_in_one, fill_saved
from .assembly import Assembly
from .frames import Frame
from .outgoing import MESSAGE_BYTES, AnswerSender

MAX_UNANSWERED = 256  # frames without an answer at which reading pauses
MAX_UNANSWERED_BYTES = 32 * MIB  # bytes of frames without an answer at which reading pauses
MAX_UNSENT_BYTES = 32 * MIB  # bytes of unsent answers at which no load starts
MAX_CERTIFYING = 16 * KIB  # saves that wait for certification at which reading pauses
LOADS_AT_ONCE = 32
MAX_ANSWER_BYTES = MESSAGE_BYTES - KIB  # bytes of a loaded checkpoint
FULL_SECONDS = 0.1  # seconds after which loads check again whether the memory has room
ENDING_SECONDS = 10.0  # time to read the last answers after the server ended the stream

Sessions = dict[tuple[Presented, bytes], "Exchange"]
"""The open streams, by the credential and the name of their session."""


class Exchange:
    """State of one stream."""

    def __init__(
        self, checkpoints: Checkpoints, sessions: Sessions, call: Call, pipeline: CallPipeline
    ) -> None:
        self._checkpoints = checkpoints
        self._sessions = sessions
        self._call = call
        self._telemetry = pipeline.telemetry
        self._trail = pipeline.trail
        self._cap_s = pipeline.max_call_seconds
        self._loop = asyncio.get_running_loop()
        self._session: tuple[Presented, bytes] | None = None
        self._attempt = 0
        self._awaited: set[asyncio.Future[SaveOutcome]] = set()  # commits of older streams
        self._frames: dict[int, Frame] = {}
        self._last_id = 0
        # save that waits for its chunks
        self._saving: tuple[Frame, frames.SaveRequest, Assembly] | None = None
        self._dropping = 0  # refused save whose chunks are dropped
        self._certifying = 0
        self._loads: deque[tuple[Frame, pb.GetCheckpointRequest]] = deque()  # waiting loads
        self._loading = 0
        self._next_loads: asyncio.Handle | None = None  # starts more loads
        self._unanswered = 0
        self._unanswered_bytes = 0
        self._has_room = asyncio.Event()
        self._outgoing = AnswerSender[Frame | None](call.write, self._sent)
        self._reading = True
        self._ending: Refusal | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Serve the stream to its end."""
        writer = asyncio.create_task(self._outgoing.run(self._is_answered))
        writer.add_done_callback(self._writer_ended)
        try:
            try:
                await self._read()
                await self._answer_all(writer)
            except Refusal as refusal:
                self._ending = refusal
            except asyncio.CancelledError:
                if self._call.ended is None or self._call.task is None:
                    raise
                self._call.task.uncancel()
                self._ending = self._call.ended
            if self._ending is not None:
                await self._wind_up(self._ending, writer)
                raise self._ending
        finally:
            self._close()
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    # --- reading ---------------------------------------------------------------------------

    async def _read(self) -> None:
        read, usage, is_first = self._call.context.read, self._call.usage, True
        while isinstance(raw := await read(), bytes):  # `grpc.aio.EOF` is the end
            received_at = self._loop.time()
            request = await parse_received(pb.ExchangeRequest, raw)
            usage.take(0, len(raw))
            if request.HasField("hello"):
                if not is_first:
                    raise invalid_field("hello", "belongs in the first message only")
                await self._open_session(request.hello)
            is_first = False
            share = len(raw) if len(request.frames) == 1 else 0
            for number, frame in enumerate(request.frames):
                self._take(number, frame, share, received_at)
                if self._is_full:
                    self._begin_loads()
                while self._is_full:
                    self._has_room.clear()
                    await self._has_room.wait()
            self._begin_loads()
            self._count()
            if self._call.memory.is_full:
                await self._call.memory.room(0)
            await usage.room()
        if self._saving is not None:
            raise Refusal(Reason.STREAM_TRUNCATED, save_id=self._saving[0].id)

    def _count(self) -> None:
        """Count the bytes of frames without an answer, and of answers that were not sent."""
        self._call.keep(self._unanswered_bytes + self._outgoing.size_bytes)

    @property
    def _is_full(self) -> bool:
        # A save that waits for chunks cannot be answered yet; its announcement bounds its bytes.
        return self._saving is None and (
            self._unanswered >= MAX_UNANSWERED
            or self._unanswered_bytes >= MAX_UNANSWERED_BYTES
            or self._certifying >= MAX_CERTIFYING
        )

    async def _open_session(self, hello: pb.Hello) -> None:
        """Replace the session's older stream, after the commits of that stream."""
        if not frames.MIN_SESSION_BYTES <= len(hello.session) <= frames.MAX_SESSION_BYTES:
            bounds = f"{frames.MIN_SESSION_BYTES} to {frames.MAX_SESSION_BYTES}"
            raise invalid_field("hello.session", f"must be {bounds} random bytes")
        session = (self._call.presented, hello.session)
        older = self._sessions.get(session)
        if older is not None and hello.attempt <= older._attempt:
            raise Refusal(Reason.SESSION_RESUMED, attempt=older._attempt)
        self._session, self._attempt = session, hello.attempt
        self._sessions[session] = self
        if older is not None:
            older._call.end(Refusal(Reason.SESSION_RESUMED, attempt=hello.attempt))
            self._awaited = older._awaited | older._commits()
            if self._awaited:
                await asyncio.wait(self._awaited)
                self._awaited = set()

    def _commits(self) -> set[asyncio.Future[SaveOutcome]]:
        """Return the commits that have not finished."""
        saves = (
            frame for frame in self._frames.values() if frame.kind != "get" and not frame.journaled
        )
        return {save.commit for save in saves if save.commit is not None}

    def _take(self, number: int, message: pb.Frame, size: int, received_at: float) -> None:
        """Start the call in a frame; `size` is the frame's bytes, or 0 if they must be counted."""
        kind = message.WhichOneof("call")
        if kind == "chunk":
            self._take_chunk(number, message)
            return
        if kind is None:
            problem = "one of save, writes, get or chunk must be set"
            raise invalid_field(f"frames[{number}].call", problem)
        if self._saving is not None:
            problem = f"save {self._saving[0].id} waits for chunks; send them first"
            raise invalid_field(f"frames[{number}].call", problem)
        if message.id <= self._last_id:
            problem = f"must be above {self._last_id}, the one before"
            raise invalid_field(f"frames[{number}].id", problem)
        self._last_id, self._dropping = message.id, 0
        allowed_s = self._cap_s
        if message.HasField("timeout"):
            allowed_s = min(allowed_s, message.timeout.ToNanoseconds() / 1e9)
        self._call.usage.take(1, 0)
        size = size or message.ByteSize()
        measured = self._telemetry.begin_frame(frames.METHODS[kind], message.traceparent)
        frame = Frame(message.id, kind, size, received_at + allowed_s, measured)
        if self._trail is not None and measured.method in self._trail.records:
            frame.named = threads_named(getattr(message, kind))
        self._frames[frame.id] = frame
        self._unanswered += 1
        self._unanswered_bytes += size
        try:
            self._begin(frame, getattr(message, kind))
        except Exception as error:  # noqa: BLE001 - a defect ends its frame, not the stream
            self._dropping = frame.id
            self._refuse(frame, error)

    def _begin(self, frame: Frame, request: frames.SaveRequest | pb.GetCheckpointRequest) -> None:
        method = frame.measured.method
        for scope in POLICY[method] - self._call.scopes:
            raise Refusal(Reason.SCOPE_MISSING, scope=scope, method=method)
        if frame.ends_at <= self._loop.time():
            raise Refusal(Reason.DEADLINE_EXCEEDED)
        self._watch(frame.ends_at)
        if isinstance(request, pb.GetCheckpointRequest):
            check(request)
            self._loads.append((frame, request))
            return
        save = frames.take(request)
        if save is None:
            assembly = Assembly(frame.id, announced_values(request))
            if not assembly.is_complete:
                self._saving = (frame, request, assembly)
                return
            save = frames.take_with(request, assembly.received)
        self._save(frame, request, save)

    def _take_chunk(self, number: int, message: pb.Frame) -> None:
        if self._saving is None:
            if message.id != self._dropping:
                problem = f"no save {message.id} waits for chunks"
                raise invalid_field(f"frames[{number}].chunk", problem)
            return
        frame, request, assembly = self._saving
        if message.id != frame.id:
            problem = f"chunks must be of save {frame.id}, which waits for them"
            raise invalid_field(f"frames[{number}].id", problem)
        size = assembly.add(message.chunk)
        frame.size += size
        self._unanswered_bytes += size
        if assembly.is_complete:
            self._saving = None
            try:
                self._save(frame, request, frames.take_with(request, assembly.received))
            except Exception as error:  # noqa: BLE001 - a defect ends its frame, not the stream
                self._refuse(frame, error)

    def _save(self, frame: Frame, request: frames.SaveRequest, save: frames.IncomingSave) -> None:
        """Queue a save for the journal."""
        tenant, frame.wanted = self._call.tenant, Durability(request.durability)
        begin: Callable[[], asyncio.Future[SaveOutcome]]
        if isinstance(save, IncomingCheckpoint):
            begin = partial(self._checkpoints.save, tenant, save)
        else:
            begin = partial(self._checkpoints.save_writes, tenant, *save, frame.wanted)
        context = frame.measured.context()
        frame.work = frame.commit = commit = begin() if context is None else context.run(begin)
        commit.add_done_callback(partial(self._journaled, frame))

    def _journaled(self, frame: Frame, commit: asyncio.Future[SaveOutcome]) -> None:
        """Answer a committed or refused save, unless the save has an answer."""
        error = None if commit.cancelled() else commit.exception()
        if commit.cancelled() or frame.id not in self._frames:
            return
        if error is not None:
            self._refuse(frame, error)
            return
        saved, last = commit.result(), frame.wanted is Durability.JOURNALED
        self._answer_save(frame, saved, last=last)
        if last:
            return
        frame.journaled, frame.work = True, None
        if self._ending is not None:
            self._end_waiting(frame, self._ending)
            return
        self._certifying += 1
        frame.work = self._start(frame, self._certify(frame, saved))
        frame.work.add_done_callback(self._certified)

    async def _certify(self, frame: Frame, saved: SaveOutcome) -> None:
        try:
            catalog = await self._checkpoints.reach(self._call.tenant, saved, frame.wanted)
            self._answer_save(frame, saved, catalog, last=True)
        except Exception as error:  # noqa: BLE001 - a defect ends its frame, not the stream
            self._refuse(frame, error)

    def _certified(self, work: asyncio.Future[None]) -> None:
        self._certifying -= 1
        self._has_room.set()

    def _answer_save(
        self, frame: Frame, saved: SaveOutcome, catalog: str = "", *, last: bool
    ) -> None:
        """Answer a save, with `_answer`."""
        response = pb.ExchangeResponse()
        answer = response.answers.add(id=frame.id, last=last)
        if saved.latest:
            self._checkpoints.log_below_latest(self._call.tenant, saved)
        durability = frame.wanted if last else Durability.JOURNALED
        message = answer.saved if frame.kind == "save" else answer.written
        warns = self._checkpoints.warns(self._call.tenant)
        fill_saved(message, saved, durability, catalog, warns=warns)
        self._answer(frame, response, last=last)

    # --- loads -----------------------------------------------------------------------------

    def _begin_loads(self) -> None:
        """Start waiting loads, as far as memory for their answers is free.

        `load_inline` answers what it can on the event loop; each other load gets a task. Inline
        loads block the event loop, so other streams run before the next inline load.
        """
        if self._loads and self._next_loads is None:
            self._begin_some_loads()

    def _begin_some_loads(self) -> None:
        self._next_loads = None
        count = min(len(self._loads), LOADS_AT_ONCE - self._loading)
        if not count or self._outgoing.size_bytes >= MAX_UNSENT_BYTES:
            return
        if self._call.memory.is_full:
            self._next_loads = self._loop.call_later(FULL_SECONDS, self._begin_some_loads)
            return
        loads = [self._loads.popleft() for _ in range(count)]
        loads = [(frame, request) for frame, request in loads if frame.id in self._frames]
        queries = [convert.read_load_request(request) for _, request in loads]
        checkpoints = self._checkpoints.load_inline(self._call.tenant, queries)
        for (frame, request), checkpoint in zip(loads, checkpoints, strict=True):
            if checkpoint is not None:
                self._answer_stored(frame, checkpoint)
                continue
            self._loading += 1
            frame.work = self._start(frame, self._load(frame, request))
            frame.work.add_done_callback(self._loaded)
        if self._loads:
            self._next_loads = self._loop.call_soon(self._begin_some_loads)

    def _answer_stored(self, frame: Frame, checkpoint: RawCheckpoint) -> None:
        try:
            response = pb.ExchangeResponse()
            answer = response.answers.add(id=frame.id, last=True)
            convert.fill_stored(answer.got.checkpoint, checkpoint)
            self._answer(frame, response)
        except Exception as error:  # noqa: BLE001 - a defect ends its frame alone
            self._refuse(frame, error)

    async def _load(self, frame: Frame, request: pb.GetCheckpointRequest) -> None:
        holder = Holder(memory=self._call.memory)
        try:
            query = convert.read_load_request(request)
            checkpoint = await self._checkpoints.load_batched(self._call.tenant, *query)
            if checkpoint is not None:
                self._answer_stored(frame, checkpoint)
                return
            loaded = await checkpoint_in_one(
                self._checkpoints, self._call.tenant, request, holder, MAX_ANSWER_BYTES
            )
            response = pb.GetCheckpointResponse(checkpoint=loaded)
            answer = pb.Answer(id=frame.id, last=True, got=response)
            self._answer(frame, pb.ExchangeResponse(answers=[answer]))
        except Exception as error:  # noqa: BLE001 - a defect ends its frame, not the stream
            self._refuse(frame, error)
        finally:
            holder.close()

    def _loaded(self, work: asyncio.Future[None]) -> None:
        self._loading -= 1
        self._begin_loads()

    def _start(self, frame: Frame, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run work of a frame in a task, inside the frame's span."""
        return self._loop.create_task(work, context=frame.measured.context())

    # --- answers ---------------------------------------------------------------------------

    def _refuse(self, frame: Frame, error: BaseException) -> None:
        """Answer a frame with an error, unless the frame has an answer."""
        if frame.id not in self._frames:
            return
        refusal = error if isinstance(error, Refusal) else incident(error, frame.measured.method)
        answer = pb.Answer(id=frame.id, last=True, error=to_call_error(refusal))
        self._answer(frame, pb.ExchangeResponse(answers=[answer]), refusal=refusal)

    def _answer(
        self,
        frame: Frame,
        response: pb.ExchangeResponse,
        *,
        last: bool = True,
        refusal: Refusal | None = None,
    ) -> None:
        """Queue an answer for the next message, unless the frame has an answer."""
        if frame.id not in self._frames:
            return
        data = response.SerializeToString()
        if last:
            self._forget(frame, "OK" if refusal is None else refusal.status.name, refusal)
        self._outgoing.put(data, frame)

    def _forget(self, frame: Frame, code: str, refusal: Refusal | None = None) -> None:
        """Remove a frame that has its last answer, or gets no answer."""
        del self._frames[frame.id]
        denied = refusal is not None and refusal.reason is Reason.SCOPE_MISSING
        self._telemetry.end(frame.measured, code, "scope" if denied else "")
        if frame.named and self._trail is not None:
            self._trail.note(self._call.grant, frame.measured.method, frame.named, code)

    def _sent(self, frames: list[Frame | None]) -> None:
        """Release the bounds for answered frames."""
        for frame in frames:
            if frame is not None and frame.counts:
                frame.counts = False
                self._unanswered -= 1
                self._unanswered_bytes -= frame.size
        self._count()
        self._has_room.set()
        self._begin_loads()

    def _is_answered(self) -> bool:
        """Return whether all frames are read and have their last answer."""
        return not self._reading and not self._frames

    # --- deadlines -------------------------------------------------------------------------

    def _watch(self, ends_at: float) -> None:
        """Check the deadlines of frames at this time, or earlier."""
        if self._timer is not None:
            if self._timer.when() <= ends_at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(ends_at, self._end_late)

    def _end_late(self) -> None:
        """Refuse the frames whose deadline has passed."""
        self._timer, now = None, self._loop.time()
        late_frames = [frame for frame in self._frames.values() if frame.ends_at <= now]
        for frame in late_frames:
            if self._saving is not None and self._saving[0] is frame:
                self._saving, self._dropping = None, frame.id
            self._refuse(frame, Refusal(Reason.DEADLINE_EXCEEDED))
            if frame.work is not None:
                frame.work.cancel()
        if self._frames:
            self._watch(min(frame.ends_at for frame in self._frames.values()))

    # --- the end ---------------------------------------------------------------------------

    async def _answer_all(self, writer: asyncio.Task[None]) -> None:
        """Wait until all read frames are answered, and all answers are sent."""
        self._reading = False
        self._outgoing.wake()
        await asyncio.wait({writer})

    async def _wind_up(self, ending: Refusal, writer: asyncio.Task[None]) -> None:
        """Answer the saves that are queued for the journal; during a drain, all frames."""
        is_draining = ending.reason is Reason.DRAINING
        if is_draining:
            self._outgoing.put(frames.DRAINING, None)
        if self._saving is not None:
            frame, self._saving = self._saving[0], None
            self._forget(frame, ending.status.name)
        for frame in list(self._frames.values()):
            if frame.journaled or (frame.kind == "get" and not is_draining):
                self._end_waiting(frame, ending)
        with suppress(TimeoutError):
            async with asyncio.timeout(None if is_draining else ENDING_SECONDS):
                await self._answer_all(writer)

    def _end_waiting(self, frame: Frame, ending: Refusal) -> None:
        """End a load or a wait for certification, with an answer during a drain."""
        if ending.reason is Reason.DRAINING:
            self._refuse(frame, ending)
        else:
            self._forget(frame, ending.status.name)
            self._outgoing.wake()
        if frame.work is not None:
            frame.work.cancel()

    def _writer_ended(self, writer: asyncio.Task[None]) -> None:
        """End the stream of a client that accepts no more messages."""
        failed = not writer.cancelled() and writer.exception() is not None
        if failed and self._call.task is not None:
            self._call.task.cancel()

    def _close(self) -> None:
        """Release everything except the commits, which run to their end."""
        if self._timer is not None:
            self._timer.cancel()
        if self._session is not None and self._sessions.get(self._session) is self:
            del self._sessions[self._session]
        code = "CANCELLED" if self._ending is None else self._ending.status.name
        for frame in list(self._frames.values()):
            self._forget(frame, code)
            if frame.work is not None and (frame.journaled or frame.kind == "get"):
                frame.work.cancel()
