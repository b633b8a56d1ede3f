"""After an erasure, no file and no unpacked frame contains the erased text."""

from __future__ import annotations

import os
import random
import re
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.integration.archive.evictions import WAIT_SECONDS
from tests.kit.blobs.s3_server import ENVIRONMENT, S3Server
from tests.kit.messages import ref, write
from tests.kit.servers.processes import FLUSH_OFTEN, ServerProcess
from tuskpoint import Client, Receipt
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.value_pb2 import Value
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.commands import collect as collect_command

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SECRET = "xylophone"  # the text that the tests hide in every field that an agent may write
FRAME = b"\x28\xb5\x2f\xfd"  # the magic number of a Zstandard frame
WINDOW = 40  # bytes of stored content that are one needle
STEP = 3000  # bytes between two needles: a page of SQLite has one needle of each long value
CHANGES = 12  # more changes than one level of runs holds
INTERRUPTED = 130  # the exit code that a shell reports for a program that Ctrl-C ended
STAY = {"TUSKPOINT_FLUSH_INTERVAL": "3600", "TUSKPOINT_JOURNAL_BYTES": str(1 << 30)}

pytestmark = pytest.mark.timeout(240)


def unpacked(data: bytes) -> Iterator[bytes]:
    """Yield bytes, and the unpacked content of each frame in them, at any depth."""
    yield data
    at = data.find(FRAME)
    while at >= 0:
        try:
            content = zstd.ZstdDecompressor().decompress(data[at:])
        except zstd.ZstdError:
            content = b""  # the bytes are not a frame, or the frame is a patch on a keyframe
        if content:
            yield from unpacked(content)
        at = data.find(FRAME, at + 1)


def files_of(*folders: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
    }


def remains(files: Mapping[str, bytes], needles: set[bytes]) -> dict[str, list[bytes]]:
    """Return, by file, the needles that the file contains."""
    needles_by_file: dict[str, list[bytes]] = {}
    for name, data in files.items():
        layers = list(unpacked(data))
        here = [needle for needle in needles if any(needle in layer for layer in layers)]
        if here:
            needles_by_file[name] = here
    return needles_by_file


def stored_values(data_dir: Path, *threads: str) -> set[bytes]:
    """Return pieces of the stored values of threads, as the journal has them."""
    marks = ", ".join("?" * len(threads))
    family = f"SELECT family FROM threads WHERE thread_id IN ({marks})"
    number = f"SELECT number FROM threads WHERE thread_id IN ({marks})"
    with closing(sqlite3.connect(f"file:{data_dir / 'journal.db'}?mode=ro", uri=True)) as journal:
        values = f"SELECT data FROM contents WHERE family IN ({family})"
        written = f"SELECT data FROM writes WHERE thread IN ({number})"
        rows = [row for text in (values, written) for row in journal.execute(text, threads)]
    return {
        data[at : at + WINDOW]
        for (data,) in rows
        if data is not None
        for at in range(0, max(1, len(data) - WINDOW), STEP)
        if len(data) >= WINDOW
    }


def hide(client: Client, target: str, thread_id: str, secret: str = SECRET) -> None:
    """Save a thread with the secret in every field that an agent may write, and a thread that
    stays."""
    noise = random.Random(thread_id)
    for number in range(CHANGES):
        about: dict[str, Any] = {
            "metadata": {"who": f"{secret} {number}"},
            "summary": f"Step {number} played the {secret}",
            "label": f"{secret}-{number}",
            "agent_id": secret,
        }
        state = {
            "short": f"the {secret} {number}",
            "long": [f"{secret} {number} {word}" for word in range(2000)],
            "noise": noise.randbytes(8_000).hex(),
        }
        checkpoint = client.save(thread_id, state, **about)
        client.save("stays", {"n": number, "text": [f"{number} {word}" for word in range(500)]})
        with grpc.insecure_channel(target) as channel:
            request = pb.SaveWritesRequest(ref=ref(checkpoint, thread_id))
            for idx, data in enumerate([f"said {secret}".encode(), secret.encode() * 3000]):
                request.writes.append(
                    write("task", "said", idx=idx, value=Value(type="bytes", data=data))
                )
            CheckpointServiceStub(channel).SaveWrites(request)
        client.flush()


def check_kept(client: Client) -> None:
    """Check that the other thread is intact, and that the blob store has all of it."""
    history = list(client.history("stays"))
    assert len(history) == CHANGES
    for number, checkpoint in enumerate(history):
        loaded = client.load("stays", checkpoint.checkpoint_id)
        assert loaded is not None
        assert loaded.state["n"] == number
        assert loaded.state["text"] == [f"{number} {each}" for each in range(500)]
    assert client.verify("stays").ok


def searched(data_dir: Path, *threads: str) -> set[bytes]:
    """Return the secret and pieces of stored values; the data directory contains all of them."""
    needles = {SECRET.encode()} | stored_values(data_dir, *threads)
    there = set().union(*remains(files_of(data_dir), needles).values())
    assert SECRET.encode() in there
    assert len(there) > 40  # A few needles lie on two pages.
    return there


