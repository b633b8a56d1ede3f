"""Directories that are lost, rolled back or exchanged: a server says so, and overwrites nothing.

Real servers in processes of their own. Each test loses what an operator loses: a disk that is not
mounted, a journal out of an old snapshot, the data directory of another server.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.integration.moving.commands import run
from tests.kit.archives import check_certified, grow, house
from tests.kit.blobs.s3_server import ENVIRONMENT, S3Server
from tests.kit.blobs.stores import MemoryStore
from tests.kit.databases import in_postgres, place, postgres
from tests.kit.drafts import TENANT, refused
from tests.kit.servers.processes import FLUSH_OFTEN, ServerProcess, WalrusProcess
from tuskpoint import Client, Unavailable, cli
from tuskpoint_server.core import process
from tuskpoint_server.core.errors import Reason

KEEPING = {"TUSKPOINT_FLUSH_INTERVAL": "0.2"}  # the journal keeps the values
SECONDS = 60.0
SAID = "tuskpoint-server: "


class Home:
    """A server whose journal, blobs and pointer are in three directories.

    Attributes:
        blobs: The blob directory.
        pointer: The pointer file.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.blobs = folder / "blobs"
        self.pointer = folder / "elsewhere" / "catalog"
        self.data = folder / "data"
        self._settings = {
            **KEEPING,
            "TUSKPOINT_BLOB_DIR": str(self.blobs),
            "TUSKPOINT_CATALOG_POINTER": str(self.pointer),
            **(settings or {}),
        }

    @property
    def named(self) -> str:
        """The catalog that the pointer file names."""
        return self.pointer.read_text("utf-8").strip()

    def server(self, **changed: object) -> ServerProcess:
        """Return the server, not yet started; settings may be changed by their names."""
        given = {f"TUSKPOINT_{name.upper()}": str(value) for name, value in changed.items()}
        return ServerProcess(self.folder, self._settings | given)

    @contextmanager
    def serving(self, **changed: object) -> Iterator[Client]:
        """Run the server, and connect to it."""
        with self.server(**changed) as server:
            server.start()
            with Client(server.target) as client:
                yield client
            assert server.stop() == 0, server.last_words()

    def refused(self, code: int, **changed: object) -> str:
        """Start the server, which ends with this code; return its one line."""
        with self.server(**changed) as server:
            server.log.unlink(missing_ok=True)
            server.launch()
            assert server.ended(SECONDS) == code, server.last_words()
            lines = server.log.read_text("utf-8").splitlines()
        [line] = [line for line in lines if line.startswith(SAID)]
        assert lines[-1] == line
        return line.removeprefix(SAID)

    def roll_back(self, kept: Path) -> None:
        """Put an older copy of the data directory in the place of the present one."""
        shutil.rmtree(self.data)
        shutil.copytree(kept, self.data)

    def recovered(self, catalog: str, folder: Path) -> list[str]:
        """Recover from a catalog; return the checkpoints of thread "t"."""
        arguments = ["--data-dir", str(folder / "data"), "--blob-dir", str(self.blobs)]
        folder.mkdir()
        ended = run(folder / "log", "recover", *arguments, f"--catalog={catalog}")
        assert ended.code == 0, ended.errors
        database = sqlite3.connect(folder / "data" / "journal.db")
        with closing(database):
            return [name for (name,) in database.execute("SELECT checkpoint_id FROM checkpoints")]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def health_of(client: Client) -> str:
    """Return what an operator reads as the last error."""
    return client.status().last_error


