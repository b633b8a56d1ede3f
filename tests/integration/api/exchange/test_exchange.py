"""`Exchange` carries batches of saves, writes and loads on one stream, and answers each frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
from google.protobuf.duration_pb2 import Duration

from tests.integration.api.exchange.exchange_kit import (
    CERTIFIED,
    JOURNALED,
    get,
    large,
    opened,
    reason_of,
    run,
    save,
    stored,
    writes,
)
from tests.kit.messages import (
    FIRST,
    SECOND,
    channel,
    chunks,
    collect,
    incompressible,
    write,
)
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import value_pb2
from tuskpoint.v1.checkpoint_pb2 import VIEW_ENTRY

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

MIB = 1024 * 1024


async def test_frames_of_every_kind_are_answered_in_batches(
    grpc_channel: grpc.aio.Channel,
) -> None:
    async with opened(grpc_channel) as stream:
        await stream.send(save(1, channels=[channel("a", b"1")]), writes(2), save(5, SECOND))
        for number in (1, 2, 5):
            await stream.read_to(number)
        assert stream.messages < 3, "answers that are ready together leave together"
        await stream.send(get(7), get(8, "1f000000-0000-6000-8000-00000000000f"))
        got, missing = await stream.read_to(7), await stream.read_to(8)
    assert stream.last(1).saved.ref.checkpoint_id == FIRST
    assert stream.last(1).saved.durability == JOURNALED
    assert [stream.last(1).saved.seq, stream.last(2).written.seq, stream.last(5).saved.seq] == [
        1,
        2,
        3,
    ]
    checkpoint = got.got.checkpoint
    assert [each.value.data for each in checkpoint.state.channels] == [b"1"]
    assert [each.value.data for each in checkpoint.writes] == [b"written"]
    assert reason_of(missing) == "CHECKPOINT_NOT_FOUND"
    assert missing.error.code == grpc.StatusCode.NOT_FOUND.value[0]


async def test_loads_of_one_message_equal_single_loads(
    grpc_channel: grpc.aio.Channel, checkpoints: CheckpointServiceAsyncStub
) -> None:
    small = save(
        1,
        channels=[
            channel("plain", b"1"),
            channel("packed", b"again " * 1000),
            channel("empty", empty=value_pb2.Empty()),
            value_pb2.Channel(name="unversioned", value=value_pb2.Value(type="null")),
        ],
        writes=[write("b"), write("a", "__interrupt__"), write("a", "packed")],
    )
    small.save.checkpoint.label = "label"
    small.save.checkpoint.state.ts = "now"
    small.save.checkpoint.state.versions_seen["node"].channels["plain"].integer = 7
    of_any_size = save(2, SECOND, channels=[channel("large", incompressible(100_000))])
    await run(grpc_channel, [small, of_any_size])
    async with opened(grpc_channel) as stream:
        await stream.send(get(1), get(2, SECOND), get(3, "none"), get(4, view=VIEW_ENTRY), get(5))
        answers = [await stream.read_to(number) for number in range(1, 6)]
    assert reason_of(answers[2]) == "CHECKPOINT_NOT_FOUND"
    for answer in (answers[0], answers[1], answers[4]):
        loaded = answer.got.checkpoint
        [single] = await collect(
            checkpoints.LoadCheckpoint(pb.LoadCheckpointRequest(ref=loaded.ref))
        )
        assert loaded == single
        unary = await checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=loaded.ref))
        assert loaded == unary.checkpoint
    assert [len(answer.got.checkpoint.state.channels) for answer in answers] == [4, 1, 0, 0, 4]


async def test_saves_take_effect_in_the_order_of_their_frames(
    grpc_channel: grpc.aio.Channel,
) -> None:
    data = incompressible(200_000)
    frames = [
        save(number, "", channels=[channel("a", data)] if number % 7 == 0 else ())
        for number in range(1, 301)
    ]
    messages = [frames[start : start + 20] for start in range(0, 300, 20)]
    stream, ended = await run(grpc_channel, *messages)
    assert ended is None
    seqs = {each.id: each.saved.seq for each in stream.answers}
    assert [seqs[number] for number in range(1, 301)] == list(range(1, 301))


async def test_a_chain_of_fenced_saves_in_one_message_holds(
    grpc_channel: grpc.aio.Channel,
) -> None:
    names = [f"1f000000-0000-6000-8000-{number:012d}" for number in range(1, 40)]
    frames = [
        save(number, name, expected_head=names[number - 2] if number > 1 else "")
        for number, name in enumerate(names, 1)
    ]
    stream, _ = await run(grpc_channel, frames)
    assert all(each.HasField("saved") for each in stream.answers)


async def test_a_save_that_asks_for_certainty_is_answered_twice(
    grpc_channel: grpc.aio.Channel,
) -> None:
    stream, ended = await run(
        grpc_channel,
        [save(1), save(2, SECOND, durability=CERTIFIED), writes(3, SECOND, durability=CERTIFIED)],
    )
    assert ended is None
    saved = [(each.saved.durability, each.last) for each in stream.answers if each.id == 2]
    assert saved == [(JOURNALED, False), (CERTIFIED, True)]
    written = [(each.written.durability, each.last) for each in stream.answers if each.id == 3]
    assert written == [(JOURNALED, False), (CERTIFIED, True)]
    assert stream.last(2).saved.catalog_blob_id
    assert stream.last(1).last


async def test_writes_without_their_checkpoint_are_early_or_cannot_be_certified(
    grpc_channel: grpc.aio.Channel,
) -> None:
    stream, _ = await run(grpc_channel, [writes(1), writes(2, SECOND, durability=CERTIFIED)])
    assert stream.last(1).written.early
    assert reason_of(stream.last(2)) == "CHECKPOINT_MISSING"


async def test_values_of_any_size_follow_in_chunks(
    grpc_channel: grpc.aio.Channel, checkpoints: CheckpointServiceAsyncStub
) -> None:
    values = [incompressible(3 * MIB, "a"), b"", b"123"]
    announced = [channel(f"c{n}", large=large(len(each))) for n, each in enumerate(values)]
    messages = [[frame] for frame in chunks(2, values)]
    stream, ended = await run(
        grpc_channel, [save(1), save(2, SECOND, channels=announced), *messages[0]], *messages[1:]
    )
    assert ended is None
    assert [each.id for each in stream.answers] == [1, 2]
    [loaded] = await collect(
        checkpoints.LoadCheckpoint(pb.LoadCheckpointRequest(ref=stream.last(2).saved.ref))
    )
    assert [each.value.data for each in loaded.state.channels] == values


async def test_a_refused_frame_leaves_the_stream_and_the_others_alone(
    grpc_channel: grpc.aio.Channel, checkpoints: CheckpointServiceAsyncStub
) -> None:
    stream, ended = await run(
        grpc_channel,
        [
            save(1, FIRST, thread_id="", agent_id="x" * 300),
            save(2, channels=[channel("x", digest=bytes(32)), channel("y", digest=bytes(32))]),
            save(3, SECOND, channels=[channel("a", large=large(8)), channel("a")]),
            *reversed(chunks(3, [b"12345678"], 4)),  # dropped, in any order
            save(4, SECOND, channels=[channel("a", large=large(4), digest=b"1" * 32)]),
            *chunks(4, [b"1234"]),
            save(5, SECOND, metadata=b"[]"),
            save(6, SECOND, expected_head="x"),
            get(7, "1f000000-0000-6000-8000-00000000000f"),
            save(8, channels=[channel("a", large=large(128 * MIB + 1))]),
            save(9),
        ],
    )
    assert ended is None
    assert {each.id: reason_of(each) for each in stream.answers} == {
        1: "INVALID_FIELD",
        2: "VALUES_MISSING",
        3: "INVALID_FIELD",
        4: "DIGEST_MISMATCH",
        5: "METADATA_NOT_JSON",
        6: "HEAD_MOVED",
        7: "CHECKPOINT_NOT_FOUND",
        8: "LIMIT_EXCEEDED",
        9: "",
    }
    assert [each.field for each in stream.last(1).error.field_violations] == [
        "checkpoint.ref.thread_id",
        "agent_id",
    ]
    assert [each.field for each in stream.last(2).error.field_violations] == ["x", "y"]
    assert await stored(checkpoints) == [FIRST]


async def test_an_answer_that_no_message_holds_is_refused(
    grpc_channel: grpc.aio.Channel,
) -> None:
    halves = [incompressible(2 * MIB, name) for name in "ab"]
    announced = [channel(f"c{n}", large=large(2 * MIB)) for n in range(2)]
    fits = save(2, SECOND, channels=[channel("a", incompressible(MIB))])
    async with opened(grpc_channel) as stream:
        for frame in (save(1, channels=announced), *chunks(1, halves), fits):
            await stream.send(frame)
        await stream.read_to(2)
        await stream.send(get(3), *(get(number, SECOND) for number in range(4, 12)))
        for number in range(3, 12):
            await stream.read_to(number)
    assert reason_of(stream.last(3)) == "CHECKPOINT_TOO_LARGE"
    assert all(stream.last(number).HasField("got") for number in range(4, 12))


async def test_the_longest_names_of_writes_fit_an_answer(
    grpc_channel: grpc.aio.Channel, checkpoints: CheckpointServiceAsyncStub
) -> None:
    empty = value_pb2.Value(type="null")
    many = [write(value=empty, task_path=f"{number:02000}") for number in range(1460)]
    async with opened(grpc_channel) as stream:
        await stream.send(save(1), writes(2, writes=many))
        await stream.read_to(2)
        assert reason_of(stream.last(2)) == "", "a few more would pass the limit"
        await stream.send(get(3))
        await stream.read_to(3)
    assert len(stream.last(3).got.checkpoint.writes) == len(many)
    assert await checkpoints.GetCheckpoint(get(3).get) == stream.last(3).got


async def test_more_frames_than_may_be_unanswered_go_through(
    grpc_channel: grpc.aio.Channel,
) -> None:
    frames = [save(number, "", channels=[channel("a", b"x" * 20_000)]) for number in range(1, 1001)]
    stream, ended = await run(grpc_channel, frames[:300], frames[300:600], frames[600:])
    assert ended is None
    assert sorted(stream.numbers) == list(range(1, 1001))


async def test_a_frame_whose_time_is_up_stores_nothing(
    grpc_channel: grpc.aio.Channel, checkpoints: CheckpointServiceAsyncStub
) -> None:
    late = [save(1), writes(2, SECOND), get(3), save(4, channels=[channel("a", large=large(1))])]
    for frame in late:
        frame.timeout.CopyFrom(Duration())
    stream, ended = await run(grpc_channel, [*late, *chunks(4, [b"x"]), save(5, SECOND)])
    assert ended is None
    assert {each.id: reason_of(each) for each in stream.answers} == {
        **dict.fromkeys(range(1, 5), "DEADLINE_EXCEEDED"),
        5: "",
    }
    assert await stored(checkpoints) == [SECOND]
    assert not (await collect(checkpoints.ListCheckpoints(pb.ListCheckpointsRequest())))[0].writes
