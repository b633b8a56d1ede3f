"""Intact checkpoints, uncertified checkpoints and every kind of damage get the right verdicts."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.kit.archives import House, house
from tests.kit.blobs.member_file import MemberFile, blob_path
from tests.kit.drafts import TENANT, Reference, channel, draft, key, refused, write
from tests.kit.journal import bind_again
from tests.kit.verdicts import FAIL, PASS, RETRACTED, UNVERIFIED, intact, verify
from tuskpoint_server.archive.evict.eviction import evict_family
from tuskpoint_server.archive.formats.catalogs import decode_catalog
from tuskpoint_server.archive.rows import gaps
from tuskpoint_server.blobs.directory.store import DirectoryStore
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import BlobLocation, Value, View
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.features.lineage.lineage import LineageRows
from tuskpoint_server.features.removal.removal_rows import RemovalRows

FEW = 10


def name(number: int) -> str:
    return f"{number:04d}"


NAMES = [name(number) for number in range(FEW)]


async def grow(home: House, count: int, start: int = 0, thread_id: str = "t") -> None:
    """Append checkpoints, each with its own values, an inherited value and a write."""
    for number in range(start, start + count):
        large = channel("large", random.Random(1).randbytes(5000))
        channels = (
            channel("step", b"%d" % number, number),
            channel("large", Reference.INHERIT) if number else large,
        )
        await home.journal.save_checkpoint(
            TENANT,
            draft(
                name(number),
                name(number - 1) if number else "",
                channels,
                thread_id=thread_id,
                metadata={"step": number},
                writes=(write("w", b"of %d" % number),),
            ),
        )


async def late_writes(home: House, numbers: Sequence[int]) -> None:
    for number in numbers:
        await home.journal.save_writes(TENANT, key(name(number)), [write("late", b"x", task="u")])


async def certified(home: House) -> None:
    """Certify each checkpoint with its own flush, and late writes with another flush."""
    for number in range(FEW):
        await grow(home, 1, number)
        await home.flush()
    await late_writes(home, range(FEW))
    await home.flush()


async def segments_of(home: House, checkpoint_id: str) -> tuple[BlobLocation, ...]:
    checkpoint = await home.journal.load(TENANT, key(checkpoint_id), View.ENTRY)
    assert checkpoint is not None
    return checkpoint.entry.segments


async def tamper(home: House, statement: str, *values: object) -> None:
    """Change a row behind the server's back."""

    def change(connection: object) -> None:
        cursor = connection.connection.cursor().execute(statement, values)  # type: ignore[attr-defined]
        assert cursor.rowcount == 1

    home.journal.is_edited = True
    await home.journal.database.transact(lambda batch: change(batch.connection))


# --- intact checkpoints --------------------------------------------------------------------


async def test_an_intact_thread_passes(home: House) -> None:
    await certified(home)
    verification = await verify(home)
    assert (verification.chain_problem, verification.mismatches) == ("", 0)
    assert verification.kinds == dict.fromkeys(NAMES, PASS)
    for verdict in verification.verdicts:
        assert verdict.location is not None
        assert verdict.actual_sha256 == verdict.location.sha256 != b""
        assert verdict.detail == ""
    assert verification.of(name(3)).location == (await segments_of(home, name(3)))[0]


async def test_an_uncertified_checkpoint_is_not_verified(home: House) -> None:
    await grow(home, 2)
    verification = await verify(home)
    assert verification.kinds == {name(0): UNVERIFIED, name(1): UNVERIFIED}
    assert verification.verdicts[0].location is None
    await home.flush()
    await late_writes(home, [0])
    assert await intact(home) == {name(0): UNVERIFIED, name(1): PASS}


async def test_order_is_by_namespace_and_id(home: House) -> None:
    places = [("", "2"), ("inner", "1"), ("", "4"), ("a", "3")]
    for ns, checkpoint_id in places:
        await home.journal.save_checkpoint(TENANT, draft(checkpoint_id, "", {"x": b"1"}, ns=ns))
    await home.flush()
    verification = await verify(home)
    assert [
        (verdict.key.checkpoint_ns, verdict.key.checkpoint_id) for verdict in verification.verdicts
    ] == sorted(places)
    assert verification.counts == {PASS: 4}


