"""A server detects a journal older than the pointer file, and assigns no catalog number twice.

Each test uses a journal that an operator may have: from an old snapshot, from the data directory of
another server, or from a database that was rolled back.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.attacks.lost_files.server_home import Home, catalog_in, eventually
from tests.integration.moving.commands import run
from tests.kit.databases import in_postgres, place, postgres
from tuskpoint import Client, Unavailable
from tuskpoint_server.core import process


def test_the_data_directory_of_another_server_is_told_by_the_pointer(tmp_path: Path) -> None:
    """Both servers share a blob directory."""
    shared = {"TUSKPOINT_BLOB_DIR": str(tmp_path / "blobs")}
    first_home, other = Home(tmp_path / "one", shared), Home(tmp_path / "other", shared)
    for home in (first_home, other):
        with home.serving() as client:
            client.save("t", {"n": 1}, durability="certified")
    named = first_home.named
    line = first_home.refused(process.EXIT_JOURNAL, catalog_pointer=other.pointer)
    assert f"--accept-older-journal={other.named}" in line
    assert first_home.named == named


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
    # The operator must accept the catalog that the pointer file names.
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
    # The numbers of the lost catalogs are not assigned again.
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
    places = [catalog_in(home.data)["place"]]
    with home.serving() as client:
        client.save("t", {"n": 2}, durability="certified")
    places.append(catalog_in(home.data)["place"])
    for _ in range(2):
        home.roll_back(tmp_path / "kept")
        with home.serving(accept_older_journal=home.named) as client:
            client.save("t", {"n": 3}, durability="certified")
        places.append(catalog_in(home.data)["place"])
    assert len(set(places)) == 4
    assert places == sorted(places)  # type: ignore[type-var]
    assert len(list(home.pointer.parent.iterdir())) == 3


def test_an_older_journal_that_was_accepted_is_refused_again_until_it_has_certified(
    home: Home, tmp_path: Path
) -> None:
    """The pointer file then names the newest catalog of the accepted journal."""
    with home.serving() as client:
        client.save("t", {"n": 1}, durability="certified")
    shutil.copytree(home.data, tmp_path / "kept")
    with home.serving() as client:
        client.save("t", {"n": 2}, durability="certified")
    newer = home.named
    for _ in range(2):
        home.roll_back(tmp_path / "kept")
        assert newer in home.refused(process.EXIT_JOURNAL)
        with home.serving(accept_older_journal=newer):
            pass


def test_a_pointer_that_is_behind_is_no_trouble(home: Home) -> None:
    """The server crashed before it wrote the pointer file, or could not write the file for some
    time."""
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
        options = ["--from", str(tmp_path / "file"), "--data-dir", str(home.data)]
        if told:
            options += ["--catalog-pointer", str(home.pointer)]
        else:
            options += ["--catalog-pointer", str(tmp_path / "unheard-of")]
        ended = run(tmp_path / "log", "restore", *options)
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
    """Only the leader writes its pointer file at once; each server detects a rolled-back
    database."""
    with in_postgres(postgres()):
        url = str(place(tmp_path))
        shared = {
            "TUSKPOINT_JOURNAL": url,
            "TUSKPOINT_BLOB_DIR": str(tmp_path / "blobs"),
            "TUSKPOINT_CACHE_BYTES": "0",
        }
        first_home, other = Home(tmp_path / "one", shared), Home(tmp_path / "other", shared)
        with first_home.serving() as client, other.serving() as second:
            first = client.save("t", {"n": 1}, durability="certified")
            behind = first_home.named
            second.save("t", {"n": 2}, parent=first, durability="certified")
            client.save("t", {"n": 3}, parent=first, durability="certified")
            newest = first_home.named
        other.pointer.parent.mkdir(exist_ok=True)
        other.pointer.write_text(f"{behind}\n", "utf-8")
        with first_home.serving() as client, other.serving() as second:
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
        named = first_home.named
        for home in (first_home, other):
            assert home.named in home.refused(process.EXIT_JOURNAL)
        assert first_home.named == named
        with first_home.serving(accept_older_journal=named) as client:
            client.save("t", {"n": 4}, durability="certified")
        assert first_home.named != named


def test_an_older_journal_is_told_again_before_it_has_certified_anything(tmp_path: Path) -> None:
    """No pointer file names a catalog then; the file that was set aside does."""
    home = Home(tmp_path / "home")
    with home.serving():
        pass
    shutil.copytree(home.data, tmp_path / "kept")
    with home.serving() as client:
        client.save("t", {"n": 1}, durability="certified")
    named, before = home.named, catalog_in(home.data)
    home.roll_back(tmp_path / "kept")
    with home.serving(accept_older_journal=named):
        pass
    with home.serving():  # the accepted journal continues
        pass
    assert not home.pointer.exists()
    home.roll_back(tmp_path / "kept")
    assert f"--accept-older-journal={named}" in home.refused(process.EXIT_JOURNAL)
    with home.serving(accept_older_journal=named) as client:
        client.save("t", {"n": 2}, durability="certified")
    assert catalog_in(home.data)["place"] > before["place"]  # type: ignore[operator]
