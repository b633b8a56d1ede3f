"""Sealed bytes are moved, cut or replaced in the database: they open only where they were sealed.

The server reads certified values from their blobs, and repairs the rows. If a value is not
certified, the server refuses the checkpoint that needs it, and serves everything else.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.attacks.journal_edits.edited_server import name, opened_journal
from tests.attacks.journal_edits.test_edits_at_rest import (
    COUNT,
    OTHERS,
    content,
    digest,
    running,
)
from tests.kit.messages import ref, refused
from tuskpoint.v1 import checkpoint_pb2, thread_service_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core import process
from tuskpoint_server.core.values import compress

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def sealed(config: Config, tmp_path: Path) -> Config:
    """Settings of a server whose journal is sealed."""
    keys = tmp_path / "tuskpoint.keys"
    keys.write_text(base64.b64encode(os.urandom(32)).decode(), encoding="ascii")
    keys.chmod(0o600)
    return config.model_copy(update={"key_file": keys, "seal_journal": True})


class Rows:
    """The sealed bytes in a journal, for an attacker who can write to the database."""

    def __init__(self, journal: Any, mark: str) -> None:
        self._journal, self._mark = journal, mark

    def data(self, form: str, number: int) -> bytes:
        query = f"SELECT data FROM {table_of(form)} WHERE digest = {self._mark}"
        [(data,)] = self._journal.execute(query, (digest(form, number),)).fetchall()
        return bytes(data)

    def put(self, form: str, number: int, data: bytes) -> None:
        changed = f"UPDATE {table_of(form)} SET data = {self._mark} WHERE digest = {self._mark}"
        self._journal.execute(changed, (data, digest(form, number)))

    def set_catalog(self, content: bytes) -> None:
        self._journal.execute(f"UPDATE catalogs SET content = {self._mark}", (content,))

    def all(self, query: str) -> list[Any]:
        return list(self._journal.execute(query).fetchall())


def table_of(form: str) -> str:
    return "writes" if form == "write" else "contents"


@contextmanager
def rows_of(config: Config) -> Iterator[Rows]:
    """Open the database of a journal behind the server's back."""
    with opened_journal(config) as (journal, mark):
        yield Rows(journal, mark)


def swap(form: str, other: str) -> Callable[[Rows], None]:
    """Replace the sealed bytes of checkpoint number 1 with the sealed bytes of another row."""
    return lambda rows: rows.put(form, 1, rows.data(other, 2))


def plain(form: str) -> Callable[[Rows], None]:
    """Replace sealed bytes with their plain content, so that the digest is right."""
    return lambda rows: rows.put(form, 1, compress(content(form, 1)).data)


def cut(form: str, size: int) -> Callable[[Rows], None]:
    return lambda rows: rows.put(form, 1, rows.data(form, 1)[:size])


def of_column(form: str) -> Callable[[Rows], None]:
    """Replace a sealed value with the sealed bytes of another column."""
    return lambda rows: rows.put(form, 1, bytes(rows.all("SELECT content FROM catalogs")[0][0]))


EDITS = {
    "swapped within a table": swap("plain", "plain"),
    "swapped across tables": swap("plain", "write"),
    "a write swapped": swap("write", "write"),
    "a write swapped across tables": swap("write", "plain"),
    "of another form": swap("patch", "zstd"),
    "plain": plain("plain"),
    "plain, compressed": plain("zstd"),
    "a plain write": plain("write"),
    "cut": cut("plain", -1),
    "cut to its head": cut("zstd", 28),
    "cut to its prefix": cut("write", 4),
    "empty": cut("plain", 0),
}
edits = pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())


@edits
async def test_what_does_not_open_is_refused_for_its_checkpoint_alone(
    sealed: Config, edit: Callable[[Rows], None]
) -> None:
    async with running(sealed) as server:
        for number in range(COUNT):
            await server.save(number)
        with rows_of(sealed) as rows:
            edit(rows)
        error = await refused(server.get(1))
        assert (error.code, error.reason) == (grpc.StatusCode.DATA_LOSS, "JOURNAL_DAMAGED")
        assert error.metadata["checkpoint_id"] == name(1)
        assert "not sealed" in error.message
        for number in (0, 2):
            assert len((await server.get(number)).writes) == 1
        checkpoint_ids, ended = await server.listed()
        assert sorted(checkpoint_ids) == OTHERS
        assert name(1) in ended
        error = await refused(server.flush())
        assert error.reason == "CERTIFICATION_FAILED"
        for call in (
            server.threads.ForkThread(thread_service_pb2.ForkThreadRequest(ref=ref(name(1)))),
            server.threads.RollbackThread(
                thread_service_pb2.RollbackThreadRequest(ref=ref(name(1)))
            ),
        ):
            assert (await refused(call)).reason == "JOURNAL_DAMAGED"


