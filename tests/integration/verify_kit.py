"""Verifying threads, and damaging what is stored of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuskpoint.v1 import thread_service_pb2 as pb
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


def blob_file(blobs: Path, blob_id: str) -> Path:
    """Return the file of a blob in a directory store."""
    return blobs / blob_id[:2] / blob_id


def segment_files(blobs: Path, head: str) -> list[Path]:
    """Return the files of a manifest's segments, oldest first, given the last one's blob ID."""
    found: list[Path] = []
    while head:
        path = blob_file(blobs, head)
        found.insert(0, path)
        head = (json.loads(path.read_bytes())["previous"] or {}).get("blob_id", "")
    return found


def superseded_heads(blobs: Path, head: Path) -> list[Path]:
    """Return the files of a manifest's last segment as it once was."""
    now = json.loads(head.read_bytes())
    return [
        path
        for path, found in _json_files(blobs)
        if path != head
        and found.get("thread_id") == now["thread_id"]
        and found.get("segment") == now["segment"]
    ]


def _json_files(blobs: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in blobs.rglob("*"):
        if path.is_file() and path.read_bytes()[:1] == b"{":
            yield path, json.loads(path.read_bytes())


def flip(path: Path, position: int = -1) -> None:
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    overwrite(path, bytes(data))


def overwrite(path: Path, data: bytes) -> None:
    path.chmod(0o600)
    path.write_bytes(data)


def rebuild(path: Path, change: Callable[[list[Any]], object]) -> None:
    """Change the records of a segment; what comes of it is well-formed."""
    content = json.loads(path.read_bytes())
    change(content["records"])
    overwrite(path, dump(content))
