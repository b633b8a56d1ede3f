"""Forks, rollbacks, ancestry, differences, verification and snapshots: what is sent and read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.unit.client.faces import Face
from tests.unit.client.scripted_services import Refuse, ScriptedServices
from tuskpoint import (
    Change,
    CheckpointVerdict,
    Conflict,
    Diff,
    Fork,
    InvalidRequest,
    LineageStep,
    Location,
    NotFound,
    Reference,
    Rollback,
    ServerError,
    SnapshotRecord,
    ThreadLineage,
    Unavailable,
    Verification,
)
from tuskpoint.v1 import snapshot_service_pb2 as snapshots
from tuskpoint.v1 import thread_service_pb2 as threads
from tuskpoint.v1.checkpoint_pb2 import (
    DURABILITY_CERTIFIED,
    DURABILITY_JOURNALED,
    BlobLocation,
    CheckpointRef,
)

REF = CheckpointRef(thread_id="t", checkpoint_id="1")
NEW = CheckpointRef(thread_id="n", checkpoint_id="1")
TIME = Timestamp(seconds=1_700_000_000)
WHEN = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
LOST = Refuse(grpc.StatusCode.UNAVAILABLE, "JOURNAL_UNAVAILABLE")


async def test_a_fork(services: ScriptedServices, face: Face) -> None:
    answer = threads.ForkThreadResponse(ref=NEW, forked_from="t:1")
    services.on("ForkThread", answer)
    forked = await face.call("fork", "t", "1", "n", durability="certified")
    assert forked == Fork("n", "1", "t:1")
    (asked,) = services.requests
    assert (asked.ref, asked.new_thread_id) == (REF, "n")
    assert asked.durability == DURABILITY_CERTIFIED


async def test_a_rollback(services: ScriptedServices, face: Face) -> None:
    back = CheckpointRef(thread_id="t", checkpoint_id="9")
    services.on("RollbackThread", threads.RollbackThreadResponse(ref=back, rolled_back_from="t:1"))
    assert await face.call("rollback", "t", "1", expected_head="8") == Rollback("t", "9", "t:1")
    (asked,) = services.requests
    assert (asked.ref, asked.expected_head) == (REF, "8")
    assert asked.durability == DURABILITY_JOURNALED
    services.on("RollbackThread", Refuse(grpc.StatusCode.ABORTED, "HEAD_MOVED"))
    with pytest.raises(Conflict):
        await face.call("rollback", "t", "1")
    assert not services.requests[-1].HasField("expected_head")


MUTATIONS: list[tuple[str, tuple[Any, ...], str, Any]] = [
    ("fork", ("t", "1"), "ForkThread", threads.ForkThreadResponse(ref=NEW)),
    ("rollback", ("t", "1"), "RollbackThread", threads.RollbackThreadResponse(ref=REF)),
    ("copy", ("t", "n"), "CopyThread", threads.CopyThreadResponse()),
    ("create_snapshot", (["t"],), "CreateSnapshot", snapshots.CreateSnapshotResponse()),
    ("restore_snapshot", ("s",), "RestoreSnapshot", snapshots.RestoreSnapshotResponse()),
]


@pytest.mark.parametrize(("name", "arguments", "rpc", "answer"), MUTATIONS)
async def test_a_call_that_is_no_upsert_is_retried_under_one_request_id(
    services: ScriptedServices,
    face: Face,
    name: str,
    arguments: tuple[Any, ...],
    rpc: str,
    answer: Any,
) -> None:
    for _ in range(2):
        services.on(rpc, LOST)
        services.on(rpc, answer)
        await face.call(name, *arguments)
    first, second, third, _ = [one.request_id for one in services.requests]
    assert first == second != third
    assert len(first) == 36


async def test_a_lineage(services: ScriptedServices, face: Face) -> None:
    def step(kind: threads.LineageKind, origin: CheckpointRef, to: CheckpointRef) -> Any:
        made = threads.LineageStep(kind=kind, to=to, create_time=TIME)
        getattr(made, "from").CopyFrom(origin)
        return made

    inner = CheckpointRef(thread_id="t", checkpoint_ns="a", checkpoint_id="2")
    services.on(
        "GetLineage",
        threads.GetLineageResponse(
            ancestors=[step(threads.LINEAGE_KIND_FORK, REF, NEW)],
            descendants=[
                step(threads.LINEAGE_KIND_ADOPTION, REF, NEW),
                step(threads.LINEAGE_KIND_ROLLBACK, REF, inner),
                step(99, REF, NEW),  # type: ignore[arg-type]
            ],
            truncated=True,
        ),
    )
    ours, theirs = Reference("t", "", "1"), Reference("n", "", "1")
    assert await face.call("lineage", "t") == ThreadLineage(
        (LineageStep("fork", ours, theirs, WHEN),),
        (
            LineageStep("adoption", ours, theirs, WHEN),
            LineageStep("rollback", ours, Reference("t", "a", "2"), WHEN),
        ),
        truncated=True,
    )
    services.on("GetLineage", Refuse(grpc.StatusCode.NOT_FOUND, "THREAD_NOT_FOUND"))
    with pytest.raises(NotFound):
        await face.call("lineage", "t")


async def test_a_diff(services: ScriptedServices, face: Face) -> None:
    services.on(
        "DiffCheckpoints",
        threads.DiffCheckpointsResponse(
            changes=[
                threads.Change(kind=threads.CHANGE_KIND_ADDED, channel="a", to_json="1"),
                threads.Change(
                    kind=threads.CHANGE_KIND_CHANGED,
                    channel="b",
                    path="/0",
                    from_json="",
                    to_json="2",
                ),
                threads.Change(kind=threads.CHANGE_KIND_REMOVED, channel="c", from_json="null"),
            ],
            truncated=True,
        ),
    )
    assert await face.call("diff", "t", "1", "2", to_thread_id="n", max_changes=3) == Diff(
        (
            Change("added", "a", "", None, "1"),
            Change("changed", "b", "/0", "", "2"),
            Change("removed", "c", "", "null", None),
        ),
        truncated=True,
    )
    services.on("DiffCheckpoints", threads.DiffCheckpointsResponse())
    assert await face.call("diff", "t", "1", checkpoint_ns="a") == Diff((), truncated=False)
    first, second = services.requests
    assert (getattr(first, "from"), first.max_changes) == (REF, 3)
    assert first.to == CheckpointRef(thread_id="n", checkpoint_id="2")
    assert second.to == CheckpointRef(thread_id="t", checkpoint_ns="a")
    with pytest.raises(InvalidRequest, match="max_changes"):
        await face.call("diff", "t", "1", max_changes=-1)


def verdict(checkpoint_id: str, kind: threads.Verdict, detail: str = "") -> Any:
    return threads.VerifyThreadResponse(
        verdict=threads.CheckpointVerdict(
            ref=CheckpointRef(thread_id="t", checkpoint_id=checkpoint_id),
            verdict=kind,
            location=BlobLocation(blob_id="b", sha256=b"\x01" * 32, size_bytes=5),
            actual_sha256=b"\x02" * 32,
            detail=detail,
        )
    )


TOTAL = threads.VerifyThreadResponse(
    total=threads.VerificationTotal(
        passed=1,
        failed=1,
        unverified=2,
        retracted=3,
        chain_detail="torn",
        journal_details=["a row was changed"],
    )
)
FAILED = CheckpointVerdict(
    "", "2", "fail", Location("b", "", "01" * 32, 5), "02" * 32, "it was changed"
)


async def test_a_verification_reports_each_verdict_and_keeps_the_failures(
    services: ScriptedServices, face: Face
) -> None:
    services.on("VerifyThread", LOST)
    services.on(
        "VerifyThread",
        verdict("1", threads.VERDICT_PASS),
        verdict("2", threads.VERDICT_FAIL, "it was changed"),
        verdict("3", threads.VERDICT_UNVERIFIED),
        verdict("4", threads.VERDICT_RETRACTED),
        verdict("5", 99),  # type: ignore[arg-type]
        TOTAL,
    )
    reported: list[CheckpointVerdict] = []
    assert await face.call("verify", "t", reported.append) == Verification(
        ok=False,
        passed=1,
        failed=1,
        unverified=2,
        retracted=3,
        chain_detail="torn",
        failures=(FAILED,),
        journal_details=("a row was changed",),
    )
    assert [one.verdict for one in reported] == [
        "pass",
        "fail",
        "unverified",
        "retracted",
        "unverified",
    ]
    assert reported[1] == FAILED


async def test_a_verification_without_its_total_is_none(
    services: ScriptedServices, face: Face
) -> None:
    services.on("VerifyThread", verdict("1", threads.VERDICT_PASS))
    with pytest.raises(ServerError, match="without a total"):
        await face.call("verify", "t")
    services.on("VerifyThread", verdict("1", threads.VERDICT_PASS), LOST)
    with pytest.raises(Unavailable):
        await face.call("verify", "t")


async def test_an_error_of_a_callback_ends_the_verification(
    services: ScriptedServices, face: Face
) -> None:
    services.on("VerifyThread", verdict("1", threads.VERDICT_PASS), TOTAL)

    def refuse(_: CheckpointVerdict) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        await face.call("verify", "t", refuse)


SNAPSHOT = snapshots.Snapshot(
    snapshot_id="s",
    session_id="a",
    hostname="h",
    working_directory="/w",
    metadata_json=b'{"k":[1]}',
    members=[REF, NEW],
    create_time=TIME,
)
RECORD = SnapshotRecord(
    "s", "a", "h", "/w", {"k": [1]}, (Reference("t", "", "1"), Reference("n", "", "1")), WHEN
)


async def test_a_snapshot_is_created(services: ScriptedServices, face: Face) -> None:
    services.on("CreateSnapshot", snapshots.CreateSnapshotResponse(snapshot=SNAPSHOT))
    made = await face.call(
        "create_snapshot",
        iter(["t", "n"]),
        session_id="a",
        hostname="h",
        working_directory="/w",
        metadata={"k": [1]},
    )
    assert made == RECORD
    (asked,) = services.requests
    asked.ClearField("request_id")
    assert asked == snapshots.CreateSnapshotRequest(
        thread_ids=["t", "n"],
        session_id="a",
        hostname="h",
        working_directory="/w",
        metadata_json=b'{"k":[1]}',
        durability=DURABILITY_JOURNALED,
    )


async def test_snapshots_are_found_again(services: ScriptedServices, face: Face) -> None:
    services.on("GetSnapshot", snapshots.GetSnapshotResponse(snapshot=SNAPSHOT))
    assert await face.call("get_snapshot", "s") == RECORD
    services.on("GetLatestSnapshot", snapshots.GetLatestSnapshotResponse(snapshot=SNAPSHOT))
    place = {"session_id": "a", "hostname": "h", "working_directory": "/w"}
    assert await face.call("latest_snapshot", **place) == RECORD
    for token in ("more", ""):
        services.on(
            "ListSnapshots",
            snapshots.ListSnapshotsResponse(snapshots=[SNAPSHOT], next_page_token=token),
        )
    assert await face.take("list_snapshots", 9, **place) == [RECORD, RECORD]
    assert services.requests[1] == snapshots.GetLatestSnapshotRequest(**place)
    assert [one.page_token for one in services.requests[2:]] == ["", "more"]
    assert [one.hostname for one in services.requests[2:]] == ["h", "h"]
    for rpc, name, arguments in (
        ("GetSnapshot", "get_snapshot", ("s",)),
        ("GetLatestSnapshot", "latest_snapshot", ()),
    ):
        services.on(rpc, Refuse(grpc.StatusCode.NOT_FOUND, "SNAPSHOT_NOT_FOUND"))
        with pytest.raises(NotFound):
            await face.call(name, *arguments)


async def test_a_snapshot_is_restored_and_deleted(services: ScriptedServices, face: Face) -> None:
    services.on("RestoreSnapshot", snapshots.RestoreSnapshotResponse(restored=[NEW, REF]))
    restored = await face.call("restore_snapshot", "s", mode="rollback")
    assert restored == (Reference("n", "", "1"), Reference("t", "", "1"))
    assert services.requests[0].mode == snapshots.RESTORE_MODE_ROLLBACK
    with pytest.raises(InvalidRequest, match="'new_threads' or 'rollback'"):
        await face.call("restore_snapshot", "s", mode="both")
    services.on("DeleteSnapshot", snapshots.DeleteSnapshotResponse(deleted=True))
    services.on("DeleteSnapshot", snapshots.DeleteSnapshotResponse())
    assert await face.call("delete_snapshot", "s", durability="certified") is True
    assert await face.call("delete_snapshot", "s") is False
    assert services.requests[1].durability == DURABILITY_CERTIFIED