async def test_removed_checkpoints_are_retracted_before_and_after_the_runs_record_it(
    home: House,
) -> None:
    await certified(home)
    await RemovalRows(home.journal.database).prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    expected = {**dict.fromkeys(NAMES, RETRACTED), NAMES[-1]: PASS}
    assert await intact(home) == expected
    await home.flush()
    assert await intact(home) == expected
    await grow(home, 1)
    assert (await intact(home))[name(0)] is UNVERIFIED
    await home.flush()
    assert (await intact(home))[name(0)] is PASS


async def test_a_thread_that_is_not_there(home: House) -> None:
    async def begun() -> object:
        return await home.archive.verification(TENANT, "t")

    assert await begun() is None
    await grow(home, 2)
    await home.flush()
    await RemovalRows(home.journal.database).delete_thread(TENANT, "t")
    assert await begun() is None
    await home.journal.save_checkpoint(TENANT, draft(name(9)))
    assert await intact(home) == {name(9): UNVERIFIED}
    await home.flush()
    assert await intact(home) == {name(9): PASS}


async def test_copies_are_verified_by_the_segments_of_their_origin(
    home: House, blobs: Path
) -> None:
    await certified(home)
    lineage = LineageRows(home.journal.database)
    await lineage.copy_thread(TENANT, "t", "copy", "")
    await lineage.fork(TENANT, key(name(3)), "fork", "")
    rolled_back = await lineage.rollback(TENANT, key(name(3)), "", None)
    await home.flush()
    assert await intact(home, "copy") == dict.fromkeys(NAMES, PASS)
    assert await intact(home, "fork") == {name(3): PASS}
    assert len(await intact(home)) == FEW + 1, rolled_back
    assert set((await intact(home)).values()) == {PASS}
    [own, *_] = await segments_of(home, name(3))
    await RemovalRows(home.journal.database).delete_thread(TENANT, "t")
    await home.flush()
    assert await intact(home, "copy") == dict.fromkeys(NAMES, PASS)
    MemberFile.at(blobs, own).flip()
    assert (await verify(home, "copy")).counts == {FAIL: 1, PASS: FEW - 1}
    assert (await verify(home, "fork")).kinds == {name(3): FAIL}


async def test_a_copy_of_what_a_copy_saved_again_is_verified_by_the_newer_segment(
    home: House,
) -> None:
    """The segment of the writes has the row of the first thread, whose numbers are greater."""
    await certified(home)
    lineage = LineageRows(home.journal.database)
    await lineage.fork(TENANT, key(name(3)), "fork", "")
    again = draft(name(3), "", (channel("step", b"again", 1),), thread_id="fork")
    await home.journal.save_checkpoint(TENANT, again)
    await home.flush()
    await lineage.fork(TENANT, key(name(3), thread_id="fork"), "copy", "")
    await home.flush()
    assert await intact(home, "copy") == {name(3): PASS}
    copied = await home.journal.load(TENANT, key(name(3), "copy"), View.ENTRY)
    assert copied is not None
    stored = await home.archive.read(copied.entry)
    assert stored.state is not None
    assert [channel.value for channel in stored.state.channels] == [Value("msgpack", b"again")]


async def test_evicted_values_are_verified_too(home: House, blobs: Path) -> None:
    await certified(home)
    await home.ask("SELECT 1")
    [[family]] = await home.ask("SELECT family FROM threads")
    now_us = home.clock.now_us + 1
    await evict_family(home.journal.database, int(str(family)), now_us, 1 << 40)
    [[evicted]] = await home.ask("SELECT count(*) FROM contents WHERE data IS NULL")
    assert int(str(evicted)) > 0
    assert await intact(home) == dict.fromkeys(NAMES, PASS)
    [segment, *_] = await segments_of(home, name(7))
    MemberFile.at(blobs, segment).flip()
    assert (await verify(home)).of(name(7)).kind is FAIL


