"""Lost, damaged or replaced objects are refused with both hashes, or left out on request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.archive.recover.recovered import (
    compare,
    grow,
    newest,
    recover,
    recovered_house,
)
from tests.kit.archives import House, house, keys_of
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import key, refused
from tuskpoint_server.archive.formats.catalogs import Catalog
from tuskpoint_server.archive.formats.manifests import fold
from tuskpoint_server.archive.formats.records import CheckpointRecord
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.values import blob_digest
from tuskpoint_server.features.recovery.recovery import RecoverySource
from tuskpoint_server.journal.database.database import Database


async def segment_of(home: House, checkpoint_id: str, thread_id: str = "t") -> bytes:
    entry = (await home.manifest(thread_id)).entries["", checkpoint_id]
    return entry.record.segment


async def test_the_first_damage_ends_a_recovery(
    home: House, store: MemoryStore, tmp_path: Path
) -> None:
    await grow(home, 3)
    store.lost.add(await segment_of(home, "0001"))
    with pytest.raises(Refusal) as caught:
        await recover(tmp_path / "second", store, await newest(home), home.clock)
    assert caught.value.reason is Reason.BLOB_NOT_FOUND
    with pytest.raises(RuntimeError, match="was not filled to the end"):
        await Database.open(tmp_path / "second" / "journal.db")
    store.lost.clear()
    done = await recover(tmp_path / "second", store, await newest(home), home.clock)
    assert done.checkpoints == 3


async def test_lost_checkpoints_are_left_out_and_named(
    home: House, store: MemoryStore, tmp_path: Path
) -> None:
    await grow(home, 3, "other")
    await grow(home, 3)
    store.lost.add(await segment_of(home, "0002"))
    source, directory = await newest(home), tmp_path / "second"
    recovered = await recover(directory, store, source, home.clock, skip_damaged=True)
    assert recovered.checkpoints == 5
    assert any("checkpoint '0002' of thread 't'" in line for line in recovered.left_out)
    async with house(directory, store, home.clock, keys=home.keys) as second:
        assert await keys_of(second, "t") == [key("0000"), key("0001")]
        await second.flush()
        # Left-out checkpoints are recorded as removed: the next recovery needs no permission.
        async with recovered_house(tmp_path / "third", second) as third:
            assert await keys_of(third, "t") == [key("0000"), key("0001")]
            assert len(await keys_of(third, "other")) == 3


async def test_a_lost_run_is_left_out_and_the_next_catalog_does_not_name_it(
    home: House, store: MemoryStore, tmp_path: Path
) -> None:
    await grow(home, 1, "t")
    await grow(home, 1, "u")
    source = await newest(home)
    assert isinstance(source.content, Catalog)
    lost = source.content.runs.oldest_first()[0].location.sha256
    store.lost.add(lost)
    with pytest.raises(Refusal):
        await recover(tmp_path / "strict", store, source, home.clock)
    directory = tmp_path / "second"
    recovered = await recover(directory, store, source, home.clock, skip_damaged=True)
    assert recovered.threads == 1
    assert "records from thread 't' to thread 't'" in recovered.left_out[0]
    async with house(directory, store, home.clock, keys=home.keys) as second:
        await grow(second, 1, "v")
        following = (await newest(second)).content
        assert isinstance(following, Catalog)
        assert lost not in {ref.location.sha256 for ref in following.runs.oldest_first()}
        async with recovered_house(tmp_path / "third", second) as third:
            assert await compare(second, third) == 2


@pytest.mark.parametrize("kind", ["catalog", "run", "segment"])
async def test_a_tampered_byte_is_refused_with_both_hashes(
    home: House, store: MemoryStore, tmp_path: Path, kind: str
) -> None:
    await grow(home, 2)
    source = await newest(home)
    tampered = store.members(kind)[-1]
    data = tampered.data[:-1] + bytes([tampered.data[-1] ^ 1])
    for pack in store.packs.values():
        if tampered.sha256 in pack:
            pack[tampered.sha256] = replace(tampered, data=data)
    again = recover(tmp_path / "second", store, source, home.clock)
    refusal = await refused(newest(home) if kind == "catalog" else again, Reason.BLOB_HASH_MISMATCH)
    again.close()
    assert refusal.metadata["expected"] == tampered.sha256.hex()
    assert refusal.metadata["actual"] == blob_digest(data).hex()


async def test_a_false_manifest_with_true_hashes_is_refused(
    home: House, store: MemoryStore, tmp_path: Path
) -> None:
    """A forger with the keys, but without the content, could write such a manifest."""
    await grow(home, 2)
    true = await home.manifest()
    first, second = (entry.record for entry in true.entries.values())
    for name, lie in (
        ("segment", replace(first, segment=second.segment)),
        ("state", replace(first, state_sha256=second.state_sha256)),
    ):
        records = [lie if record == first else record for record in true.records]
        assert any(isinstance(record, CheckpointRecord) for record in records)
        source = RecoverySource((await newest(home)).location, fold("t", records))
        with pytest.raises(Refusal) as caught:
            await recover(tmp_path / name, store, source, home.clock)
        assert caught.value.reason is Reason.BLOB_MALFORMED
        assert "checkpoint '0000'" in str(caught.value)
