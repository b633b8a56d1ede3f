"""Two checkpoints of one thread or of two threads can be compared."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.messages import FIRST, SECOND, channel, ref, refused, save_request, write
from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import thread_service_pb2 as tpb

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub

ADDED, REMOVED, CHANGED = (
    tpb.CHANGE_KIND_ADDED,
    tpb.CHANGE_KIND_REMOVED,
    tpb.CHANGE_KIND_CHANGED,
)


def holds(name: str, thing: Any) -> value_pb2.Channel:
    data = json.dumps(thing).encode()
    return channel(name, value=value_pb2.Value(type="json", data=data))


def between(
    before: checkpoint_pb2.CheckpointRef, after: checkpoint_pb2.CheckpointRef, most: int = 0
) -> tpb.DiffCheckpointsRequest:
    return tpb.DiffCheckpointsRequest(**{"from": before, "to": after, "max_changes": most})  # type: ignore[arg-type]


def changes_of(answer: tpb.DiffCheckpointsResponse) -> list[tuple[Any, ...]]:
    return [
        (
            change.kind,
            change.channel,
            change.path,
            change.from_json if change.HasField("from_json") else None,
            change.to_json if change.HasField("to_json") else None,
        )
        for change in answer.changes
    ]


async def test_steps_of_a_thread_are_compared(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    same = channel("same")
    await checkpoints.SaveCheckpoint(
        save_request(FIRST, [holds("messages", [{"text": "hi"}]), holds("old", 1), same])
    )
    await checkpoints.SaveCheckpoint(
        save_request(
            SECOND, [same, holds("new", None), holds("messages", [{"text": "ho"}, "more"])]
        )
    )
    expected = [
        (CHANGED, "messages", "/0/text", '"hi"', '"ho"'),
        (ADDED, "messages", "/1", None, '"more"'),
        (ADDED, "new", "", None, "null"),
        (REMOVED, "old", "", "1", None),
    ]
    # A missing ID names the latest checkpoint.
    for after in (ref(SECOND), ref()):
        answer = await threads.DiffCheckpoints(between(ref(FIRST), after))
        assert (changes_of(answer), answer.truncated) == (expected, False)
    cut = await threads.DiffCheckpoints(between(ref(FIRST), ref(SECOND), most=2))
    assert (changes_of(cut), cut.truncated) == (expected[:2], True)


async def test_checkpoints_of_two_threads_are_compared(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    for name, number in (("a", 1), ("b", 2)):
        request = save_request(FIRST, [holds("n", number), holds("same", [1])], thread_id=name)
        request.checkpoint.ref.checkpoint_ns = f"sub-{name}"
        request.durability = checkpoint_pb2.DURABILITY_CERTIFIED
        await checkpoints.SaveCheckpoint(request)
    answer = await threads.DiffCheckpoints(between(ref("", "a", "sub-a"), ref(FIRST, "b", "sub-b")))
    assert changes_of(answer) == [(CHANGED, "n", "", "1", "2")]


async def test_delta_channels_are_compared_by_their_writes(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    def request(checkpoint_id: str, held: value_pb2.Channel, **fields: Any) -> Any:
        made = save_request(checkpoint_id, [held], **fields)
        made.checkpoint.state.delta_channels.append("log")
        return made

    third = f"{SECOND[:-1]}3"
    without = channel("log", empty=value_pb2.Empty())
    await checkpoints.SaveCheckpoint(request(FIRST, holds("log", [1])))
    await checkpoints.SaveCheckpoint(request(SECOND, without, parent=FIRST))
    same = await threads.DiffCheckpoints(between(ref(FIRST), ref(SECOND)))
    assert changes_of(same) == []
    await checkpoints.SaveWrites(
        pb.SaveWritesRequest(ref=ref(SECOND), writes=[write(name="log"), write("two", "log")])
    )
    await checkpoints.SaveCheckpoint(request(third, without, parent=SECOND))
    answer = await threads.DiffCheckpoints(between(ref(FIRST), ref(third)))
    ((kind, name, path, before, after),) = changes_of(answer)
    assert (kind, name, path, before) == (CHANGED, "log", "", "[1]")
    assert json.loads(after)["$writes"] == 2


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (tpb.DiffCheckpointsRequest(), ("from.thread_id", "to.thread_id")),
        (between(ref("\0"), ref("x" * 200)), ("from.checkpoint_id", "to.checkpoint_id")),
    ],
)
async def test_a_comparison_names_two_checkpoints(
    threads: ThreadServiceAsyncStub, request_: tpb.DiffCheckpointsRequest, fields: tuple[str, ...]
) -> None:
    answer = await refused(threads.DiffCheckpoints(request_))
    assert (answer.reason, answer.fields) == ("INVALID_FIELD", fields)


async def test_both_checkpoints_must_exist(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    await checkpoints.SaveCheckpoint(save_request(FIRST))
    for before, after in ((ref(FIRST), ref(SECOND)), (ref(thread_id="other"), ref(FIRST))):
        answer = await refused(threads.DiffCheckpoints(between(before, after)))
        assert answer.reason == "CHECKPOINT_NOT_FOUND"


async def test_more_changes_than_the_most_are_not_an_error(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    await checkpoints.SaveCheckpoint(save_request(FIRST, [holds("c", [0] * 10_001)]))
    await checkpoints.SaveCheckpoint(save_request(SECOND, [holds("c", [1] * 10_001)]))
    for limit, count in ((0, 1000), (10_000, 10_000), (4_000_000_000, 10_000)):
        answer = await threads.DiffCheckpoints(between(ref(FIRST), ref(SECOND), limit))
        assert (len(answer.changes), answer.truncated) == (count, True)
