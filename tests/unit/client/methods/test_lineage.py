"""Forks, rollbacks, ancestry, diffs, verification and snapshots use the right messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.unit.client.faces import Face
from tests.unit.client.scripted_services import Refuse, ScriptedServices
from tuskpoint import (
    CheckpointVerdict,
    InvalidRequest,
    Location,
    Reference,
    ServerError,
    SnapshotRecord,
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
    for named in ({"durability": "certified"}, {}):
        services.on(rpc, LOST)
        services.on(rpc, answer)
        await face.call(name, *arguments, **named)
    first, second, third, _ = [request.request_id for request in services.requests]
    assert first == second != third
    assert len(first) == 36
    kept = [request.durability for request in services.requests[1:3]]
    assert kept == [DURABILITY_CERTIFIED, DURABILITY_JOURNALED]


async def test_a_step_of_a_kind_of_a_newer_server_is_left_out(
    services: ScriptedServices, face: Face
) -> None:
    inner = CheckpointRef(thread_id="t", checkpoint_ns="a", checkpoint_id="2")
    kinds: list[Any] = [threads.LINEAGE_KIND_ROLLBACK, 99]
    steps = [threads.LineageStep(kind=kind, to=inner, create_time=TIME) for kind in kinds]
    services.on("GetLineage", threads.GetLineageResponse(descendants=steps, truncated=True))
    relatives = await face.call("lineage", "t")
    assert [(step.kind, step.result, step.created) for step in relatives.descendants] == [
        ("rollback", Reference("t", "a", "2"), WHEN)
    ]
    assert relatives.truncated


async def test_a_diff_compares_with_the_latest_unless_another_checkpoint_is_named(
    services: ScriptedServices, face: Face
) -> None:
    for _ in range(2):
        services.on("DiffCheckpoints", threads.DiffCheckpointsResponse())
    await face.call("diff", "t", "1", checkpoint_ns="a")
    await face.call("diff", "t", "1", "2", to_thread_id="n")
    assert [request.to for request in services.requests] == [
        CheckpointRef(thread_id="t", checkpoint_ns="a"),
        CheckpointRef(thread_id="n", checkpoint_id="2"),
    ]
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
    assert [verdict.verdict for verdict in reported] == [
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


async def test_a_listing_of_snapshots_goes_through_all_pages(
    services: ScriptedServices, face: Face
) -> None:
    for token in ("more", ""):
        page = snapshots.ListSnapshotsResponse(snapshots=[SNAPSHOT], next_page_token=token)
        services.on("ListSnapshots", page)
    assert await face.take("list_snapshots", 9, hostname="h") == [RECORD, RECORD]
    pages = [(request.page_token, request.hostname) for request in services.requests]
    assert pages == [("", "h"), ("more", "h")]


async def test_an_unknown_mode_restores_no_snapshot(services: ScriptedServices, face: Face) -> None:
    with pytest.raises(InvalidRequest, match="'new_threads' or 'rollback'"):
        await face.call("restore_snapshot", "s", mode="both")
    assert services.requests == []


async def test_a_snapshot_is_deleted_as_safely_as_asked(
    services: ScriptedServices, face: Face
) -> None:
    services.on("DeleteSnapshot", snapshots.DeleteSnapshotResponse(deleted=True))
    assert await face.call("delete_snapshot", "s", durability="certified") is True
    assert services.requests[0].durability == DURABILITY_CERTIFIED
