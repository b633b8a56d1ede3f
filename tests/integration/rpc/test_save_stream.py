"""`SaveCheckpoints`: pipelined saves, an answer for each durability, a strict protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.kit.messages import (
    FIRST,
    SECOND,
    Told,
    channel,
    chunks,
    collect,
    frames,
    ref,
    save_request,
    told,
    write,
)
from tuskpoint.v1 import checkpoint_pb2, errors_pb2, value_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint_server.rpc import save_stream
from tuskpoint_server.rpc.server import Server

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

JOURNALED = checkpoint_pb2.DURABILITY_JOURNALED
CERTIFIED = checkpoint_pb2.DURABILITY_CERTIFIED
MIB = 1024 * 1024


def large(size: int) -> value_pb2.LargeValue:
    return value_pb2.LargeValue(type="bytes", size_bytes=size)


def save(save_id: int, checkpoint_id: str = FIRST, **fields: Any) -> pb.SaveCheckpointsRequest:
    return pb.SaveCheckpointsRequest(
        save_id=save_id, checkpoint=save_request(checkpoint_id, **fields)
    )


async def run(
    checkpoints: CheckpointServiceAsyncStub, requests: Iterable[pb.SaveCheckpointsRequest]
) -> tuple[list[pb.SaveCheckpointsResponse], Told | None]:
    """Send frames; return the answers and what the stream ended with, if it was refused."""
    answers = []
    try:
        async for answer in checkpoints.SaveCheckpoints(iter(requests)):
            answers.append(answer)  # noqa: PERF401 - those before an error count too
    except grpc.aio.AioRpcError as error:
        return answers, told(error)
    return answers, None


async def stored(checkpoints: CheckpointServiceAsyncStub) -> list[str]:
    listed = await collect(checkpoints.ListCheckpoints(pb.ListCheckpointsRequest()))
    return [each.ref.checkpoint_id for each in listed]


async def test_saves_are_applied_in_the_order_of_the_stream(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    requests = [save(number, "", expected_head=None) for number in range(1, 301)]
    answers, ended = await run(checkpoints, requests)
    assert ended is None
    assert sorted(each.save_id for each in answers) == list(range(1, 301))
    seqs = {each.save_id: each.checkpoint.seq for each in answers}
    assert [seqs[number] for number in range(1, 301)] == list(range(1, 301))


async def test_each_durability_is_answered(checkpoints: CheckpointServiceAsyncStub) -> None:
    answers, _ = await run(
        checkpoints,
        [
            save(1, FIRST),
            save(2, SECOND, durability=CERTIFIED),
            pb.SaveCheckpointsRequest(
                save_id=3,
                writes=pb.SaveWritesRequest(
                    ref=ref(SECOND), writes=[write()], durability=CERTIFIED
                ),
            ),
        ],
    )
    reached = [
        (each.save_id, getattr(each, each.WhichOneof("result") or "").durability)
        for each in answers
    ]
    assert [number for number, _ in reached].count(1) == 1
    for number in (2, 3):
        assert [each for each in reached if each[0] == number] == [
            (number, JOURNALED),
            (number, CERTIFIED),
        ]
    certified = [each for each in answers if each.checkpoint.durability == CERTIFIED]
    assert certified[0].checkpoint.catalog_blob_id


async def test_an_answer_comes_before_the_stream_ends(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    stream = checkpoints.SaveCheckpoints()
    for number in range(1, 4):
        await stream.write(save(number, f"{number}"))
        answer = await stream.read()
        assert isinstance(answer, pb.SaveCheckpointsResponse)
        assert answer.save_id == number
    await stream.done_writing()
    assert await stream.read() == grpc.aio.EOF


async def test_a_refused_save_does_not_end_the_stream(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    with_chunks = save(3, SECOND, channels=[channel("a", large=large(8)), channel("a")])
    answers, ended = await run(
        checkpoints,
        [
            save(1, FIRST, thread_id=""),
            save(2, FIRST, channels=[channel("x", digest=bytes(32))]),
            with_chunks,
            *reversed(chunks(3, [b"12345678"], 4)),  # dropped unseen
            save(4, SECOND, channels=[channel("a", large=large(4), digest=b"1" * 32)]),
            *chunks(4, [b"1234"]),
            save(5, SECOND, metadata=b"[]"),
            save(6, SECOND, expected_head="x"),
            save(7, FIRST),
        ],
    )
    assert ended is None
    reasons = {each.save_id: each.error.reason for each in answers if each.HasField("error")}
    assert reasons == {
        1: errors_pb2.ERROR_REASON_INVALID_FIELD,
        2: errors_pb2.ERROR_REASON_VALUES_MISSING,
        3: errors_pb2.ERROR_REASON_INVALID_FIELD,
        4: errors_pb2.ERROR_REASON_DIGEST_MISMATCH,
        5: errors_pb2.ERROR_REASON_METADATA_NOT_JSON,
        6: errors_pb2.ERROR_REASON_HEAD_MOVED,
    }
    missing = next(each.error for each in answers if each.save_id == 2)
    assert missing.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
    assert [each.field for each in missing.field_violations] == ["x"]
    assert await stored(checkpoints) == [FIRST]


async def test_a_value_above_the_limit_is_refused_before_its_bytes_come(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    too_large = save(1, channels=[channel("a", large=large(128 * MIB + 1))])
    too_many = save(2, channels=[channel(str(n), large=large(128 * MIB)) for n in range(3)])
    answers, ended = await run(checkpoints, [too_large, too_many, save(3)])
    assert ended is None
    assert [dict(each.error.metadata).get("limit") for each in answers] == [
        "max_value_bytes",
        "max_checkpoint_bytes",
        None,
    ]


TWO = [channel("a", large=large(4)), channel("b", large=large(4))]


@pytest.mark.parametrize(
    ("requests", "reason", "field"),
    [
        ([save(2), save(0)], "INVALID_FIELD", "save_id"),
        ([save(2), save(2)], "INVALID_FIELD", "save_id"),
        ([save(2), save(1)], "INVALID_FIELD", "save_id"),
        ([save(2), pb.SaveCheckpointsRequest(save_id=3)], "INVALID_FIELD", "frame"),
        ([save(2), *chunks(2, [b"x"])], "INVALID_FIELD", "chunk"),
        (
            [save(2, channels=[channel("a", large=large(1))]), *chunks(2, [b"x", b"y"])],
            "INVALID_FIELD",
            "chunk",
        ),
        ([save(2), *chunks(1, [b"x"])], "INVALID_FIELD", "save_id"),
        ([save(2), save(3, SECOND, channels=TWO), save(4)], "INVALID_FIELD", "frame"),
        ([save(2), save(3, SECOND, channels=TWO)], "STREAM_TRUNCATED", None),
        (
            [save(2), save(3, SECOND, channels=TWO), *chunks(3, [b"1234", b"123"])],
            "STREAM_TRUNCATED",
            None,
        ),
        (
            [save(2), save(3, SECOND, channels=TWO), chunks(3, [b"", b"1234"])[0]],
            "CHUNK_OUT_OF_ORDER",
            None,
        ),
        (
            [save(2), save(3, SECOND, channels=TWO), chunks(3, [b"1234"], 2)[1]],
            "CHUNK_OUT_OF_ORDER",
            None,
        ),
        (
            [save(2), save(3, SECOND, channels=TWO), *chunks(3, [b"12345"])],
            "INVALID_FIELD",
            "chunk.data",
        ),
        (
            [
                save(2),
                save(3, SECOND, channels=TWO),
                pb.SaveCheckpointsRequest(save_id=3, chunk=value_pb2.ValueChunk()),
            ],
            "INVALID_FIELD",
            "chunk.data",
        ),
        (
            [
                save(2),
                save(3, SECOND, channels=[channel("a", large=large(2 * MIB))]),
                *chunks(3, [bytes(MIB + 1)], MIB + 1),
            ],
            "INVALID_FIELD",
            "chunk.data",
        ),
    ],
)
async def test_a_stream_that_breaks_the_protocol_ends(
    checkpoints: CheckpointServiceAsyncStub,
    requests: Sequence[pb.SaveCheckpointsRequest],
    reason: str,
    field: str | None,
) -> None:
    answers, ended = await run(checkpoints, requests)
    assert ended is not None
    assert (ended.code, ended.reason) == (grpc.StatusCode.INVALID_ARGUMENT, reason)
    if field:
        assert ended.fields == (field,)
    assert [each.save_id for each in answers] == [2], "what was complete is answered"
    assert await stored(checkpoints) == [FIRST], "what was not is not stored"


async def test_more_saves_than_may_be_unanswered_go_through(
    checkpoints: CheckpointServiceAsyncStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(save_stream, "MAX_UNANSWERED", 2)
    monkeypatch.setattr(save_stream, "MAX_UNCOMMITTED_BYTES", 1)
    requests = [
        frame
        for number in range(1, 41)
        for frame in frames(
            number, save_request("", [channel("a", large=large(3))]), [b"%03d" % number]
        )
    ]
    answers, ended = await run(checkpoints, requests)
    assert ended is None
    assert len(answers) == 40


async def test_draining_ends_a_stream_after_its_answers(
    server: Server, checkpoints: CheckpointServiceAsyncStub
) -> None:
    stream = checkpoints.SaveCheckpoints()
    await stream.write(save(1))
    await stream.read()
    await stream.write(save(2, SECOND, channels=TWO))
    draining = asyncio.create_task(server.around.drain(60))
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await stream.read()
    answer = told(ended.value)
    assert (answer.code, answer.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    assert "RetryInfo" in answer.kinds
    assert await draining
