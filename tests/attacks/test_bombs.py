"""Stored bytes that unpack to more than the memory are refused before they are unpacked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attacks.bombs import MIB, descriptor_of, frame, placed, segment_of
from tests.kit.servers.processes import ServerProcess
from tuskpoint import Client
from tuskpoint.errors import TuskPointError
from tuskpoint.storage.v1 import segment_pb2
from tuskpoint.transfer import lines
from tuskpoint.transfer.threads import Problem
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint_server.archive.formats.segment_reading import decode_segment
from tuskpoint_server.archive.formats.stored_json import decode_parts, encode_parts
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import BlobLocation
from tuskpoint_server.core.values import Encoding, blob_digest, pack_frame

MEMORY_BYTES = 512 * MIB
SLACK_BYTES = 150 * MIB


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    settings = {
        "TUSKPOINT_MEMORY_BYTES": str(MEMORY_BYTES),
        "TUSKPOINT_BLOB_DIR": str(tmp_path / "blobs"),
    }
    with ServerProcess(tmp_path / "one", settings) as running:
        running.start()
        yield running


def of_large_values() -> bytes:
    """Return a bundle with values that unpack to 640 MiB."""
    message = segment_pb2.ThreadSegment(thread_id="bomb")
    state = checkpoint_pb2.CheckpointState(schema_version=4)
    message.checkpoints.add(checkpoint_id="1", state=state.SerializeToString())
    message.handoff.checkpoint_id = "1"
    for number in range(5):
        message.values.add(
            digest=bytes([number]) * 32,
            type="bytes",
            size_bytes=128 * MIB,
            encoding=Encoding.ZSTD,
            data=frame(128 * MIB, number),
        )
    return segment_of(pack_frame(message.SerializeToString()))


def peak_bytes(server: ServerProcess) -> int:
    """Return the peak memory of a server, in bytes."""
    pid = (server.data_dir / "lock").read_text().strip()
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(peak) * 1024


@pytest.mark.parametrize(
    ("bundle", "named"),
    [
        (lambda: segment_of(frame(1024 * MIB, 10)), f"unpacks to {1024 * MIB} bytes"),
        (of_large_values, f"values unpack to {640 * MIB} bytes"),
    ],
    ids=["segment", "values"],
)
def test_a_small_bundle_that_unpacks_to_more_than_the_memory_is_refused(
    server: ServerProcess, tmp_path: Path, bundle: Callable[[], bytes], named: str
) -> None:
    data = bundle()
    assert len(data) < 33 * 1024
    with Client(server.target) as client:
        client.save("thread", {"some": "state"})
        before = peak_bytes(server)
        with pytest.raises(TuskPointError) as refused:
            client.adopt(descriptor_of(*placed(tmp_path / "blobs", data)))
        assert refused.value.reason == "LIMIT_EXCEEDED"
        assert named in str(refused.value)
        assert f"the memory that calls may hold = {MEMORY_BYTES}" in str(refused.value)
        assert "--memory-bytes" in str(refused.value)
        assert peak_bytes(server) < before + SLACK_BYTES
        client.save("thread", {"some": "more"})
        assert not [thread for thread in client.threads() if thread.thread_id != "thread"]


def test_a_segment_of_millions_of_empty_rows_is_not_parsed() -> None:
    bomb = segment_of(pack_frame(b"\x32\x00" * (1 << 20)))
    with pytest.raises(Refusal) as refused:
        decode_segment(bomb, "the-blob")
    assert refused.value.reason is Reason.BLOB_MALFORMED
    assert "more than 2097152 fields" in str(refused.value)


PART = BlobLocation(blob_digest(b"part"), 4, "the-part")


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ([PART] * 17, "it names a part more than 16 times"),
        ([PART, PART.moved(BlobLocation(PART.sha256, 4, "other"))], "at two places"),
        ([PART, BlobLocation(PART.sha256, 5, "the-part")], "with two sizes"),
        ([BlobLocation(PART.sha256, 65 * MIB, "the-part")], "a part of no bytes, or of more"),
        ([PART, BlobLocation(blob_digest(b""), 0, "none")], "a part of no bytes"),
    ],
)
def test_a_list_that_makes_much_of_little_is_refused(
    parts: list[BlobLocation], problem: str
) -> None:
    stored = encode_parts(b"x" * sum(part.size for part in parts), parts)
    with pytest.raises(Refusal) as refused:
        decode_parts(stored, BlobLocation(blob_digest(stored), len(stored), "list"), 1024 * MIB)
    assert refused.value.reason is Reason.BLOB_MALFORMED
    assert problem in str(refused.value)


def test_a_line_that_no_checkpoint_takes_is_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 1000)
    path = tmp_path / "threads.jsonl"
    with path.open("wb") as file:
        lines.LinesWriter(file)
        file.write(b'{"kind":"checkpoint",' + b" " * 1000)
    with pytest.raises(Problem, match="longer than 1000 bytes"):
        lines.LinesSource(path)
