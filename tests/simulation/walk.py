"""From a catalog to everything, by what the store holds and by nothing else."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.simulation.faulty_store import Vault
from tests.simulation.model import Place
from tuskpoint_server.archive.reading import read_checkpoint
from tuskpoint_server.domain import manifest as manifests
from tuskpoint_server.domain.catalog import Catalog, ThreadHead, decode_catalog, read_heads
from tuskpoint_server.domain.digests import blob_digest
from tuskpoint_server.domain.envelope import Envelope, decode_envelope, merge
from tuskpoint_server.domain.manifest import ManifestEntry, Segment, decode_segment, fold
from tuskpoint_server.domain.model import BlobLocation, Checkpoint, Entry
from tuskpoint_server.domain.parts import decode_parts, is_part_list, join
from tuskpoint_server.domain.stored_json import resolved

_T = TypeVar("_T")


class Unreadable(Exception):
    """The store does not hold what a reference leads to."""


@dataclass(frozen=True)
class StoredThread:
    """A thread as its manifest tells of it."""

    head: ThreadHead
    entries: dict[Place, ManifestEntry]


class PlainStore:
    """The reading half of `blobs.api.BlobStore` over a vault, without any fault."""

    backend = "simulated"

    def __init__(self, vault: Vault) -> None:
        self._walker = Walker(vault)

    async def get(self, location: BlobLocation) -> bytes:
        """Return the bytes at a location."""
        return self._walker.bytes_at(location)

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        """Return the bytes at some locations."""
        return [self._walker.bytes_at(location) for location in locations]


class PlainArchive:
    """As much of the archive as completing what the journal gave up needs."""

    def __init__(self, vault: Vault) -> None:
        self._store: Any = PlainStore(vault)

    async def read(self, tenant: str, entry: Entry, *, bypass_cache: bool) -> Checkpoint:
        """Return a checkpoint from its envelopes."""
        return await read_checkpoint(self._store, entry)


class Walker:
    """Reads a vault without faults; what it once read it does not read again."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._heads: dict[BlobLocation, dict[str, ThreadHead]] = {}
        self._threads: dict[ThreadHead, StoredThread] = {}

    def bytes_at(self, location: BlobLocation) -> bytes:
        """Return bytes, hash and size checked.

        Raises:
            Unreadable: They are not there, or others are.
        """
        try:
            data = self._vault.bytes_at(location)
        except KeyError:
            raise Unreadable(f"nothing lies at {location}") from None
        if blob_digest(data) != location.sha256 or (location.size not in (0, len(data))):
            raise Unreadable(f"other bytes lie at {location}")
        return data

    async def fetch(self, location: BlobLocation) -> bytes:
        """Return bytes; never waits."""
        return self.bytes_at(location)

    def catalog(self, location: BlobLocation) -> Catalog:
        """Return the catalog at a location."""
        return decode_catalog(self.bytes_at(location), location)

    def heads(self, location: BlobLocation) -> dict[str, ThreadHead]:
        """Return the newest word on every thread."""

        async def read() -> dict[str, ThreadHead]:
            return {head.thread_id: head async for head in read_heads(location, self.fetch)}

        if location not in self._heads:
            self._heads[location] = _at_once(read())
        return self._heads[location]

    def thread(self, head: ThreadHead) -> StoredThread:
        """Return a thread by its head, its chain of segments checked."""
        if head.manifest is None or head.ended:
            return StoredThread(head, {})
        if head in self._threads:
            return self._threads[head]
        check = manifests.ChainCheck(head.manifest, head.thread_id, head.incarnation)
        segments: list[tuple[Segment, str]] = []
        while (wanted := check.wanted) is not None:
            data = self.bytes_at(wanted)
            problem = check.accept(data)
            if problem:
                raise Unreadable(f"thread {head.thread_id}: {problem}")
            segments.insert(0, (decode_segment(data, wanted.blob_id), wanted.blob_id))
        self._threads[head] = StoredThread(head, fold(segments))
        return self._threads[head]

    def checkpoint(self, entry: ManifestEntry) -> Envelope:
        """Return a checkpoint from its envelopes."""
        full = self._envelope(entry.envelope)
        addenda = [self._envelope(location) for location in entry.addenda]
        return merge(full, addenda, entry.envelope.sha256, entry.envelope.blob_id)

    def _envelope(self, location: BlobLocation) -> Envelope:
        data = self.bytes_at(location)
        if is_part_list(data):
            listed = decode_parts(data, location, 1 << 30)
            parts = [self.bytes_at(resolved(part, location.blob_id)) for part in listed.parts]
            data = join(listed, parts, location.blob_id)
        return decode_envelope(data, location.blob_id)


def _at_once(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never waits, outside or inside any loop."""
    try:
        work.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    work.close()
    raise RuntimeError("a walk had to wait")
