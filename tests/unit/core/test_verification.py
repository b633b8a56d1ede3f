"""A verification gives the right verdicts, in frames that report them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tuskpoint.v1 import thread_service_pb2 as pb
from tuskpoint_server.api.middleware.pipeline import Call
from tuskpoint_server.api.threads.messages import verification_frame
from tuskpoint_server.api.threads.servicer import ThreadServicer
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import BlobLocation, CheckpointKey
from tuskpoint_server.core.threads import (
    Verdict,
    VerdictKind,
    VerificationTotal,
    difference,
    row_digests,
)

KEY = CheckpointKey("t", "inner", "1")
AT = BlobLocation(b"r" * 32, 7, "blob", "patch")


@pytest.mark.parametrize(
    ("counts", "chain_problem", "ok"),
    [
        ({VerdictKind.PASS: 1}, "", True),
        ({VerdictKind.PASS: 1, VerdictKind.UNVERIFIED: 5, VerdictKind.RETRACTED: 5}, "", True),
        ({VerdictKind.PASS: 9, VerdictKind.FAIL: 1}, "", False),
        ({VerdictKind.PASS: 9}, "segment 0 is missing", False),
        ({VerdictKind.UNVERIFIED: 1}, "", False),
        ({VerdictKind.RETRACTED: 1}, "", False),
        ({}, "", False),
    ],
)
def test_something_was_proven_and_nothing_is_wrong(
    counts: dict[VerdictKind, int], chain_problem: str, ok: bool
) -> None:
    assert VerificationTotal(Counter(counts), chain_problem).ok is ok
    assert not VerificationTotal(Counter(counts), chain_problem, ("a row",)).ok


def test_frames_hold_everything_known() -> None:
    failed = Verdict(KEY, VerdictKind.FAIL, AT, b"a" * 32, "it differs")
    message = verification_frame(failed).verdict
    assert (message.ref.thread_id, message.ref.checkpoint_ns) == ("t", "inner")
    assert message.verdict == pb.VERDICT_FAIL
    assert (message.location.sha256, message.location.identifier) == (b"r" * 32, "patch")
    assert (message.actual_sha256, message.detail) == (b"a" * 32, "it differs")
    assert not verification_frame(Verdict(KEY, VerdictKind.RETRACTED)).verdict.HasField("location")
    counts = Counter(dict(zip(VerdictKind, (1, 2, 3, 4), strict=True)))
    total = verification_frame(VerificationTotal(counts, "broken", ("one", "two"))).total
    assert total == pb.VerificationTotal(
        passed=1,
        failed=2,
        unverified=3,
        retracted=4,
        chain_detail="broken",
        journal_details=["one", "two"],
    )


def test_kinds_have_the_numbers_of_the_contract() -> None:
    assert {f"VERDICT_{kind.name}": int(kind) for kind in VerdictKind} == {
        name: number for name, number in pb.Verdict.items() if number
    }


def test_digests_of_a_row_name_the_difference() -> None:
    writes = [("task", "", 0, "x", b"1" * 32), ("task", "", 1, "x", b"2" * 32)]
    mine = row_digests(b"state", b"{}", b"base", writes)
    assert difference(row_digests(b"state", b"{}", b"base", writes[::-1]), mine) == ""
    assert difference(row_digests(b"other", b"{}", b"base", writes), mine) == "state"
    assert difference(row_digests(b"state", b"{ }", b"base", writes), mine) == "metadata"
    assert difference(row_digests(b"state", b"{}", b"", writes), mine) == "delta base"
    assert difference(row_digests(b"state", b"{}", b"base", writes[:1]), mine) == "pending writes"
    different = difference(row_digests(b"state", b"[]", b"base", []), mine)
    assert different == "metadata and pending writes"


async def test_a_server_that_shuts_down_ends_the_stream() -> None:
    draining = asyncio.Event()
    closed = asyncio.Event()

    async def verify(tenant: str, thread_id: str) -> AsyncGenerator[Verdict, None]:
        try:
            yield Verdict(KEY, VerdictKind.PASS, AT)
            draining.set()
            yield Verdict(KEY, VerdictKind.PASS, AT)
        finally:
            closed.set()

    unused = cast(Any, None)
    servicer = ThreadServicer(cast(Any, SimpleNamespace(verify=verify)), *[unused] * 4)
    call = Call("VerifyThread", unused, draining=draining)
    frames = servicer.VerifyThread(pb.VerifyThreadRequest(thread_id="t"), call)
    assert (await anext(frames)).HasField("verdict")
    with pytest.raises(Refusal) as refused:
        await anext(frames)
    assert refused.value.reason is Reason.DRAINING
    assert closed.is_set()
