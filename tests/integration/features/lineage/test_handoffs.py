"""Hand-offs over the network carry all that is needed, and nothing unproven."""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from tests.integration.archive.evictions import flush_and_evict
from tests.integration.features.lineage.handoff_kit import (
    CERTIFIED,
    JOURNALED,
    SUBGRAPH,
    SUBGRAPH_ID,
    ZEROTH,
    Side,
    blob_file,
    changed,
    content,
    save_run,
    saving,
)
from tests.integration.features.lineage.handoff_servers import side
from tests.kit.messages import FIRST, SECOND, THREAD, channel, ref, refused
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as cpb
from tuskpoint.v1 import handoff_service_pb2 as pb
from tuskpoint.v1 import thread_service_pb2 as tpb

FETCHING, FETCHED = pb.ADOPT_STAGE_FETCHING, pb.ADOPT_STAGE_FETCHED
VERIFIED, ADOPTED = pb.ADOPT_STAGE_VERIFIED, pb.ADOPT_STAGE_ADOPTED

Code = grpc.StatusCode


# --- handed-off content ----------------------------------------------------------------


async def test_a_thread_goes_on_where_it_was_handed_off(giver: Side, taker: Side) -> None:
    await save_run(giver)
    descriptor = await giver.hand_off(to_agent="writer")
    frames = await taker.adopt(descriptor, "adopted")

    last = frames[-1]
    assert (last.stage, last.durability) == (ADOPTED, CERTIFIED)
    assert last.adoption.adopted_from == f"{THREAD}:{SECOND}"
    assert last.adoption.new_thread_id == "adopted"
    assert last.adoption.checkpoint_id == SECOND
    assert last.adoption.verified

    # The interrupted task resumes with its writes.
    before, after = await giver.load(SECOND), await taker.load("", "adopted")
    assert content(after) == content(before)
    assert len(after.writes) == 3
    assert after.lineage.adopted_from == f"{THREAD}:{SECOND}"
    # The subgraph resumes inside.
    inside = await taker.load("", "adopted", SUBGRAPH)
    assert inside.ref.checkpoint_id == SUBGRAPH_ID
    assert content(inside) == content(await giver.load(SUBGRAPH_ID, ns=SUBGRAPH))
    # Delta channels are rebuilt, from ancestors that no reader sees.
    rebuilt = await taker.history(SECOND, "adopted", "log")
    assert rebuilt == await giver.history(SECOND, THREAD, "log")
    assert sum(len(frame.history.writes) for frame in rebuilt) == 2
    assert {each.ref.checkpoint_id for each in await taker.listed("adopted")} == {
        SECOND,
        SUBGRAPH_ID,
    }
    for hidden in (ZEROTH, FIRST):
        reported = await refused(
            taker.checkpoints.GetCheckpoint(cpb.GetCheckpointRequest(ref=ref(hidden, "adopted")))
        )
        assert reported.reason == "CHECKPOINT_NOT_FOUND"
    thread = (await taker.threads.GetThread(tpb.GetThreadRequest(thread_id="adopted"))).thread
    assert (thread.agent_id, thread.head_checkpoint_id) == ("writer", SECOND)
    assert thread.uncertified_count == 0


async def test_an_adopted_thread_continues_and_is_handed_off_again(
    giver: Side, taker: Side
) -> None:
    await save_run(giver)
    await taker.adopt(await giver.hand_off(), "adopted")
    third = "1f000000-0000-6000-8000-000000000009"
    following = saving(
        third, [channel("messages", b"third")], parent=SECOND, thread_id="adopted", delta=("log",)
    )
    await taker.checkpoints.SaveCheckpoint(following)
    descriptor = await taker.hand_off(ref=ref("", "adopted"))
    assert descriptor.source == f"adopted:{third}"
    await giver.adopt(descriptor, "back")
    assert content(await giver.load("", "back")) == content(await taker.load(third, "adopted"))
    assert await giver.history(third, "back", "log") == await taker.history(third, "adopted", "log")


async def test_the_adopted_checkpoint_is_certified_in_a_blob_of_its_own(
    giver: Side, taker: Side
) -> None:
    await save_run(giver)
    descriptor = await giver.hand_off()
    adoption = (await taker.adopt(descriptor))[-1].adoption
    assert adoption.blob_id
    assert adoption.blob_id != descriptor.blob_id
    stored = await taker.load("", "adopted", source=checkpoint_pb2.SOURCE_BLOB)
    assert content(stored) == content(await giver.load(SECOND))
    assert stored.location.blob_id == adoption.blob_id


async def test_nobody_need_wait_for_certification(giver: Side, taker: Side) -> None:
    await save_run(giver)
    last = (await taker.adopt(await giver.hand_off(), durability=JOURNALED))[-1]
    assert last.durability == JOURNALED
    assert last.adoption.blob_id == ""
    assert last.adoption.verified
    assert content(await taker.load("", "adopted")) == content(await giver.load(SECOND))