# --- damaged segments ----------------------------------------------------------------------


@pytest.mark.parametrize("ordinal", [0, 1])
@pytest.mark.parametrize("damage", ["changed", "cut", "replaced"])
async def test_a_damaged_segment_fails_its_checkpoints(
    home: House, blobs: Path, damage: str, ordinal: int
) -> None:
    await certified(home)
    location = (await segments_of(home, name(7)))[ordinal]
    other = (await segments_of(home, name(8)))[0]
    stored = MemberFile.at(blobs, location)
    whole = stored.read_bytes()
    bad = {
        "changed": whole[:-1] + bytes([whole[-1] ^ 1]),
        "cut": whole[:-1],
        "replaced": MemberFile.at(blobs, other).read_bytes(),
    }[damage]
    stored.write_bytes(bad)
    verification = await verify(home)
    hit = [name(7)] if ordinal == 0 else NAMES  # all late writes are in one segment
    assert verification.kinds == {
        checkpoint_id: FAIL if checkpoint_id in hit else PASS for checkpoint_id in NAMES
    }
    assert (verification.chain_problem, verification.mismatches) == ("", 1)
    verdict = verification.of(name(7))
    assert verdict.location == location
    actual = hashlib.sha256(bad)
    assert verdict.actual_sha256 == actual.digest()
    assert actual.hexdigest() in verdict.detail
    assert location.sha256.hex() in verdict.detail
    stored.write_bytes(whole)
    assert await intact(home) == dict.fromkeys(NAMES, PASS)


async def test_a_damaged_segment_fails_every_thread_that_names_it(home: House, blobs: Path) -> None:
    """All checkpoints inherit a value that only the segment of the first checkpoint contains."""
    await certified(home)
    first = (await segments_of(home, name(0)))[0]
    MemberFile.at(blobs, first).flip()
    verification = await verify(home)
    assert verification.kinds == dict.fromkeys(NAMES, FAIL)
    assert {verdict.location for verdict in verification.verdicts} == {first}
    assert verification.mismatches == 1


async def test_a_lost_file_fails_everything_in_it(home: House, blobs: Path) -> None:
    await certified(home)
    [location, *_] = await segments_of(home, name(7))
    file = blob_path(blobs, location.blob_id)
    whole = file.read_bytes()
    file.unlink()
    verification = await verify(home)
    assert verification.of(name(7)).kind is FAIL
    assert verification.of(name(7)).actual_sha256 == b""
    assert location.blob_id in verification.of(name(7)).detail
    assert [
        checkpoint_id for checkpoint_id in NAMES if verification.kinds[checkpoint_id] is FAIL
    ] == [name(7)]
    file.write_bytes(whole)
    assert await intact(home) == dict.fromkeys(NAMES, PASS)


async def test_a_damaged_segment_fails_though_a_later_change_waits(
    home: House, blobs: Path
) -> None:
    await grow(home, 1)
    await home.flush()
    await late_writes(home, [0])
    [location] = await segments_of(home, name(0))
    MemberFile.at(blobs, location).flip()
    assert (await verify(home)).kinds == {name(0): FAIL}


async def test_a_store_that_cannot_be_read_gives_no_verdict(home: House, blobs: Path) -> None:
    await certified(home)
    [location, *_] = await segments_of(home, name(7))
    path = blob_path(blobs, location.blob_id)
    path.unlink()
    path.mkdir()  # reading a directory is an error that says nothing about the stored bytes
    await refused(verify(home), Reason.BLOB_UNAVAILABLE)


# --- gaps ---------------------------------------------------------------------------------