def names_of(receipt: Receipt) -> set[str]:
    return {location["name"] for location in receipt.document["unreached"]}


@contextmanager
def store(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield the settings of a blob store, and a function that returns all bytes in the store."""
    if kind == "directory":
        blobs = tmp_path / "blobs"
        yield {"TUSKPOINT_BLOB_DIR": str(blobs)}, lambda: files_of(blobs)
        return
    with S3Server() as server:
        settings = {**ENVIRONMENT, "TUSKPOINT_BLOBS": server.url("team")}

        def objects() -> dict[str, bytes]:
            return {name: blob.data for name, blob in server.objects["bucket"].items()}

        yield settings, objects


def collect(
    data_dir: Path, settings: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, *flags: str
) -> int:
    with monkeypatch.context() as environment:
        for name, text in settings.items():
            environment.setenv(name, text)
        return tuskpoint_server(["collect", "--data-dir", str(data_dir), *flags])


@pytest.mark.parametrize("packing", ["quilt", "blob"])
@pytest.mark.parametrize("kind", ["directory", "bucket"])
def test_no_byte_of_an_erased_thread_is_left(
    kind: str, packing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store(kind, tmp_path, monkeypatch) as (place, stored):
        settings = {**place, **STAY, "TUSKPOINT_PACKING": packing}
        with ServerProcess(tmp_path / "one", settings) as server:
            server.start()
            with Client(server.target) as client:
                hide(client, server.target, "goes")
                assert client.search_history(SECRET, 5)
                needles = searched(server.data_dir, "goes")
                receipt = client.erase("goes")
                assert remains(files_of(server.data_dir), needles) == {}
                assert "blob-store" in names_of(receipt)
            assert server.stop() == 0
            assert remains(files_of(server.data_dir), needles) == {}
            needles_there = remains(stored(), needles)
            assert needles_there
            before = set(stored())
            assert collect(server.data_dir, settings, monkeypatch) == 0
            assert remains(stored(), needles) == {}
            assert remains(files_of(server.data_dir), needles) == {}
            assert not set(needles_there) & set(stored())
            assert len(stored()) < len(before)
            server.start()
            with Client(server.target) as client:
                check_kept(client)
                catalog = client.status().catalog
                assert catalog is not None
            assert server.stop() == 0
            again = set(stored())
            assert collect(server.data_dir, settings, monkeypatch) == 0
            assert again == set(stored())
        environment = {**settings, "TUSKPOINT_FLUSH_INTERVAL": "3600"}
        with monkeypatch.context() as changed:
            for name, text in environment.items():
                changed.setenv(name, text)
            source = ["--catalog", catalog.blob_id, "--data-dir", str(tmp_path / "two" / "data")]
            assert tuskpoint_server(["recover", *source]) == 0
        with ServerProcess(tmp_path / "two", settings) as server:
            server.start()
            with Client(server.target) as client:
                check_kept(client)


def leave_behind(path: Path, secret: str) -> None:
    """Write and remove content as a SQLite build that does not overwrite deleted content."""
    with closing(sqlite3.connect(path)) as journal:
        journal.execute("PRAGMA secure_delete = OFF")
        journal.executescript("CREATE TABLE earlier (content); PRAGMA user_version = 0")
        journal.execute("INSERT INTO earlier VALUES (?)", (secret * 1000,))
        journal.commit()
        journal.execute("DROP TABLE earlier")
        journal.commit()
        journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def test_what_an_earlier_build_left_in_free_pages_is_told_and_goes(tmp_path: Path) -> None:
    secret = "glockenspiel"
    page = (Path(__file__).parents[2] / "docs/servers/retention.md").read_text("utf-8")
    [statements] = re.findall(r'^sqlite3 \S+/journal\.db "([^"]*)"$', page, re.MULTILINE)
    with ServerProcess(tmp_path / "one", STAY) as server:
        journal = server.data_dir / "journal.db"
        server.start()
        with Client(server.target) as client:
            client.save("one", {"n": 1})
            client.save("two", {"n": 2})
            client.save("stays", {"n": 3})
            assert "journal-free-pages" not in names_of(client.erase("none"))
        assert server.stop() == 0
        leave_behind(journal, secret)
        server.start()
        with Client(server.target) as client:
            assert "journal-free-pages" in names_of(client.erase("one"))
        assert server.stop() == 0
        assert secret.encode() in journal.read_bytes()
        with closing(sqlite3.connect(journal)) as opened:
            opened.executescript(statements)
        assert remains(files_of(server.data_dir), {secret.encode()}) == {}
        server.start()
        with Client(server.target) as client:
            assert "journal-free-pages" not in names_of(client.erase("two"))
            assert client.load("stays").state == {"n": 3}
        assert server.stop() == 0


def test_what_a_fork_needs_of_an_erased_thread_is_all_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The erased thread's values were evicted: the fork reads segments that also have erased
    content."""
    place = {**FLUSH_OFTEN, "TUSKPOINT_BLOB_DIR": str(tmp_path / "blobs")}
    with ServerProcess(tmp_path / "one", place) as server:
        server.start()
        with Client(server.target) as client:
            shared = client.save("goes", {"text": ["harmonica"] * 5000})
            hidden = client.save("goes", {"text": [SECRET] * 5000, "more": SECRET}, summary=SECRET)
            client.save("goes", {"end": 1})
            client.flush()
            client.fork("goes", shared, new_thread_id="fork")
            client.save("fork", {"end": 1})
            client.flush()
            evicted(client)
            assert client.load("goes", hidden) is not None  # The cache has the value afterwards.
            needles = {SECRET.encode()}
            assert any("cache" in name for name in remains(files_of(server.data_dir), needles))
            receipt = client.erase("goes")
            assert receipt.document["left"]["threads"] == ["fork"]
            assert remains(files_of(server.data_dir), needles) == {}
        assert server.stop() == 0
        assert remains(files_of(tmp_path / "blobs"), needles)
        assert collect(server.data_dir, place, monkeypatch) == 0
        assert remains(files_of(tmp_path / "blobs", server.data_dir), needles) == {}
        server.start()
        with Client(server.target) as client:
            evicted(client)
            loaded = client.load("fork", shared)
            assert loaded is not None
            assert loaded.state == {"text": ["harmonica"] * 5000}
            assert client.verify("fork").ok
        assert server.stop() == 0
        assert remains(files_of(tmp_path / "blobs", server.data_dir), needles) == {}


def test_a_recovered_server_needs_all_to_remove_what_was_stored_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {**STAY, "TUSKPOINT_BLOB_DIR": str(tmp_path / "blobs")}
    with ServerProcess(tmp_path / "one", place) as server:
        server.start()
        with Client(server.target) as client:
            hide(client, server.target, "goes")
            catalog = client.status().catalog
            assert catalog is not None
        assert server.stop() == 0
    for path in (tmp_path / "blobs").glob("??/*"):
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    with ServerProcess(tmp_path / "two", place) as two:
        source = ["--catalog", catalog.blob_id, "--blob-dir", place["TUSKPOINT_BLOB_DIR"]]
        assert tuskpoint_server(["recover", "--data-dir", str(two.data_dir), *source]) == 0
        two.start()
        with Client(two.target) as client:
            client.erase("goes")
        assert two.stop() == 0
        assert collect(two.data_dir, place, monkeypatch) == 0
        assert remains(files_of(tmp_path / "blobs"), {SECRET.encode()})
        assert collect(two.data_dir, place, monkeypatch, "--all") == 0
        assert remains(files_of(tmp_path / "blobs"), {SECRET.encode()}) == {}
        two.start()
        with Client(two.target) as client:
            check_kept(client)


def evicted(client: Client) -> None:
    """Wait until the journal has evicted values."""
    until = time.monotonic() + WAIT_SECONDS
    while not client.status().evicted_bytes:
        assert time.monotonic() < until


def test_a_collection_that_was_interrupted_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = tmp_path / "blobs"
    place = {**STAY, "TUSKPOINT_BLOB_DIR": str(blobs)}
    with ServerProcess(tmp_path / "one", place) as server:
        server.start()
        with Client(server.target) as client:
            hide(client, server.target, "goes")
            client.erase("goes")
        assert server.stop() == 0
        needles = {SECRET.encode()}
        before = set(files_of(blobs))

        async def broken(*_: object, **__: object) -> bool:
            raise KeyboardInterrupt

        for place_of_crash in ("rewritten", "forgotten"):
            with monkeypatch.context() as crash:
                if place_of_crash == "rewritten":
                    crash.setattr(collect_command, "find_unneeded", broken)
                else:
                    crash.setattr(DirectoryStore, "remove", broken)
                assert collect(server.data_dir, place, crash) == INTERRUPTED
            assert before <= set(files_of(blobs))
        assert remains(files_of(blobs), needles)
        assert collect(server.data_dir, place, monkeypatch) == 0
        assert remains(files_of(blobs), needles) == {}
        server.start()
        with Client(server.target) as client:
            check_kept(client)


@pytest.mark.parametrize("seals", [False, True])
def test_another_journal_keeps_what_it_stored(
    seals: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers share a directory; each erases the same thread ID, and removes only its own
    blobs."""
    place = {**STAY, "TUSKPOINT_BLOB_DIR": str(tmp_path / "blobs")}
    if seals:
        assert tuskpoint_server(["keys", "create", str(tmp_path / "keys")]) == 0
        place["TUSKPOINT_KEY_FILE"] = str(tmp_path / "keys")
    with (
        ServerProcess(tmp_path / "one", place) as first,
        ServerProcess(tmp_path / "two", place) as second,
    ):
        for server in (first, second):
            server.start()
            with Client(server.target) as client:
                hide(client, server.target, "goes")
        with Client(first.target) as client:
            client.erase("goes")
        assert first.stop() == 0
        before = files_of(tmp_path / "blobs")
        assert collect(first.data_dir, place, monkeypatch) == 0
        assert len(before.keys() - files_of(tmp_path / "blobs").keys()) >= CHANGES
        with Client(second.target) as client:
            assert client.verify("goes").ok
            check_kept(client)
        first.start()
        with Client(first.target) as client:
            check_kept(client)
