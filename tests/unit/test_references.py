from __future__ import annotations

from collections.abc import Sequence

import pytest

from tuskpoint_server.archive.references import (
    BlobReference,
    UnclearReferenceError,
    find_catalog,
    find_segment,
    parse_reference,
)
from tuskpoint_server.blobs.api import Listed
from tuskpoint_server.domain.digests import blob_digest
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.manifest import Segment, encode_segment
from tuskpoint_server.domain.model import BlobLocation

SHA256 = blob_digest(b"x")


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("blob-id_1", BlobReference("blob-id_1")),
        (" blob\n", BlobReference("blob")),
        ("blob/a patch", BlobReference("blob", "a patch")),
        ("blob/a/b:c", BlobReference("blob", "a/b:c")),
        (f"blob:{SHA256.hex()}", BlobReference("blob", "", SHA256)),
        (f"blob:{SHA256.hex().upper()}", BlobReference("blob", "", SHA256)),
    ],
)
def test_references(text: str, reference: BlobReference) -> None:
    assert parse_reference(text) == reference


@pytest.mark.parametrize(
    "text", ["", " ", "/", "blob/", "/x", ":", "blob:", "blob:00", f"blob:{SHA256.hex()}0", "a:zz"]
)
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(UnclearReferenceError):
        parse_reference(text)


class Store:
    """A quilt that is listed, and read by hash."""

    def __init__(self) -> None:
        self.listed: list[Listed] = []
        self.reads = 0
        self._data: dict[bytes, bytes] = {}

    def add(self, data: bytes, kind: str = "") -> BlobLocation:
        sha256 = blob_digest(data)
        self._data[sha256] = data
        at = BlobLocation(sha256, 0, "quilt", sha256.hex())
        self.listed.append(Listed(at, kind))
        return at

    async def list_blob(self, blob_id: str) -> Sequence[Listed]:
        assert blob_id == "quilt"
        return self.listed

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        self.reads += len(locations)
        return [self._data[at.sha256] for at in locations]


def segment(thread_id: str, number: int = 0) -> bytes:
    previous = BlobLocation(SHA256, 1, "b") if number else None
    return encode_segment(Segment(thread_id, 1, 1, number, previous))


QUILT = parse_reference("quilt")


async def test_the_kind_leads_without_a_read() -> None:
    store = Store()
    store.add(b"envelope", "envelope")
    at = store.add(b"catalog", "catalog")
    assert await find_catalog(store, QUILT) == at  # type: ignore[arg-type]
    assert store.reads == 0


async def test_a_patch_that_is_named_by_its_hash_needs_no_list() -> None:
    reference = parse_reference(f"quilt/{SHA256.hex()}")
    at = BlobLocation(SHA256, 0, "quilt", SHA256.hex())
    assert await find_catalog(Store(), reference) == at  # type: ignore[arg-type]
    assert await find_segment(Store(), reference) == at  # type: ignore[arg-type]


async def test_a_hash_that_the_blob_does_not_hold_is_refused() -> None:
    store = Store()
    other = store.add(b"other", "catalog")
    with pytest.raises(Refusal) as refused:
        await find_catalog(store, parse_reference(f"quilt:{SHA256.hex()}"))  # type: ignore[arg-type]
    assert refused.value.reason is Reason.BLOB_HASH_MISMATCH
    assert refused.value.metadata["expected"] == SHA256.hex()
    assert refused.value.metadata["actual"] == other.sha256.hex()


async def test_the_last_segment_of_one_thread_is_its_head() -> None:
    store = Store()
    for number in (2, 4, 3):
        store.add(segment("t", number), "segment")
    found = await find_segment(store, QUILT)  # type: ignore[arg-type]
    assert found == store.listed[1].location


async def test_threads_to_choose_from_are_named_but_not_all() -> None:
    store = Store()
    for number in range(30):
        store.add(segment(f"t{number}"))
    with pytest.raises(UnclearReferenceError) as refused:
        await find_segment(store, QUILT)  # type: ignore[arg-type]
    assert "thread 't19', segment 0" in str(refused.value)
    assert "t20" not in str(refused.value)
    assert "10 more" in str(refused.value)


async def test_a_quilt_without_any_is_refused() -> None:
    store = Store()
    store.add(b"envelope", "envelope")
    with pytest.raises(UnclearReferenceError, match="holds no segment"):
        await find_segment(store, QUILT)  # type: ignore[arg-type]