async def test_a_known_gap_is_not_verified_and_has_a_reason(home: House, blobs: Path) -> None:
    await certified(home)
    [location, *_] = await segments_of(home, name(7))
    blob_path(blobs, location.blob_id).unlink()
    [[thread]] = await home.ask("SELECT number FROM threads")
    await home.journal.database.transact(
        lambda batch: gaps.record_lost(
            batch.connection, TENANT, int(str(thread)), location.sha256, "the blob lapsed", 1
        )
    )
    verification = await verify(home)
    assert verification.kinds == {
        checkpoint_id: UNVERIFIED if checkpoint_id == name(7) else PASS for checkpoint_id in NAMES
    }
    assert verification.of(name(7)).detail == "the blob lapsed"


async def test_a_gap_that_takes_the_only_copy_fails(home: House, blobs: Path) -> None:
    await certified(home)
    [[thread, family]] = await home.ask("SELECT number, family FROM threads")
    now_us = home.clock.now_us + 1
    await evict_family(home.journal.database, int(str(family)), now_us, 1 << 40)
    [location, *_] = await segments_of(home, name(7))
    blob_path(blobs, location.blob_id).unlink()
    await home.journal.database.transact(
        lambda batch: gaps.record_lost(
            batch.connection, TENANT, int(str(thread)), location.sha256, "the blob lapsed", 1
        )
    )
    verification = await verify(home)
    assert verification.of(name(7)).kind is FAIL
    assert verification.of(name(7)).detail == "the blob lapsed"


# --- the chain from the catalog ------------------------------------------------------------


async def catalog_and_runs(home: House) -> tuple[BlobLocation, list[BlobLocation]]:
    known = await home.archive.catalog(TENANT)
    assert known is not None
    stored = decode_catalog(await home.content(known.location), known.location.blob_id)
    return known.location, [ref.location for ref in stored.runs.oldest_first()]


DAMAGES: dict[str, Callable[[MemberFile, Sequence[MemberFile]], None]] = {
    "a changed catalog": lambda catalog, runs: catalog.flip(),
    "a catalog cut off": lambda catalog, runs: catalog.write_bytes(catalog.read_bytes()[:-1]),
    "a changed run": lambda catalog, runs: runs[1].flip(),
    "a changed first run": lambda catalog, runs: runs[0].flip(0),
    "a run that is another": lambda catalog, runs: runs[1].write_bytes(runs[0].read_bytes()),
    "a catalog that is a run": lambda catalog, runs: catalog.write_bytes(runs[0].read_bytes()),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_way_to_the_manifest_is_reported(
    home: House, blobs: Path, damage: str
) -> None:
    for number in range(3):
        await grow(home, 1, number)
        await home.flush()
    catalog, runs = await catalog_and_runs(home)
    assert len(runs) == 3
    stored = MemberFile.at(blobs, catalog)
    files = [MemberFile.at(blobs, run) for run in runs]
    before = {file: file.read_bytes() for file in (stored, *files)}
    DAMAGES[damage](stored, files)
    [damaged] = [file for file, whole in before.items() if file.read_bytes() != whole]
    verification = await verify(home)
    assert damaged.blob_id in verification.chain_problem
    assert hashlib.sha256(damaged.read_bytes()).hexdigest() in verification.chain_problem
    assert verification.counts == {PASS: 3}, "the segments are those that were recorded"
    assert verification.mismatches == 1


async def test_a_lost_run_is_reported(home: House, blobs: Path) -> None:
    await grow(home, 1)
    await home.flush()
    _, [first] = await catalog_and_runs(home)
    await grow(home, 1, 1)
    await home.flush()
    blob_path(blobs, first.blob_id).unlink()
    verification = await verify(home)
    assert first.blob_id in verification.chain_problem
    assert verification.kinds == {name(0): FAIL, name(1): FAIL}, "its segments lay there too"
    assert verification.mismatches == 0


# --- a journal that contradicts the blobs --------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "values", "detail"),
    [
        ("UPDATE checkpoints SET metadata = ? WHERE checkpoint_id = ?", [b"{}"], "the metadata in"),
        ("UPDATE checkpoints SET state = ? WHERE checkpoint_id = ?", [b""], "the state in"),
        ("UPDATE checkpoints SET label = ? WHERE checkpoint_id = ?", ["x"], "differ in label"),
        ("UPDATE checkpoints SET parent_id = ? WHERE checkpoint_id = ?", ["x"], "in parent_id"),
        ("UPDATE checkpoints SET forked_from = ? WHERE checkpoint_id = ?", ["x"], "in lineage"),
        ("DELETE FROM writes WHERE task_id = ? AND checkpoint_id = ?", ["u"], "pending writes in"),
        ("UPDATE checkpoints SET seq = ? WHERE checkpoint_id = ?", [1], "has change 4 of it and"),
    ],
)
async def test_a_journal_that_differs_from_the_blobs(
    home: House, statement: str, values: list[object], detail: str
) -> None:
    await grow(home, FEW)
    await late_writes(home, range(FEW))
    await home.flush()
    await tamper(home, statement, *values, name(3))
    verification = await verify(home)
    assert verification.kinds == {
        checkpoint_id: FAIL if checkpoint_id == name(3) else PASS for checkpoint_id in NAMES
    }
    assert detail in verification.of(name(3)).detail
    assert verification.chain_problem == ""