@pytest.mark.parametrize(
    "edit",
    [*EDITS.values(), of_column("plain"), of_column("write")],
    ids=[*EDITS, "another column", "another column in a write"],
)
async def test_what_is_certified_is_read_from_its_blob_and_sealed_again(
    sealed: Config, edit: Callable[[Rows], None]
) -> None:
    async with running(sealed) as server:
        for number in range(COUNT):
            await server.save(number)
        await server.flush()
        with rows_of(sealed) as rows:
            edit(rows)
        checkpoint = await server.get(1)
        forms = ("plain", "zstd", "patch")
        assert [channel.value.data for channel in checkpoint.state.channels] == [
            content(f, 1) for f in forms
        ]
        assert [write.value.data for write in checkpoint.writes] == [content("write", 1)]
        assert await server.verified() == ["PASS"] * COUNT
    with rows_of(sealed) as rows:
        for form in (*forms, "write"):
            assert rows.data(form, 1).startswith(b"TPS2")
    async with running(sealed) as server:
        assert [write.value.data for write in (await server.get(1)).writes] == [content("write", 1)]
        assert len((await server.listed())[0]) == COUNT


async def test_a_first_answer_that_does_not_open_is_refused(sealed: Config) -> None:
    async with running(sealed) as server:
        await server.save(0)
        for number in (1, 2):
            request = thread_service_pb2.ForkThreadRequest(
                ref=ref(name(0)), new_thread_id=f"fork-{number}", request_id=f"request-{number}"
            )
            await server.threads.ForkThread(request)
        with rows_of(sealed) as rows:
            rows.all(
                "UPDATE requests SET answer = (SELECT answer FROM requests WHERE request_id ="
                " 'request-1') WHERE request_id = 'request-2' RETURNING 1"
            )
        error = await refused(server.threads.ForkThread(request))
        assert (error.code, error.reason) == (grpc.StatusCode.DATA_LOSS, "JOURNAL_DAMAGED")


async def test_a_key_of_a_blob_that_does_not_open_is_told_and_saves_go_on(sealed: Config) -> None:
    async with running(sealed) as server:
        for number in range(COUNT):
            await server.save(number)
            await server.flush()
        with rows_of(sealed) as rows:
            rows.all(
                "UPDATE members SET key = (SELECT key FROM members WHERE kind = 'segment' AND"
                " last_seq = 1) WHERE kind = 'segment' AND last_seq > 1 RETURNING 1"
            )
        request = pb.GetCheckpointRequest(ref=ref(name(1)), source=checkpoint_pb2.SOURCE_BLOB)
        error = await refused(server.checkpoints.GetCheckpoint(request))
        assert (error.code, error.reason) == (grpc.StatusCode.DATA_LOSS, "JOURNAL_DAMAGED")
        assert "the key of blob" in error.message
        assert len((await server.get(1)).writes) == 1
        request = pb.GetCheckpointRequest(ref=ref(name(0)), source=checkpoint_pb2.SOURCE_BLOB)
        assert len((await server.checkpoints.GetCheckpoint(request)).checkpoint.writes) == 1
        await server.save(COUNT)
        await server.flush()
        request = pb.GetCheckpointRequest(ref=ref(name(COUNT)), source=checkpoint_pb2.SOURCE_BLOB)
        assert len((await server.checkpoints.GetCheckpoint(request)).checkpoint.writes) == 1


async def test_a_journal_that_says_that_it_is_in_the_former_format_is_refused(
    sealed: Config,
) -> None:
    async with running(sealed) as server:
        await server.save(0)
    with rows_of(sealed) as rows:
        rows.all("UPDATE journal_info SET value = '1' WHERE name = 'sealing' RETURNING 1")
    with pytest.raises(process.StartError, match="bound to their places when this server used it"):
        async with running(sealed):
            pass