async def test_evicted_values_are_handed_off(tmp_path: Path, taker: Side) -> None:
    async with side(
        tmp_path / "lean",
        blob_dir=tmp_path / "blobs",
        journal_bytes=0,
        eviction_grace=0,
    ) as lean:
        await save_run(lean, 1 << 20)
        after = "1f000000-0000-6000-8000-000000000004"
        await lean.checkpoints.SaveCheckpoint(saving(after, [channel("a")], parent=SECOND))
        full = await lean.hand_off()
        await flush_and_evict(lean.admin, 1 << 20)
        assert await lean.hand_off() == full
        await taker.adopt(full)
        assert content(await taker.load("", "adopted")) == content(await lean.load(SECOND))


# --- the descriptor --------------------------------------------------------------------


async def test_the_descriptor_has_its_keys_exactly(giver: Side) -> None:
    await save_run(giver)
    descriptor = await giver.hand_off(to_agent="writer")
    as_json = MessageToDict(descriptor, preserving_proto_field_name=True)
    stored = blob_file(giver, descriptor.blob_id).read_bytes()
    assert as_json == {
        "source": f"{THREAD}:{SECOND}",
        "thread_id": THREAD,
        "checkpoint_id": SECOND,
        "blob_id": descriptor.blob_id,
        "blob_sha256": hashlib.sha256(stored).hexdigest(),
        "to_agent": "writer",
        "summary": "Asked which of the two drafts to keep.",
        "signer": descriptor.signer,
        "signature": descriptor.signature,
    }


@pytest.mark.parametrize(
    ("metadata", "summary"),
    [
        (b'{"source": "loop", "step": 3}', f"Step 3 (loop) of thread {THREAD}."),
        (b'{"step": -1, "source": 7}', f"Step -1 of thread {THREAD}."),
        (b'{"step": true}', f"Checkpoint {FIRST} of thread {THREAD}."),
        (b"{}", f"Checkpoint {FIRST} of thread {THREAD}."),
    ],
)
async def test_where_nobody_wrote_a_summary_one_is_made(
    giver: Side, metadata: bytes, summary: str
) -> None:
    await giver.checkpoints.SaveCheckpoint(saving(FIRST, [], metadata=metadata))
    assert (await giver.hand_off(FIRST)).summary == summary


# --- progress --------------------------------------------------------------------------


async def test_progress_is_reported_stage_by_stage(giver: Side, taker: Side) -> None:
    await save_run(giver)
    descriptor = await giver.hand_off()
    size = blob_file(giver, descriptor.blob_id).stat().st_size
    frames = await taker.adopt(descriptor)
    assert [(frame.stage, frame.fetched_bytes) for frame in frames] == [
        (FETCHING, 0),
        (FETCHED, size),
        (VERIFIED, size),
        (ADOPTED, size),
    ]
    assert [frame.HasField("adoption") for frame in frames] == [False, False, False, True]
    assert [frame.durability for frame in frames[:-1]] == [0, 0, 0]


# --- retries ---------------------------------------------------------------------------


async def test_a_hand_off_that_is_asked_for_again_gets_the_first_answer(giver: Side) -> None:
    await save_run(giver)
    first = await giver.hand_off("", to_agent="writer", request_id="r")
    await giver.checkpoints.SaveCheckpoint(
        saving("1f000000-0000-6000-8000-000000000009", [], parent=SECOND)
    )
    assert await giver.hand_off("", to_agent="writer", request_id="r") == first
    assert await giver.hand_off("", to_agent="writer") != first
    for fields in ({"to_agent": "other"}, {"to_agent": "writer", "ref": ref(SECOND)}):
        reported = await refused(giver.hand_off("", request_id="r", **fields))
        assert (reported.code, reported.reason) == (Code.ALREADY_EXISTS, "REQUEST_ID_REUSED")


@pytest.mark.parametrize("target", ["adopted", ""])
@pytest.mark.parametrize("wanted", [JOURNALED, CERTIFIED])
async def test_an_adoption_that_is_asked_for_again_gets_the_first_answer(
    giver: Side, taker: Side, target: str, wanted: Any
) -> None:
    await save_run(giver)
    descriptor = await giver.hand_off()
    options: dict[str, Any] = {"request_id": "r", "durability": wanted}
    first = await taker.adopt(descriptor, target, **options)
    blob_file(giver, descriptor.blob_id).unlink()  # nothing is fetched again
    [again] = await taker.adopt(descriptor, target, **options)
    assert (again.stage, again.adoption) == (ADOPTED, first[-1].adoption)
    assert len(await taker.listed(first[-1].adoption.new_thread_id)) == 2
    reported = await taker.refuses(descriptor, "another", **options)
    assert (reported.code, reported.reason) == (Code.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    reported = await taker.refuses(changed(descriptor, blob_sha256="0" * 64), target, **options)
    assert (reported.code, reported.reason) == (Code.ALREADY_EXISTS, "REQUEST_ID_REUSED")


async def test_a_client_that_goes_away_leaves_a_whole_thread_or_none(
    giver: Side, taker: Side
) -> None:
    await save_run(giver, 2 << 20)
    descriptor = await giver.hand_off()
    for stage in (FETCHING, FETCHED, VERIFIED):
        name = f"thread-{uuid.uuid4()}"
        stream = taker.adopting(descriptor, name)
        async for frame in stream:
            if frame.stage == stage:
                break
        stream.cancel()
        await taker.flush()
        listed = await taker.listed(name)
        assert len(listed) in (0, 2)
        if listed:
            assert await taker.history(SECOND, name, "log") == await giver.history(
                SECOND, THREAD, "log"
            )
