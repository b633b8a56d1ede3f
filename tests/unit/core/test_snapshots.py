"""Snapshots are read from checkpoints; a foreign catalog may contain any bytes."""

from __future__ import annotations

import pytest

from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import Value
from tuskpoint_server.features.lineage import snapshot_state as snapshots
from tuskpoint_server.features.lineage.snapshot_state import MEMBERS, Snapshot, SnapshotMember

MADE = Snapshot("id", "session", "host", "/", b"{}", (SnapshotMember("t", "c", "agent", True),), 7)


def test_what_is_encoded_is_decoded() -> None:
    metadata, _, values = snapshots.encode(MADE)
    assert snapshots.decode("id", 7, metadata, values) == MADE


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"null", b'{"session_id": 1}', b"\xff"])
def test_foreign_metadata_is_refused(data: bytes) -> None:
    _, _, values = snapshots.encode(MADE)
    check_refused(data, values)


@pytest.mark.parametrize(
    "data", [None, b"", b"7", b"[7]", b"[{}]", b'[{"thread_id": 1}]', b"[" * 100_000]
)
def test_foreign_members_are_refused(data: bytes | None) -> None:
    metadata, _, values = snapshots.encode(MADE)
    del values[MEMBERS]
    check_refused(metadata, values if data is None else {**values, MEMBERS: Value("json", data)})


def check_refused(metadata: bytes, values: dict[str, Value]) -> None:
    with pytest.raises(Refusal) as refused:
        snapshots.decode("id", 7, metadata, values)
    assert refused.value.reason is Reason.BLOB_MALFORMED
