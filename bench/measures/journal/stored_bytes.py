"""Bytes of a growing thread in the database of each checkpointer."""

from __future__ import annotations

from pathlib import Path

import grpc.aio

from bench.agents import MESSAGE_BYTES, Agent, Saver
from bench.report import Table, at_most, number
from bench.running.contenders import opened_sqlite
from bench.running.servers import running_tuskpoint
from bench.setting import Setting
from tuskpoint import TuskPointSaver
from tuskpoint.v1.admin_service_pb2 import FlushRequest
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub

TITLE = "Bytes stored for one thread whose steps each append a message"
_SQLITE_HEADER = b"SQLite format 3\0"


async def measure(setting: Setting) -> Table:
    """Run the same thread on TuskPoint and on LangGraph's SQLite saver; measure the files."""
    steps = 100 if setting.quick else 400
    folder = setting.place("bytes")
    many_folder, single_folder = folder / "many", folder / "one"
    for data_dir in (many_folder, single_folder):
        data_dir.mkdir()
    with running_tuskpoint(many_folder) as server:
        async with TuskPointSaver(server.target) as saver:
            await _append(saver, steps)
        before = database_bytes(server.data_dir)
        await _flush(server.target)
    with running_tuskpoint(single_folder, {"TUSKPOINT_FLUSH_INTERVAL": "3600"}) as single_server:
        async with TuskPointSaver(single_server.target) as saver:
            await _append(saver, steps, single_server.target)
    peer = folder / "peer"
    peer.mkdir()
    async with opened_sqlite(peer / "peer.sqlite") as sqlite:
        await _append(sqlite, steps)
    theirs = database_bytes(peer)
    after = database_bytes(server.data_dir)
    sizes = [
        ("TuskPoint's journal, before the last flush", before),
        ("TuskPoint's journal, all certified", after),
        ("TuskPoint's blobs, many steps in a flush", _blob_bytes(server.data_dir)),
        ("TuskPoint's blobs, one step in a flush", _blob_bytes(single_server.data_dir)),
    ]
    rows = [
        ["state at the end", number(steps * MESSAGE_BYTES / 1e6), ""],
        *([name, number(size / 1e6), f"1/{theirs / size:.1f}"] for name, size in sizes),
        ["AsyncSqliteSaver", number(theirs / 1e6), ""],
    ]
    notes = [
        f"{steps} steps of `aput` and `aput_writes`, each with a new message of "
        f"{MESSAGE_BYTES} characters in a list. Sizes are file sizes on disk. Both "
        "databases are closed, except in the row before the last flush, which includes the "
        "write-ahead log. The journal holds the search index."
    ]
    goals = [
        at_most(f"bytes of {name}, compared with AsyncSqliteSaver", size / theirs, 1 / 20)
        for name, size in sizes[1:3]
    ]
    return Table(TITLE, ("what", "MB", "compared with AsyncSqliteSaver"), rows, notes, goals)


def _blob_bytes(data_dir: Path) -> int:
    return sum(path.stat().st_size for path in _files(data_dir / "blobs"))


async def _append(saver: Saver, steps: int, flushed: str = "") -> None:
    """Append a message for each step; flush the server at `flushed`, if given, after each."""
    agent = Agent(saver, "growing", steps_per_thread=0, message_bytes=MESSAGE_BYTES, text_bytes=0)
    for _ in range(steps):
        await agent.save()
        if flushed:
            await _flush(flushed)


async def _flush(target: str) -> None:
    async with grpc.aio.insecure_channel(target) as channel:
        stub = AdminServiceStub(channel)
        await stub.Flush(FlushRequest())


def database_bytes(folder: Path) -> int:
    """Return the bytes of the SQLite databases below a folder, with their logs."""
    total = 0
    for path in _files(folder):
        with path.open("rb") as file:
            is_database = file.read(len(_SQLITE_HEADER)) == _SQLITE_HEADER
        if is_database:
            log = path.with_name(path.name + "-wal")
            total += path.stat().st_size + (log.stat().st_size if log.exists() else 0)
    return total


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
