"""A lane sends saves in order, repeats unanswered frames, and gives each call one answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.client.exchange.server import answer_to
from tuskpoint._transport.exchange import lanes
from tuskpoint._transport.exchange.frames import NumberedCall, messages, payload_of
from tuskpoint._transport.exchange.lanes import Call, Lane, Lanes
from tuskpoint._transport.retry import Attempts, Repeat, RetryPolicy
from tuskpoint.errors import TuskPointError, Unavailable
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_pb2 import (
    DURABILITY_CERTIFIED,
    DURABILITY_JOURNALED,
    Checkpoint,
    CheckpointRef,
)
from tuskpoint.v1.value_pb2 import PendingWrite, Value

BROKEN = Unavailable("broken", status="UNAVAILABLE")
DRAINING = Unavailable("draining", status="UNAVAILABLE", reason="DRAINING")
PATIENT = RetryPolicy(max_attempts=1_000_000)


def attempts(repeat: Repeat = Repeat.SAFE, policy: RetryPolicy = PATIENT) -> Attempts:
    return Attempts(policy, 0.0, math.inf, 60.0, repeat)


def save_call(
    thread_id: str = "t",
    checkpoint_id: str = "1",
    *,
    size: int = 0,
    durability: int = DURABILITY_JOURNALED,
    tried: Attempts | None = None,
) -> Call:
    request = pb.SaveCheckpointRequest(
        checkpoint=Checkpoint(
            ref=CheckpointRef(thread_id=thread_id, checkpoint_id=checkpoint_id),
            metadata_json=bytes(size),
        ),
        durability=durability,  # type: ignore[arg-type]
    )
    return Call(payload_of(request), request, tried or attempts())


def get_call(thread_id: str = "t") -> Call:
    request = pb.GetCheckpointRequest(ref=CheckpointRef(thread_id=thread_id))
    return Call(payload_of(request), request, attempts())


def sent_by(lane: Lane) -> list[pb.Frame]:
    return frames_of(lane.take(0.0))


def frames_of(calls: Sequence[NumberedCall]) -> list[pb.Frame]:
    return [
        frame
        for message in messages(calls, None)
        for frame in pb.ExchangeRequest.FromString(message).frames
    ]


def receive(lane: Lane, *answers: pb.Answer, draining: bool = False) -> list[Call]:
    finished: list[Call] = []
    lane.receive(pb.ExchangeResponse(answers=answers, draining=draining), finished)
    return finished


@pytest.fixture
def lane() -> Lane:
    """A lane whose first stream is open."""
    made = Lane()
    made.open()
    return made


def test_all_that_waits_goes_into_the_next_message_and_two_are_under_way(lane: Lane) -> None:
    for number in range(5):
        lane.push(save_call(checkpoint_id=str(number)))
    first = sent_by(lane)
    assert [frame.id for frame in first] == [1, 2, 3, 4, 5]
    lane.push(save_call())
    second = sent_by(lane)
    lane.push(save_call())
    assert not lane.is_ready
    assert lane.take(0.0) == []
    receive(lane, *(answer_to(frame) for frame in first[1:]))
    assert not lane.is_ready, "one save of each message has no answer"
    receive(lane, answer_to(second[0]))
    assert [frame.id for frame in sent_by(lane)] == [7]


def test_loads_go_though_two_messages_with_saves_are_under_way(lane: Lane) -> None:
    for _ in range(2):
        lane.push(save_call())
        sent_by(lane)
    lane.push(save_call())
    lane.push(get_call())
    assert [frame.WhichOneof("call") for frame in sent_by(lane)] == ["get"]


def test_a_journaled_save_that_waits_for_its_certificate_holds_nothing_up(lane: Lane) -> None:
    slow = [save_call(durability=DURABILITY_CERTIFIED) for _ in range(2)]
    for call in slow:
        lane.push(call)
        (frame,) = sent_by(lane)
        assert receive(lane, answer_to(frame, last=False)) == []
    lane.push(save_call())
    assert [frame.id for frame in sent_by(lane)] == [3]
    assert lane.calls[:2] == slow


def test_a_message_holds_four_mebibytes_and_a_stream_256_frames(lane: Lane) -> None:
    for _ in range(5):
        lane.push(save_call(size=1024 * 1024))
    assert len(sent_by(lane)) == 3
    crowd = Lane()
    crowd.open()
    for _ in range(300):
        crowd.push(get_call())
    assert len(sent_by(crowd)) == 256
    assert not crowd.is_ready


def test_unanswered_bytes_are_bounded_but_one_call_may_have_more(lane: Lane) -> None:
    for size_mib in (40, 20, 20):
        request = pb.SaveWritesRequest(
            ref=CheckpointRef(thread_id="t", checkpoint_id="1"),
            writes=[PendingWrite(task_id="t", value=Value(data=bytes(size_mib << 20)))],
        )
        lane.push(Call(payload_of(request), request, attempts()))
    for number in (1, 2, 3):
        assert [frame.id for frame in lane.take(0.0)] == [number]
        assert lane.take(0.0) == [], "another would be more than 32 MiB"
        answer = pb.SaveWritesResponse(durability=DURABILITY_JOURNALED)
        receive(lane, pb.Answer(id=number, last=True, written=answer))


def test_unanswered_calls_are_sent_again_first_and_in_order() -> None:
    lane = Lane()
    assert lane.open().attempt == 1
    for number in range(4):
        lane.push(save_call(checkpoint_id=str(number)))
    frames = sent_by(lane)
    receive(lane, answer_to(frames[1]))
    lane.push(save_call(checkpoint_id="new"))
    assert lane.end(BROKEN, 0.0) == []
    hello = lane.open()
    assert hello.attempt == 2
    again = sent_by(lane)
    assert [frame.id for frame in again] == [1, 2, 3, 4]
    assert [frame.save.checkpoint.ref.checkpoint_id for frame in again] == ["0", "2", "3", "new"]


def test_the_session_is_the_same_on_each_stream_and_another_in_each_lane() -> None:
    small, large = Lanes().small, Lanes().large
    session = small.open().session
    assert len(session) == 16
    assert small.open().session == session != large.open().session


@pytest.mark.parametrize("failure", [BROKEN, DRAINING])
def test_a_save_whose_id_was_minted_is_sent_again_with_it(lane: Lane, failure: Unavailable) -> None:
    call = save_call(
        checkpoint_id="", durability=DURABILITY_CERTIFIED, tried=attempts(Repeat.UNSAFE)
    )
    lane.push(call)
    [frame] = sent_by(lane)
    ref = CheckpointRef(thread_id="t", checkpoint_id="minted")
    receive(lane, pb.Answer(id=frame.id, saved=pb.SaveCheckpointResponse(ref=ref)))
    assert lane.end(failure, 0.0) == []
    lane.open()
    assert [frame.save.checkpoint.ref for frame in sent_by(lane)] == [ref]


def test_a_final_error_ends_only_the_calls_that_were_sent(lane: Lane) -> None:
    refused = TuskPointError("no", status="INVALID_ARGUMENT")
    sent, waiting = save_call(), save_call()
    lane.push(sent)
    sent_by(lane)
    lane.push(waiting)
    assert lane.end(refused, 0.0) == [sent]
    assert lane.calls == [waiting]
    assert lane.end(refused, 0.0) == [waiting], "nothing was sent: it refused the stream"


def test_callers_that_share_a_failure_get_errors_of_their_own(lane: Lane) -> None:
    calls = [save_call(), save_call()]
    for call in calls:
        lane.push(call)
    sent_by(lane)
    lane.end(TuskPointError("no", status="INTERNAL", reason="INTERNAL_ERROR"), 0.0)
    first, second = (call.error for call in calls)
    assert first is not second
    assert first is not None
    assert (str(first), first.status, first.reason) == ("no", "INTERNAL", "INTERNAL_ERROR")


def test_a_draining_server_is_sent_nothing_more(lane: Lane) -> None:
    lane.push(save_call())
    (frame,) = sent_by(lane)
    lane.push(save_call())
    assert len(receive(lane, answer_to(frame), draining=True)) == 1
    assert lane.take(0.0) == []
    lane.end(DRAINING, 0.0)
    lane.open()
    assert len(sent_by(lane)) == 1


def test_the_answer_to_a_call_that_was_left_is_dropped(lane: Lane) -> None:
    left, waiting = save_call(), save_call(checkpoint_id="2")
    lane.push(left)
    (frame,) = sent_by(lane)
    lane.push(waiting)
    lane.abandon(left)
    lane.abandon(waiting)
    assert receive(lane, answer_to(frame)) == []
    assert lane.calls == []
    assert lane.take(0.0) == []


def test_an_answer_that_nobody_asked_for_breaks_the_contract(lane: Lane) -> None:
    lane.push(save_call())
    (frame,) = sent_by(lane)
    finished: list[Call] = []
    response = pb.ExchangeResponse(answers=[answer_to(frame), pb.Answer(id=7, last=True)])
    with pytest.raises(TuskPointError, match="an answer to unknown frame"):
        lane.receive(response, finished)
    assert len(finished) == 1, "what came before it counts"


@pytest.mark.parametrize(
    "answer",
    [
        pb.Answer(id=1, last=True),
        pb.Answer(id=1, last=True, written=pb.SaveWritesResponse(durability=DURABILITY_CERTIFIED)),
        pb.Answer(
            id=1, last=True, saved=pb.SaveCheckpointResponse(durability=DURABILITY_JOURNALED)
        ),
    ],
    ids=["empty", "of another kind", "less than asked"],
)
def test_a_last_answer_of_another_kind_or_durability_is_an_error(
    lane: Lane, answer: pb.Answer
) -> None:
    call = save_call(durability=DURABILITY_CERTIFIED)
    lane.push(call)
    sent_by(lane)
    receive(lane, answer)
    assert isinstance(call.error, TuskPointError)
    assert call.error.status == "INTERNAL"


def test_a_save_waits_for_an_earlier_one_of_its_thread_on_the_other_stream() -> None:
    both = Lanes()
    both.small.open()
    both.large.open()
    large, small, later, other = (
        save_call(size=300_000),
        save_call(checkpoint_id="2"),
        save_call(checkpoint_id="3", size=300_000),
        save_call("other"),
    )
    for call in (large, small, later, other):
        both.add(call)
    (first,) = sent_by(both.large)
    assert [frame.save.checkpoint.ref.thread_id for frame in sent_by(both.small)] == ["other"]
    receive(both.large, answer_to(first))
    assert both.unpark()
    (second,) = sent_by(both.small)
    assert second.save.checkpoint.ref.checkpoint_id == "2"
    assert sent_by(both.large) == []
    receive(both.small, answer_to(second))
    assert both.unpark()
    assert [frame.save.checkpoint.ref.checkpoint_id for frame in sent_by(both.large)] == ["3"]


def test_chunks_follow_their_save_and_carry_its_number() -> None:
    value = Value(type="b", data=bytes(range(256)) * 20_000)
    request = pb.SaveWritesRequest(
        ref=CheckpointRef(thread_id="t", checkpoint_id="1"),
        writes=[PendingWrite(task_id="a", value=value)],
    )
    both = Lanes()
    both.large.open()
    both.add(Call(payload_of(request), request, attempts()))
    both.add(save_call("other", size=300_000))
    sent = [*messages(both.large.take(0.0), pb.Hello(session=b"s", attempt=1))]
    parsed = [pb.ExchangeRequest.FromString(message) for message in sent]
    assert max(len(message) for message in sent) <= 4 * 1024 * 1024 + 1024
    assert [message.HasField("hello") for message in parsed] == [True] + [False] * (len(sent) - 1)
    frames = [frame for message in parsed for frame in message.frames]
    assert [frame.WhichOneof("call") for frame in frames] == ["writes", *["chunk"] * 5]
    assert {frame.id for frame in frames} == {1}
    assert b"".join(frame.chunk.data for frame in frames[1:]) == value.data
    assert request.writes[0].value == value


class Exchanges(RuleBasedStateMachine):
    """Calls, answers, breaks and cancelled callers, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes()
        self.count = 0
        self.waiting: dict[int, Call] = {}
        self.left: set[int] = set()
        self.on_server: dict[Lane, list[pb.Frame]] = {self.lanes.small: [], self.lanes.large: []}
        self.applied: dict[str, list[int]] = {}

    @initialize()
    def connect(self) -> None:
        for lane in self.on_server:
            lane.open()

    @rule(thread=st.sampled_from("ab"), kind=st.sampled_from(["small", "large", "get"]))
    def call(self, thread: str, kind: str) -> None:
        self.count += 1
        if kind == "get":
            call = get_call(thread)
        else:
            size = lanes.LARGE_BYTES + 1 if kind == "large" else 0
            call = save_call(thread, f"{self.count:06}", size=size)
        self.waiting[self.count] = call
        self.lanes.add(call)

    @rule(large=st.booleans())
    def send(self, large: bool) -> None:
        lane = self.lanes.large if large else self.lanes.small
        self.on_server[lane].extend(sent_by(lane))

    @rule(large=st.booleans(), count=st.integers(1, 4), lost=st.booleans())
    def serve(self, large: bool, count: int, lost: bool) -> None:
        """Apply frames in order; answer them, or lose the answers to a break."""
        lane = self.lanes.large if large else self.lanes.small
        frames, self.on_server[lane] = self.on_server[lane][:count], self.on_server[lane][count:]
        for frame in frames:
            if frame.WhichOneof("call") == "save":
                ref = frame.save.checkpoint.ref
                self.applied.setdefault(ref.thread_id, []).append(int(ref.checkpoint_id))
        if lost:
            self.cut(lane, BROKEN)
            return
        self.finish(self.receive(lane, frames))

    def receive(self, lane: Lane, frames: Sequence[pb.Frame]) -> list[Call]:
        finished = receive(lane, *(answer_to(frame) for frame in frames))
        self.lanes.unpark()
        return finished

    def finish(self, calls: Sequence[Call]) -> None:
        for call in calls:
            assert call.error is None
            (number,) = (
                number for number, waiting_call in self.waiting.items() if waiting_call is call
            )
            del self.waiting[number]

    def cut(self, lane: Lane, failure: TuskPointError) -> None:
        self.on_server[lane] = []
        assert lane.end(failure, 0.0) == []
        self.lanes.unpark()
        lane.open()

    @rule(large=st.booleans(), failure=st.sampled_from([BROKEN, DRAINING]))
    def break_off(self, large: bool, failure: TuskPointError) -> None:
        self.cut(self.lanes.large if large else self.lanes.small, failure)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.waiting)))
        self.lanes.abandon(self.waiting.pop(number))
        self.lanes.unpark()
        self.left.add(number)

    @invariant()
    def saves_of_a_thread_first_take_effect_in_their_order(self) -> None:
        for applied in self.applied.values():
            kept = [number for number in applied if number not in self.left]
            first = list(dict.fromkeys(kept))
            assert first == sorted(first)

    def teardown(self) -> None:
        for _ in range(self.count + 1):
            for lane in self.on_server:
                while frames := sent_by(lane):
                    self.on_server[lane].extend(frames)
                frames, self.on_server[lane] = self.on_server[lane], []
                self.finish(self.receive(lane, frames))
        assert not self.waiting, "every call gets its answer"


TestExchanges = Exchanges.TestCase
TestExchanges.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
