"""Damaged or lost members in a blob directory are refused, and the next put restores them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.blobs.member_file import (
    MemberFile,
    blob_id_of,
    blob_path,
    pack_of,
    read_pack,
)
from tests.kit.blobs.stores import THREE, member, put, refusal_of
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import BlobLocation


def _changed(position: int) -> Callable[[bytes], bytes]:
    return lambda whole: whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]


# Damages of a pack of THREE, and the members that each damage does not affect.
INDEX_DAMAGES: dict[str, tuple[Callable[[bytes], bytes], set[int]]] = {
    "the magic": (_changed(0), set()),
    "the version": (_changed(8), set()),
    "the count": (_changed(12), {0, 1}),
    "a huge count": (lambda whole: whole[:12] + b"\xff" * 4 + whole[16:], set()),
    "no members": (lambda whole: whole[:12] + bytes(4) + whole[16:], set()),
    "every hash": (lambda whole: _changed(16)(_changed(16 + 64)(_changed(16 + 128)(whole))), set()),
    "an offset": (_changed(16 + 64 + 32), {0, 2}),
    "a size": (_changed(16 + 64 + 40), {0, 2}),
    "a kind": (lambda whole: whole[: 16 + 48] + b"\xff" + whole[16 + 49 :], {0, 1, 2}),
    "the end": (lambda whole: whole[:-1], {0}),
    "half of the index": (lambda whole: whole[: 16 + 70], set()),
    "half of the head": (lambda whole: whole[:10], set()),
    "everything": (lambda whole: b"", set()),
    "something behind it": (lambda whole: whole + b"\0", {0, 1, 2}),
}


async def test_a_damaged_member_is_refused_with_both_hashes_and_alone(
    blobs: DirectoryStore, root: Path
) -> None:
    first, second, third = await put(blobs, *THREE)
    MemberFile.at(root, second).flip(17)
    damaged_bytes = MemberFile.at(root, second).read_bytes()
    for read in (blobs.get(second), blobs.get_many([first, second])):
        refused = await refusal_of(read)
        assert refused.reason is Reason.BLOB_HASH_MISMATCH
        assert refused.metadata == {
            "blob_id": second.blob_id,
            "expected": second.sha256.hex(),
            "actual": hashlib.sha256(damaged_bytes).hexdigest(),
        }
    assert await blobs.get_many([first, third]) == [b"one", b""]


@pytest.mark.parametrize(("damage", "whole_ones"), INDEX_DAMAGES.values(), ids=INDEX_DAMAGES)
async def test_a_damaged_index_is_refused_with_both_hashes_of_the_pack(
    blobs: DirectoryStore, root: Path, damage: Callable[[bytes], bytes], whole_ones: set[int]
) -> None:
    locations = await put(blobs, *THREE)
    file = blob_path(root, locations[0].blob_id)
    whole = file.read_bytes()
    damaged = damage(whole)
    assert damaged != whole
    file.write_bytes(damaged)
    refused = [await refusal_of(blobs.renew(file.name))]
    for number, location in enumerate(locations):
        if number in whole_ones:
            assert await blobs.get(location) == THREE[number].data
        else:
            refused.append(await refusal_of(blobs.get(location)))
    for refusal in refused:
        assert refusal.reason is Reason.BLOB_HASH_MISMATCH
        assert refusal.metadata == {
            "blob_id": file.name,
            "expected": hashlib.sha256(whole).hexdigest(),
            "actual": hashlib.sha256(damaged).hexdigest(),
        }


async def test_a_pack_that_never_was_one_is_malformed(blobs: DirectoryStore, root: Path) -> None:
    """A program that writes to the directory can name any file by its hash."""
    whole = pack_of({"11" * 32: (b"one", b""), "22" * 32: (b"two", b"")})[:-1]
    file = blob_path(root, blob_id_of(whole))
    file.parent.mkdir()
    file.write_bytes(whole)
    location = BlobLocation(b"\x11" * 32, 3, file.name, "11" * 32)
    for call in (blobs.get(location), blobs.list_blob(file.name), blobs.renew(file.name)):
        assert (await refusal_of(call)).reason is Reason.BLOB_MALFORMED


async def test_a_pack_is_listed_only_as_it_was_stored(blobs: DirectoryStore, root: Path) -> None:
    """The ID of a pack covers its list: a forger cannot add a catalog."""
    [location, *_] = await put(blobs, *THREE)
    file = blob_path(root, location.blob_id)
    members = read_pack(file.read_bytes())
    members["ab" * 32] = (b"{}", b"catalog")
    file.write_bytes(pack_of(members))
    for call in (blobs.list_blob(location.blob_id), blobs.renew(location.blob_id)):
        assert (await refusal_of(call)).reason is Reason.BLOB_HASH_MISMATCH


async def test_storing_again_heals_also_for_whom_has_read_the_damage(
    blobs: DirectoryStore, root: Path
) -> None:
    other = DirectoryStore(root)
    locations = await put(blobs, *THREE)
    MemberFile.at(root, locations[0]).write_bytes(b"of another length")
    for store in (blobs, other):
        assert (await refusal_of(store.get(locations[0]))).reason is Reason.BLOB_HASH_MISMATCH
    await put(other, *THREE)
    for store in (blobs, other):
        assert await store.get_many(locations) == [member.data for member in THREE]
    await other.close()


async def test_a_pack_that_was_healed_is_read_though_a_damaged_index_is_known(
    blobs: DirectoryStore, root: Path
) -> None:
    members = sorted((member(b"%d" % n) for n in range(2)), key=lambda member: member.sha256)
    first, second = await put(blobs, *members)
    file = blob_path(root, first.blob_id)
    whole = file.read_bytes()
    MemberFile.at(root, first).write_bytes(b"of another length")
    # The member has another position than in the stored pack, and is whole.
    assert await blobs.get(second) == members[1].data
    file.write_bytes(whole)
    assert await blobs.get(second) == members[1].data
    assert await blobs.get(first) == members[0].data


async def test_unreadable_blob_is_not_a_missing_one(blobs: DirectoryStore, root: Path) -> None:
    name = blob_id_of(b"content")
    blob_path(root, name).mkdir(parents=True)
    location = BlobLocation(hashlib.sha256(b"content").digest(), 7, name)
    for call in (blobs.get(location), blobs.list_blob(name), blobs.remove(name)):
        assert (await refusal_of(call)).reason is Reason.BLOB_UNAVAILABLE


async def test_file_that_nobody_stored_is_not_read_into_memory(
    blobs: DirectoryStore, root: Path
) -> None:
    [alone] = await put(blobs, member(b"content"))
    [packed, *_] = await put(blobs, *THREE)
    for location in (alone, packed):
        with blob_path(root, location.blob_id).open("r+b") as file:
            file.truncate(1 << 40)
    assert await blobs.get(packed) == b"one"  # the span of this member has not changed
    other = replace(packed, identifier="00" * 32)
    for call in (blobs.get(alone), blobs.get(other), blobs.list_blob(packed.blob_id)):
        assert (await refusal_of(call)).reason is Reason.BLOB_MALFORMED