async def test_an_entry_that_the_journal_does_not_know(home: House) -> None:
    await certified(home)
    [location, *_] = await segments_of(home, name(3))
    await tamper(home, "DELETE FROM checkpoints WHERE checkpoint_id = ?", name(3))
    verdict = (await verify(home)).of(name(3))
    assert (verdict.kind, verdict.location) == (FAIL, location)
    assert "the journal does not know it" in verdict.detail


async def test_a_certified_checkpoint_that_is_missing_from_the_manifest(home: House) -> None:
    await grow(home, 1)
    await home.flush()
    await grow(home, 1, 1)
    await tamper(home, "UPDATE threads SET certified_seq = seq")
    await bind_again(home.journal.database)  # as if the server had set the number
    await tamper(home, "UPDATE members SET last_seq = 99 WHERE last_seq IS NOT NULL")
    verification = await verify(home)
    assert verification.kinds == {name(0): PASS, name(1): FAIL}


async def test_a_segment_that_the_journal_mixes_up(home: House) -> None:
    await certified(home)
    first, second = (await segments_of(home, name(3)))[0], (await segments_of(home, name(4)))[0]
    await tamper(
        home, "UPDATE members SET first_seq = -1, last_seq = -1 WHERE sha256 = ?", second.sha256
    )
    await tamper(
        home,
        "UPDATE members SET last_seq = last_seq + 1 WHERE sha256 = ?",
        first.sha256,
    )
    verification = await verify(home)
    assert verification.kinds == {
        checkpoint_id: FAIL if checkpoint_id == name(4) else PASS for checkpoint_id in NAMES
    }


# --- cost of a verification ----------------------------------------------------------------


class CountingStore(DirectoryStore):
    """A directory that counts reads."""

    reads = 0

    async def get(self, location: BlobLocation, **options: object) -> bytes:
        self.reads += 1
        return await super().get(location, **options)  # type: ignore[arg-type]

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        self.reads += 1
        return await super().get_many(locations)


async def test_a_long_thread_is_verified_with_few_reads(tmp_path: Path, blobs: Path) -> None:
    store = CountingStore(blobs)
    async with house(tmp_path, store) as home:
        await grow(home, 2000)
        await home.flush()
        store.reads = 0
        verification = await verify(home)
        assert verification.counts == {PASS: 2000}
        assert store.reads <= 8, "catalog, run, segments"
    await store.close()


async def test_a_thread_of_many_flushes_is_read_in_batches(tmp_path: Path, blobs: Path) -> None:
    store = CountingStore(blobs)
    async with house(tmp_path, store) as home:
        for number in range(100):
            await grow(home, 1, number)
            await home.flush()
        _, runs = await catalog_and_runs(home)
        store.reads = 0
        verification = await verify(home)
        assert verification.counts == {PASS: 100}
        assert store.reads <= len(runs) + 4, "the segments of a page take one read"
    await store.close()
