from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path

import pytest

from tuskpoint_server.archive.spool import MAGIC, Spool, SpoolDamaged
from tuskpoint_server.blobs.api import Member


def member(data: bytes) -> Member:
    return Member(hashlib.sha256(data).digest(), data)


MEMBERS = [member(b"one"), member(b""), member(bytes(100_000))]


def test_members_come_back_in_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    name = spool.write(MEMBERS)
    assert Spool(tmp_path / "spool").read(name) == MEMBERS
    assert spool.size_bytes() == (tmp_path / "spool" / name).stat().st_size
    spool.remove(name)
    spool.remove(name)
    assert spool.size_bytes() == 0


def test_only_known_files_are_kept(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    kept, orphan = spool.write(MEMBERS), spool.write(MEMBERS)
    spool.keep_only({kept})
    assert spool.read(kept) == MEMBERS
    with pytest.raises(SpoolDamaged):
        spool.read(orphan)


@pytest.mark.parametrize("place", [0, len(MAGIC) + 3, len(MAGIC) + 9, len(MAGIC) + 12, -1])
def test_flipped_bit_is_found(tmp_path: Path, place: int) -> None:
    spool = Spool(tmp_path)
    name = spool.write(MEMBERS)
    content = bytearray((tmp_path / name).read_bytes())
    content[place] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SpoolDamaged):
        spool.read(name)


@pytest.mark.parametrize("size", [0, 5, len(MAGIC) + 4, len(MAGIC) + 20, -1])
def test_cut_file_is_found(tmp_path: Path, size: int) -> None:
    spool = Spool(tmp_path)
    name = spool.write(MEMBERS)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[:size])
    with pytest.raises(SpoolDamaged):
        spool.read(name)


def test_file_and_directory_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[bool, int]] = []
    monkeypatch.setattr(
        os,
        "fsync",
        lambda file: synced.append((stat.S_ISDIR(os.fstat(file).st_mode), os.fstat(file).st_size)),
    )
    name = Spool(tmp_path).write(MEMBERS)
    assert [is_directory for is_directory, _ in synced] == [False, True]
    assert synced[0][1] == (tmp_path / name).stat().st_size


def test_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    spool = Spool(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        spool.write(MEMBERS)
    assert list(tmp_path.iterdir()) == []
