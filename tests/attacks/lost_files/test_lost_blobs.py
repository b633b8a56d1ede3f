"""Lost or exchanged blobs: a server reports them, and overwrites nothing.

Real server processes, whose blob directory, bucket or Walrus lacks blobs that the journal records,
as with a disk that is not mounted.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.attacks.lost_files.server_home import Home, eventually, health_of
from tests.kit.blobs.s3_server import ENVIRONMENT, S3Server
from tests.kit.servers.processes import FLUSH_OFTEN, WalrusProcess
from tuskpoint import Client, Unavailable, cli
from tuskpoint_server.core import process


def empty_directory(home: Home) -> None:
    home.blobs.rename(home.folder / "away")
    home.blobs.mkdir()


def no_directory(home: Home) -> None:
    home.blobs.rename(home.folder / "away")


def no_files(home: Home) -> None:
    """Move the blobs away, and leave the content of a new blob directory."""
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
    # The path may be a mount point, so the server must create nothing there.
    assert (sorted(home.blobs.rglob("*")) if home.blobs.exists() else None) == before
    assert home.named == named
    put_back(home)
    with home.serving() as client:
        assert client.load("t").checkpoint_id == saved
        client.save("t", {"n": 2}, durability="certified")


def test_the_blobs_of_another_server_are_told_from_its_own(tmp_path: Path) -> None:
    first_home, other = Home(tmp_path / "one"), Home(tmp_path / "other")
    for home in (first_home, other):
        with home.serving() as client:
            client.save("t", {"n": 1}, durability="certified")
    line = first_home.refused(process.EXIT_ARCHIVE, blob_dir=other.blobs)
    assert first_home.named in line
    with first_home.serving():
        pass


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
    with home.serving() as client:  # the server needs the flag only once
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
            eventually(lambda: client.status().gaps > 0, "no loss was told")
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
        # The journal accepts changes without blobs.
        journaled = client.save("t", {"n": 2}, parent=first)
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
    with home.server() as server:  # Walrus is down
        server.start()
        with Client(server.target) as client:
            client.save("t", {"n": 2})
        assert server.stop() == 0
    with WalrusProcess() as other:
        urls = {"walrus_publisher_url": other.url, "walrus_aggregator_url": other.url}
        named = home.named
        age_catalogs(home.data)  # Walrus may not serve a young catalog yet.
        line = home.refused(process.EXIT_ARCHIVE, **urls)
        assert f"--accept-missing-blobs={named}" in line
        with home.serving(**urls, accept_missing_blobs=named) as client:
            eventually(lambda: home.named != named, "nothing was stored again")
            client.flush()
            assert client.verify("t").ok


def age_catalogs(data: Path) -> None:
    """Date the certification of the newest catalogs an hour back."""
    with closing(sqlite3.connect(data / "journal.db")) as database, database:
        database.execute("UPDATE catalogs SET certified_us = certified_us - 3600000000")


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
