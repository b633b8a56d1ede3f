"""A blob store of members in puts; members of the current put have the location "this quilt"."""

from __future__ import annotations

from collections import Counter

from tests.unit.core.formats.rows import sha
from tuskpoint_server.archive.formats.catalogs import (
    AdvancedRuns,
    Catalog,
    LiveRuns,
    advance,
    decode_catalog,
    encode_catalog,
)
from tuskpoint_server.archive.formats.records import Record
from tuskpoint_server.archive.formats.runs import RunPut, store_records
from tuskpoint_server.archive.formats.stored_json import MEMBER_BYTES
from tuskpoint_server.core.model import BlobLocation


class Members:
    """Members by hash, and a count of fetches."""

    def __init__(self) -> None:
        self.puts = 0
        self.stored: dict[bytes, tuple[str, bytes]] = {}
        self.fetched: Counter[bytes] = Counter()

    def store(self, data: bytes) -> BlobLocation:
        """Add a member to the current put."""
        assert len(data) <= MEMBER_BYTES
        sha256 = sha(data)
        assert sha256 not in self.stored
        self.stored[sha256] = (f"put {self.puts}", data)
        return BlobLocation(sha256, len(data), "", sha256.hex())

    async def fetch(self, location: BlobLocation) -> bytes:
        """Return a member, whose location must be the recorded one."""
        blob_id, data = self.stored[location.sha256]
        assert location.blob_id == blob_id
        assert location.size == len(data)
        self.fetched[location.sha256] += 1
        return data


class Tenant:
    """The stored flushes of a tenant: a run and a catalog in each put."""

    def __init__(self) -> None:
        self.members = Members()
        self.catalog = Catalog("tenant", "journal", 1, 0, 0)
        self.last = AdvancedRuns(LiveRuns())

    @property
    def runs(self) -> LiveRuns:
        return self.catalog.runs

    async def flush(self, records: list[Record]) -> None:
        """Store records, and advance the merges."""
        self.members.puts += 1
        put = RunPut(1, self.catalog.number + 1, self.members.store)
        new = store_records(records, put)
        self.last = await advance(self.runs, new, self.members.fetch, put)
        made = Catalog(
            "tenant", "journal", 1, self.catalog.number + 1, self.members.puts, None, self.last.runs
        )
        data = encode_catalog(made)
        self.catalog = decode_catalog(data, f"put {self.members.puts}")
