"""Verifying threads, and damaging what is stored of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kit.member_file import MemberFile, stored_members
from tuskpoint.v1 import thread_service_pb2 as pb
from tuskpoint_server.domain.model import BlobLocation
from tuskpoint_server.domain.stored_json import dump
from tuskpoint_server.domain.verification import Verdict, VerificationTotal
from tuskpoint_server.service.verifying import verify_thread

from .archive_kit import TENANT, Kit
from .messages import THREAD

if TYPE_CHECKING:
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub


@dataclass(frozen=True)
class Verified:
    """All frames of a `VerifyThread` stream."""

    verdicts: list[pb.CheckpointVerdict]
    total: pb.VerificationTotal

    def of(self, checkpoint_id: str) -> pb.CheckpointVerdict:
        [found] = [one for one in self.verdicts if one.ref.checkpoint_id == checkpoint_id]
        return found

    @property
    def kinds(self) -> dict[str, str]:
        """Verdicts, less their prefix, by checkpoint ID."""
        return {
            one.ref.checkpoint_id: pb.Verdict.Name(one.verdict).removeprefix("VERDICT_")
            for one in self.verdicts
        }


async def verified(threads: ThreadServiceAsyncStub, thread_id: str = THREAD) -> Verified:
    """Verify a thread over the wire."""
    request = pb.VerifyThreadRequest(thread_id=thread_id)
    *frames, last = [frame async for frame in threads.VerifyThread(request)]
    assert all(frame.HasField("verdict") for frame in frames)
    assert last.HasField("total")
    found = Verified([frame.verdict for frame in frames], last.total)
    kinds = list(found.kinds.values())
    total = found.total
    assert [total.passed, total.failed, total.unverified, total.retracted] == [
        kinds.count(kind) for kind in ("PASS", "FAIL", "UNVERIFIED", "RETRACTED")
    ]
    assert total.ok == (total.passed > 0 and not total.failed and not total.chain_detail)
    return found


async def verify(kit: Kit, thread_id: str = "t") -> tuple[list[Verdict], VerificationTotal]:
    """Verify a thread of a kit."""
    verdicts: list[Verdict] = []
    async for found in verify_thread(kit.archive, TENANT, thread_id):
        if isinstance(found, VerificationTotal):
            return verdicts, found
        verdicts.append(found)
    raise AssertionError("there is no total")


# --- files -----------------------------------------------------------------------------


def segment_files(blobs: Path, head: Any) -> list[MemberFile]:
    """Return a manifest's segments, oldest first, given the location of the last one."""
    found: list[MemberFile] = []
    at = head
    while at is not None:
        found.insert(0, MemberFile.at(blobs, at))
        previous = json.loads(found[0].read_bytes())["previous"]
        if previous is None:
            return found
        # No blob ID means: in the same blob.
        at = BlobLocation(b"", 0, previous["blob_id"] or at.blob_id, previous["identifier"])
    return found


def superseded_heads(blobs: Path, head: MemberFile) -> list[MemberFile]:
    """Return a manifest's last segment as it once was."""
    now = json.loads(head.read_bytes())
    return [
        one
        for one, found in _json_members(blobs)
        if one != head
        and found.get("thread_id") == now["thread_id"]
        and found.get("segment") == now["segment"]
    ]


def _json_members(blobs: Path) -> Iterator[tuple[MemberFile, dict[str, Any]]]:
    for one in stored_members(blobs):
        if one.read_bytes()[:1] == b"{":
            yield one, json.loads(one.read_bytes())


def rebuild(one: MemberFile, change: Callable[[list[Any]], object]) -> None:
    """Change the records of a segment; what comes of it is well-formed."""
    content = json.loads(one.read_bytes())
    change(content["records"])
    one.write_bytes(dump(content))
