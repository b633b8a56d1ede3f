"""The members of a damaged pack are built again from the journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.archives import House, check_certified, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, refused
from tests.kit.epochs import years
from tuskpoint_server.core.errors import Reason, Refusal

THREADS = ("t", "u", "v")
STEPS = 3


async def grow(home: House) -> None:
    for name in THREADS:
        for step in range(STEPS):
            parent = f"{step - 1}" if step else ""
            values = {"x": f"value {step} of {name}".encode() * 50}
            await home.journal.save_checkpoint(
                TENANT, draft(f"{step}", parent, values, thread_id=name)
            )


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a member": lambda path: rewrite(path, lambda data: flipped(data, -1 % len(data))),
    "the index": lambda path: rewrite(path, lambda data: flipped(data, 20)),
    "the head": lambda path: rewrite(path, lambda data: flipped(data, 0)),
    "cut": lambda path: rewrite(path, lambda data: data[: len(data) // 2]),
    "empty": lambda path: rewrite(path, lambda _: b""),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_pack_is_built_again_if_its_spool_file_is_damaged(
    tmp_path: Path, store: MemoryStore, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with house(tmp_path, store) as home:
        await grow(home)
        store.verdict = lambda _: Reason.BLOB_UNAVAILABLE
        await refused(home.flush(), Reason.BLOB_UNAVAILABLE)
        [[name]] = await home.ask("SELECT spool FROM packs")
    spooled = tmp_path / "spool" / str(name)
    assert spooled.stat().st_size > 0
    DAMAGES[damage](spooled)
    store.verdict = lambda _: None
    async with house(tmp_path, store) as home:
        await home.flush()
        assert await check_certified(home) == len(THREADS) * STEPS
        assert await home.ask("SELECT number FROM packs") == []
        assert list((tmp_path / "spool").iterdir()) == []
    [pack] = store.packs.values()
    assert len(pack) >= len(THREADS) + 2, "segments, a run and a catalog"
    assert f"is built again: spool file {name}" in caplog.text


async def test_a_pack_is_stored_again_if_the_blob_store_damages_it(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=4) as time:
        await grow(time.home)
        await time.flush()
        [pack] = time.store.quilts.values()
        assert len(pack.members) >= len(THREADS) + 2
        for sha256, member in pack.members.items():
            pack.members[sha256] = replace(member, data=flipped(member.data, 10))
        with pytest.raises(Refusal) as error:
            await time.stored("1")
        assert error.value.reason is Reason.BLOB_HASH_MISMATCH
        time.advance(3)
        done = await time.look()
        assert (done.stored_again, done.lost) == (len(THREADS) * STEPS, 0)
        await time.flush()
        assert await check_certified(time.home) == len(THREADS) * STEPS
        await time.look()
        status = await time.home.archive.status(TENANT)
        assert (status.failing_renewals, status.gaps) == (0, 0)