def eventually(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def catalog_in(data: Path) -> dict[str, object]:
    """Return the newest catalog in a journal of SQLite."""
    with closing(sqlite3.connect(data / "journal.db")) as database:
        row = database.execute(
            "SELECT generation, number FROM catalogs WHERE tenant = 'default'"
        ).fetchone()
        [identity] = database.execute(
            "SELECT value FROM journal_info WHERE name = 'journal_id'"
        ).fetchone()
    return {"place": tuple(row), "journal_id": identity}


def empty_directory(home: Home) -> None:
    home.blobs.rename(home.folder / "away")
    home.blobs.mkdir()


def no_directory(home: Home) -> None:
    home.blobs.rename(home.folder / "away")


def no_files(home: Home) -> None:
    """Take the blobs, and leave what a new blob directory has."""
    shutil.copytree(home.blobs, home.folder / "away")
    for shard in home.blobs.glob("??"):
        shutil.rmtree(shard)


def put_back(home: Home) -> None:
    shutil.rmtree(home.blobs, ignore_errors=True)
    (home.folder / "away").rename(home.blobs)


@pytest.mark.parametrize("lose", [no_directory, empty_directory, no_files])
def test_a_blob_directory_that_is_lost_ends_the_start(
    home: Home, lose: Callable[[Home], None]
) -> None:
    with home.serving() as client:
        saved = client.save("t", {"n": 1}, durability="certified")
    named = home.named
    lose(home)
    before = sorted(home.blobs.rglob("*")) if home.blobs.exists() else None
    line = home.refused(process.EXIT_ARCHIVE)
    assert str(home.blobs) in line
    assert f"--accept-missing-blobs={named}" in line
    # Nothing is made in what may be a mount point.
    assert (sorted(home.blobs.rglob("*")) if home.blobs.exists() else None) == before
    assert home.named == named
    put_back(home)
    with home.serving() as client:
        assert client.load("t").checkpoint_id == saved
        client.save("t", {"n": 2}, durability="certified")


def test_the_blobs_of_another_server_are_told_from_its_own(tmp_path: Path) -> None:
    one, other = Home(tmp_path / "one"), Home(tmp_path / "other")
    for home in (one, other):
        with home.serving() as client:
            client.save("t", {"n": 1}, durability="certified")
    line = one.refused(process.EXIT_ARCHIVE, blob_dir=other.blobs)
    assert one.named in line
    with one.serving():
        pass


def test_the_data_directory_of_another_server_is_told_by_the_pointer(tmp_path: Path) -> None:
    """Both use one blob directory, as servers may."""
    shared = {"TUSKPOINT_BLOB_DIR": str(tmp_path / "blobs")}
    one, other = Home(tmp_path / "one", shared), Home(tmp_path / "other", shared)
    for home in (one, other):
        with home.serving() as client:
            client.save("t", {"n": 1}, durability="certified")
    named = one.named
    line = one.refused(process.EXIT_JOURNAL, catalog_pointer=other.pointer)
    assert f"--accept-older-journal={other.named}" in line
    assert one.named == named


def lost(home: Home, _: Path) -> None:
    shutil.rmtree(home.data)


def emptied(home: Home, _: Path) -> None:
    for path in home.data.glob("journal.db*"):
        path.unlink()


def rolled_back(home: Home, kept: Path) -> None:
    home.roll_back(kept)


@pytest.mark.parametrize("lose", [lost, emptied, rolled_back])
def test_a_journal_that_is_older_than_the_pointer_ends_the_start(
    home: Home, tmp_path: Path, lose: Callable[[Home, Path], None]
) -> None:
    with home.serving() as client:
        first = client.save("t", {"n": 1}, durability="certified")
    shutil.copytree(home.data, tmp_path / "kept")
    with home.serving() as client:
        second = client.save("t", {"n": 2}, parent=first, durability="certified")
    named, before = home.named, catalog_in(home.data)
    lose(home, tmp_path / "kept")
    line = home.refused(process.EXIT_JOURNAL)
    assert str(home.pointer) in line
    assert f"--accept-older-journal={named}" in line
    assert home.named == named
    # Another catalog is not what the operator accepted.
    assert named in home.refused(process.EXIT_JOURNAL, accept_older_journal="A" * 43)
    assert home.named == named
    with home.serving(accept_older_journal=named) as client:
        third = client.save("t", {"n": 3}, parent=first if lose is rolled_back else None)
        client.flush()
    assert home.named != named
    kept = home.pointer.with_name("catalog+old-1")
    assert kept.read_text("utf-8") == f"{named}\n"
    assert home.recovered(named, tmp_path / "old") == [first, second]
    assert home.recovered(home.named, tmp_path / "new")[-1] == third
    # The numbers of the lost catalogs are not given again.
    now = catalog_in(home.data)
    assert now["place"] > before["place"]  # type: ignore[operator]
    assert now["journal_id"] != before["journal_id"]
    with home.serving() as client:
        assert client.load("t").checkpoint_id == third


def test_the_same_older_journal_twice_gives_new_numbers_each_time(
    home: Home, tmp_path: Path
) -> None:
    with home.serving() as client:
        client.save("t", {"n": 1}, durability="certified")
    shutil.copytree(home.data, tmp_path / "kept")
    given = [catalog_in(home.data)["place"]]
    with home.serving() as client:
        client.save("t", {"n": 2}, durability="certified")
    given.append(catalog_in(home.data)["place"])
    for _ in range(2):
        home.roll_back(tmp_path / "kept")
        with home.serving(accept_older_journal=home.named) as client:
            client.save("t", {"n": 3}, durability="certified")
        given.append(catalog_in(home.data)["place"])
    assert len(set(given)) == 4
    assert given == sorted(given)  # type: ignore[type-var]
    assert len(list(home.pointer.parent.iterdir())) == 3


def test_a_pointer_that_is_behind_is_no_trouble(home: Home) -> None:
    """A crash came before it was written, or it could not be written for long."""
    with home.serving() as client:
        client.save("t", {"n": 1}, durability="certified")
        behind = home.named
        for number in range(3):
            client.save("t", {"n": number}, durability="certified")
    newest = home.named
    home.pointer.write_text(f"{behind}\n", "utf-8")
    with home.serving():
        assert home.named == newest
    assert [path.name for path in home.pointer.parent.iterdir()] == ["catalog"]
    home.pointer.unlink()
    with home.serving():
        assert home.named == newest


def test_accepted_missing_blobs_are_stored_again_from_the_journal(
    home: Home, tmp_path: Path
) -> None:
    with home.serving() as client:
        saved = [client.save("t", {"n": n}, durability="certified") for n in range(5)]
    named = home.named
    shutil.rmtree(home.blobs)
    with home.serving(accept_missing_blobs=named) as client:
        eventually(
            lambda: home.named != named and not health_of(client), "nothing was stored again"
        )
        client.flush()
        assert client.verify("t").ok
        newest = home.named
    assert home.recovered(newest, tmp_path / "new") == saved
    with home.serving() as client:  # without the flag
        assert client.load("t").checkpoint_id == saved[-1]


def test_what_no_place_has_is_named_after_missing_blobs_were_accepted(home: Home) -> None:
    evicting = {name.removeprefix("TUSKPOINT_").lower(): text for name, text in FLUSH_OFTEN.items()}
    with home.serving(cache_bytes=0, **evicting) as client:
        saved = [
            client.save("t", {"n": n, "text": f"{n} " * 5000}, durability="certified")
            for n in range(5)
        ]
        eventually(lambda: client.status().evicted_bytes > 0, "nothing was evicted")
    named = home.named
    shutil.rmtree(home.blobs)
    with home.server(cache_bytes=0, accept_missing_blobs=named) as server:
        server.start()
        with Client(server.target) as client:
            eventually(lambda: client.status().holes > 0, "no loss was told")
            assert client.load("t").checkpoint_id == saved[-1]
            client.save("other", {"n": 1}, durability="certified")
        assert server.stop() == 0
        said = server.log.read_text("utf-8")
    assert named in said
    assert f"LOST: checkpoint '{saved[0]}'" in said


@pytest.mark.parametrize("lose", [no_directory, empty_directory, no_files])
def test_blobs_that_are_lost_while_a_server_runs_are_told(
    home: Home, lose: Callable[[Home], None]
) -> None:
    with home.serving() as client:
        first = client.save("t", {"n": 1}, durability="certified")
        named = home.named
        lose(home)
        eventually(
            lambda: "--accept-missing-blobs" in health_of(client) or "mounted" in health_of(client),
            "health says nothing",
        )
        before = sorted(home.blobs.rglob("*")) if home.blobs.exists() else None
        journaled = client.save("t", {"n": 2}, parent=first)  # goes on
        with Client(client.target, timeout_s=8) as hasty, pytest.raises(Unavailable) as failed:
            hasty.save("t", {"n": 3}, parent=journaled, durability="certified")
        assert failed.value.reason == "CERTIFICATION_FAILED"
        assert "mounted" in str(failed.value) or named in str(failed.value)
        assert client.load("t", journaled).state == {"n": 2}
        assert (sorted(home.blobs.rglob("*")) if home.blobs.exists() else None) == before
        assert home.named == named
        put_back(home)
        eventually(lambda: not health_of(client), "health does not recover")
        assert client.save("t", {"n": 4}, durability="certified")
        assert client.verify("t").ok


def test_a_bucket_that_lacks_the_newest_catalog_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with S3Server() as bucket:
        home = Home(tmp_path, {"TUSKPOINT_BLOBS": bucket.url("team"), "TUSKPOINT_BLOB_DIR": ""})
        with home.serving() as client:
            client.save("t", {"n": 1}, durability="certified")
        kept = dict(bucket.objects["bucket"])
        for name in [*kept]:
            if name != "team/layout":
                del bucket.objects["bucket"][name]
        assert home.named in home.refused(process.EXIT_ARCHIVE)
        bucket.objects["bucket"].clear()
        assert "layout" in home.refused(process.EXIT_ARCHIVE)
        assert not bucket.objects["bucket"]
        bucket.objects["bucket"].update(kept)
        with home.serving() as client:
            client.save("t", {"n": 2}, durability="certified")


def test_a_walrus_that_lacks_the_newest_catalog_ends_the_start_and_one_that_is_down_does_not(
    tmp_path: Path,
) -> None:
    with WalrusProcess() as walrus:
        home = Home(tmp_path, {**walrus.settings, "TUSKPOINT_BLOB_DIR": ""})
        with home.serving() as client:
            client.save("t", {"n": 1}, durability="certified")
    with home.server() as server:  # nobody listens there now
        server.start()
        with Client(server.target) as client:
            client.save("t", {"n": 2})
        assert server.stop() == 0
    with WalrusProcess() as other:
        urls = {"walrus_publisher_url": other.url, "walrus_aggregator_url": other.url}
        named = home.named
        age_catalogs(home.data)  # young ones may not be served yet
        line = home.refused(process.EXIT_ARCHIVE, **urls)
        assert f"--accept-missing-blobs={named}" in line
        with home.serving(**urls, accept_missing_blobs=named) as client:
            eventually(lambda: home.named != named, "nothing was stored again")
            client.flush()
            assert client.verify("t").ok


def age_catalogs(data: Path) -> None:
    """Let the newest catalogs be certified an hour ago."""
    with closing(sqlite3.connect(data / "journal.db")) as database, database:
        database.execute("UPDATE catalogs SET certified_us = certified_us - 3600000000")


def test_a_backup_is_restored_without_a_flag_where_restore_knows_the_pointer(
    home: Home, tmp_path: Path
) -> None:
    with home.serving() as client:
        first = client.save("t", {"n": 1}, durability="certified")
        arguments = ["--data-dir", str(home.data), "--to", str(tmp_path / "file")]
        assert run(tmp_path / "log", "backup", *arguments).code == 0
        client.save("t", {"n": 2}, parent=first, durability="certified")
    named, before = home.named, catalog_in(home.data)
    for number, told in enumerate((False, True), 1):
        shutil.rmtree(home.data)
        given = ["--from", str(tmp_path / "file"), "--data-dir", str(home.data)]
        if told:
            given += ["--catalog-pointer", str(home.pointer)]
        else:
            given += ["--catalog-pointer", str(tmp_path / "unheard-of")]
        ended = run(tmp_path / "log", "restore", *given)
        assert ended.code == 0, ended.errors
        if not told:
            assert named in home.refused(process.EXIT_JOURNAL)
            assert number == 1
    kept = home.pointer.with_name("catalog+old-1")
    assert str(kept) in ended.errors
    assert kept.read_text("utf-8") == f"{named}\n"
    with home.serving() as client:
        client.save("t", {"n": 3}, parent=first, durability="certified")
    assert catalog_in(home.data)["place"] > before["place"]  # type: ignore[operator]


def test_recovering_from_an_older_catalog_keeps_the_pointer_to_the_newer_one(
    home: Home, tmp_path: Path
) -> None:
    with home.serving() as client:
        first = client.save("t", {"n": 1}, durability="certified")
        older = home.named
        client.save("t", {"n": 2}, parent=first, durability="certified")
    newer = home.named
    shutil.rmtree(home.data)
    places = ["--data-dir", str(home.data), "--blob-dir", str(home.blobs)]
    pointer = ["--catalog-pointer", str(home.pointer), f"--catalog={older}"]
    ended = run(tmp_path / "log", "recover", *places, *pointer)
    assert ended.code == 0, ended.errors
    assert home.named == older
    assert home.pointer.with_name("catalog+old-1").read_text("utf-8") == f"{newer}\n"
    with home.serving() as client:
        client.save("t", {"n": 3}, parent=first, durability="certified")


def test_servers_of_one_database_start_over_pointers_that_are_behind(
    tmp_path: Path,
) -> None:
    """Only the keeper writes its pointer file at once; a rolled-back database is told."""
    with in_postgres(postgres()):
        url = str(place(tmp_path))
        shared = {
            "TUSKPOINT_JOURNAL": url,
            "TUSKPOINT_BLOB_DIR": str(tmp_path / "blobs"),
            "TUSKPOINT_CACHE_BYTES": "0",
        }
        one, other = Home(tmp_path / "one", shared), Home(tmp_path / "other", shared)
        with one.serving() as client, other.serving() as second:
            first = client.save("t", {"n": 1}, durability="certified")
            behind = one.named
            second.save("t", {"n": 2}, parent=first, durability="certified")
            client.save("t", {"n": 3}, parent=first, durability="certified")
            newest = one.named
        other.pointer.parent.mkdir(exist_ok=True)
        other.pointer.write_text(f"{behind}\n", "utf-8")
        with one.serving() as client, other.serving() as second:
            assert second.load("t").state == {"n": 3}
            eventually(lambda: other.named == newest, "its own pointer stays behind")
            (tmp_path / "blobs").rename(tmp_path / "away")
            for target in (client.target, second.target):
                with Client(target, timeout_s=15) as hasty, pytest.raises(Unavailable) as failed:
                    hasty.save("t", {"n": 5}, durability="certified")
                assert "mounted" in str(failed.value)
            (tmp_path / "away").rename(tmp_path / "blobs")
            client.flush()
        with psycopg.connect(url) as connection:
            [(schema,)] = connection.execute("SELECT current_schema()").fetchall()
            connection.execute(f"DROP SCHEMA {schema} CASCADE; CREATE SCHEMA {schema}".encode())
        named = one.named
        for home in (one, other):
            assert home.named in home.refused(process.EXIT_JOURNAL)
        assert one.named == named
        with one.serving(accept_older_journal=named) as client:
            client.save("t", {"n": 4}, durability="certified")
        assert one.named != named


def test_the_status_on_the_command_line_calls_for_attention(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with home.server() as server:
        server.start()
        with Client(server.target) as client:
            client.save("t", {"n": 1}, durability="certified")
            empty_directory(home)
            eventually(lambda: bool(health_of(client)), "health says nothing")
        cli.main(["--target", server.target, "status", "--json"])
        assert json.loads(capsys.readouterr().out)["health"]["state"] == "attention"
        put_back(home)
        assert server.stop() == 0


async def test_a_spool_directory_that_was_removed_is_made_again(tmp_path: Path) -> None:
    async with house(tmp_path, MemoryStore()) as home:
        await grow(home, 2)
        shutil.rmtree(tmp_path / "spool")
        assert (await home.archive.status(TENANT)).spool_bytes == 0
        await home.flush()
        assert await check_certified(home) == 2
        assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700


async def test_a_pack_whose_spool_file_was_removed_is_certified(tmp_path: Path) -> None:
    store = MemoryStore()
    store.verdict = lambda members: Reason.BLOB_UNAVAILABLE
    async with house(tmp_path, store) as home:
        await grow(home, 2)
        await refused(home.archive.certify_all(TENANT), Reason.BLOB_UNAVAILABLE)
        shutil.rmtree(tmp_path / "spool")
    store.verdict = lambda members: None
    async with house(tmp_path, store) as home:
        await home.flush()
        assert await check_certified(home) == 2
