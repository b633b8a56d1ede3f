"""The search setting of a thread is set, read, certified and recovered on a real server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from tests.kit.archives import House, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.databases import journal_of, rows_of_server
from tests.kit.drafts import TENANT, draft
from tests.kit.messages import FIRST, SECOND, exchanged, frames, ref, refused, save_request
from tuskpoint import AsyncClient, Client
from tuskpoint.errors import InvalidRequest, NotFound
from tuskpoint.v1 import admin_service_pb2, checkpoint_pb2, errors_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import thread_service_pb2 as threads_pb
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.blobs.api import BlobMember, PutReceipt
from tuskpoint_server.commands import recover, serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.search import unpack_vector
from tuskpoint_server.features.removal.removal_rows import RemovalRows

if TYPE_CHECKING:
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub


CERTIFIED = checkpoint_pb2.DURABILITY_CERTIFIED


def vectors(config: Config) -> dict[str, list[float]]:
    """Return the vectors in the journal by checkpoint."""
    rows = rows_of_server(config.data_dir, "SELECT checkpoint_id, vector FROM search_vectors")
    return {checkpoint_id: unpack_vector(vector) for checkpoint_id, vector in rows}


# --- the setting ---------------------------------------------------------------------------


async def test_thread_reports_whether_it_is_searchable(server: Server) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        await client.save("t", {"n": 1})
        assert (await client.thread("t")).searchable
        await client.set_searchable("t", False)
        assert not (await client.thread("t")).searchable
        assert [thread.searchable async for thread in client.threads()] == [False]
        await client.set_searchable("t", True)
        assert (await client.thread("t")).searchable


async def test_watch_reports_it(server: Server) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        await client.save("t", {"n": 1})
        await client.set_searchable("t", False)
        await client.set_searchable("t", False)
        await client.set_searchable("t", True)
        events = []
        async for event in client.watch("t", kinds=["searchable_set"]):
            events.append((event.seq, event.kind, event.checkpoint))
            if len(events) == 2:
                break
        assert events == [(2, "searchable_set", None), (3, "searchable_set", None)]


def test_blocking_client_sets_it_too(config: Config) -> None:
    async def run() -> None:
        async with serve.running_server(config) as server:
            await asyncio.to_thread(use, f"127.0.0.1:{server.port}")

    def use(address: str) -> None:
        with Client(address) as client:
            client.save("t", {"n": 1})
            client.set_searchable("t", False, durability="certified")
            assert not client.thread("t").searchable
            with pytest.raises(NotFound):
                client.set_searchable("missing", False)
            with pytest.raises(InvalidRequest):
                client.set_searchable("t", "no")  # type: ignore[arg-type]

    asyncio.run(run())


BAD_SETTINGS = [
    (threads_pb.SetSearchableRequest(), "thread_id"),
    (threads_pb.SetSearchableRequest(thread_id="$snapshot/1"), "thread_id"),
    (threads_pb.SetSearchableRequest(thread_id="t", durability=9), "durability"),  # type: ignore[arg-type]
]


async def test_bad_settings_are_refused(threads: ThreadServiceAsyncStub) -> None:
    for request, field in BAD_SETTINGS:
        answer = await refused(threads.SetSearchable(request))
        assert (answer.code, answer.fields) == (grpc.StatusCode.INVALID_ARGUMENT, (field,))


async def test_save_sets_it_with_the_first_checkpoint(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    async def unsearchable() -> bool:
        response = await threads.GetThread(threads_pb.GetThreadRequest(thread_id="thread"))
        return response.thread.unsearchable

    first = await checkpoints.SaveCheckpoint(save_request(searchable=False))
    assert first.seq == 2, "the setting comes first"
    assert await unsearchable()
    await checkpoints.SaveCheckpoint(save_request(SECOND, parent=FIRST))
    assert await unsearchable()
    again = await checkpoints.SaveCheckpoint(save_request(searchable=True))
    assert again.seq == 4, "nothing was saved again, but the setting changed"
    assert not await unsearchable()


# --- certified and recovered ---------------------------------------------------------------


async def is_unsearchable(opened: House) -> bool:
    setting = (await opened.manifest()).setting
    return setting is not None and setting.unsearchable


async def test_certified_means_that_the_catalog_has_the_setting(tmp_path: Path) -> None:
    async with house(tmp_path, MemoryStore()) as opened:
        removal = RemovalRows(opened.journal.database)
        await opened.journal.save_checkpoint(TENANT, draft("1"))
        await opened.flush()
        await removal.set_searchable(TENANT, "t", False)
        await opened.flush()
        assert await is_unsearchable(opened)
        known = await opened.archive.catalog(TENANT)
        await removal.set_searchable(TENANT, "t", False)
        await opened.flush()
        assert await opened.archive.catalog(TENANT) == known
        await removal.delete_thread(TENANT, "t")
        await opened.flush()
        assert not await is_unsearchable(opened)


async def test_setting_that_changes_while_it_is_stored_is_stored_next(tmp_path: Path) -> None:
    class Switching(MemoryStore):
        """Switches search on again during the next put."""

        switching = False

        async def put(
            self, members: Sequence[BlobMember], *, standalone: bool = False
        ) -> PutReceipt:
            if self.switching:
                self.switching = False
                await RemovalRows(opened.journal.database).set_searchable(TENANT, "t", True)
            return await super().put(members, standalone=standalone)

    store = Switching()
    async with house(tmp_path, store) as opened:
        await opened.journal.save_checkpoint(TENANT, draft("1"))
        await RemovalRows(opened.journal.database).set_searchable(TENANT, "t", False)
        store.switching = True
        await opened.flush()
        assert not store.switching
        await opened.flush()
        assert not await is_unsearchable(opened)


async def test_identical_save_is_certified_once_the_catalog_has_its_setting(
    config: Config,
    checkpoints: CheckpointServiceAsyncStub,
    admin: AdminServiceAsyncStub,
    tmp_path: Path,
) -> None:
    """The answer waits as requested: the checkpoint itself was certified earlier."""
    await checkpoints.SaveCheckpoint(save_request(durability=CERTIFIED))
    await checkpoints.SaveCheckpoint(save_request(durability=CERTIFIED, searchable=False))
    status = await admin.GetArchiveStatus(admin_service_pb2.GetArchiveStatusRequest())
    assert await recovered(config, tmp_path / "new", status.catalog.blob_id) == {"thread": True}


async def recovered(config: Config, data_dir: Path, catalog: str) -> dict[str, bool]:
    """Recover an empty server from a catalog; return whether each thread is unsearchable."""
    flags = ["--data-dir", str(data_dir), "--blob-dir", str(config.blob_directory)]
    flags += [f"--journal={journal_of(data_dir)}", "--catalog", catalog]
    anew, order = recover.parse(flags, "1")
    await recover.recover(anew, order)
    rows = rows_of_server(data_dir, "SELECT thread_id, unsearchable FROM threads")
    return {thread_id: bool(unsearchable) for thread_id, unsearchable in rows}


async def test_recovered_server_does_not_find_unsearchable_threads(
    config: Config, server: Server, tmp_path: Path
) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        for thread_id in ("off", "on"):
            await client.save(thread_id, {"n": 1})
        await client.set_searchable("off", False)
        snapshot = await client.create_snapshot(["off", "on"])
        await client.fork("off", new_thread_id="fork")
        await client.copy("off", "copy")
        await client.set_searchable("on", False)
        await client.set_searchable("on", True, durability="certified")
        catalog = (await client.status()).catalog
    assert catalog is not None
    flags = await recovered(config, tmp_path / "new", catalog.blob_id)
    of_users = {name: off for name, off in flags.items() if not name.startswith("$")}
    assert of_users == {"off": True, "on": False, "fork": True, "copy": True}
    anew = config.model_copy(
        update={
            "data_dir": tmp_path / "new",
            "journal": journal_of(tmp_path / "new"),
            "blob_dir": config.blob_directory,
        }
    )
    async with (
        serve.running_server(anew) as again,
        AsyncClient(f"127.0.0.1:{again.port}") as client,
    ):
        assert not (await client.thread("off")).searchable
        await client.delete("off")
        restored = await client.restore_snapshot(snapshot.snapshot_id)
        kept = [(await client.thread(head.thread_id)).searchable for head in restored]
        assert kept == [False, True], "what a snapshot captured says it too"


# --- vectors -------------------------------------------------------------------------------

BAD_VECTORS = {
    "not a number": [1.0, math.nan],
    "infinite": [-math.inf],
    "too large for 32 bits": [1e39],
    "zeros": [0.0, -0.0, 0.0],
    "too long": [1.0] * (LIMITS.max_vector_dimension + 1),
}


async def test_bad_vectors_are_refused(
    config: Config, checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    for what, vector in BAD_VECTORS.items():
        answer = await refused(checkpoints.SaveCheckpoint(save_request(vector=vector)))
        assert (answer.reason, answer.fields) == ("INVALID_FIELD", ("vector",)), what
        streamed = frames(1, save_request(vector=vector))
        [answered] = await exchanged(checkpoints, streamed)
        assert answered.error.reason == errors_pb2.ERROR_REASON_INVALID_FIELD, what
    missing = await refused(threads.GetThread(threads_pb.GetThreadRequest(thread_id="thread")))
    assert missing.reason == "THREAD_NOT_FOUND"
    assert vectors(config) == {}


async def test_first_vector_sets_the_dimension(
    config: Config, checkpoints: CheckpointServiceAsyncStub
) -> None:
    await checkpoints.SaveCheckpoint(save_request(vector=[0.5, -2.0, 0.0]))
    await checkpoints.SaveCheckpoint(save_request(SECOND, thread_id="other", vector=[1, 1, 1]))
    wrong = await refused(
        checkpoints.SaveCheckpoint(save_request(SECOND, parent=FIRST, vector=[1.0, 2.0]))
    )
    assert (wrong.reason, wrong.fields) == ("INVALID_FIELD", ("vector",))
    assert "3 components" in wrong.message
    absent = await refused(checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=ref(SECOND))))
    assert absent.reason == "CHECKPOINT_NOT_FOUND"
    assert vectors(config) == {FIRST: [0.5, -2.0, 0.0], SECOND: [1, 1, 1]}


async def test_the_longest_vector_is_taken(
    config: Config, checkpoints: CheckpointServiceAsyncStub
) -> None:
    longest = [1.0] * LIMITS.max_vector_dimension
    await checkpoints.SaveCheckpoint(save_request(vector=longest))
    assert vectors(config) == {FIRST: longest}


async def test_identical_save_may_bring_a_vector(
    config: Config, checkpoints: CheckpointServiceAsyncStub
) -> None:
    first = await checkpoints.SaveCheckpoint(save_request())
    again = await checkpoints.SaveCheckpoint(save_request(vector=[1.0, 0.0], expected_head=""))
    assert again == first
    assert vectors(config) == {FIRST: [1.0, 0.0]}
    await checkpoints.SaveCheckpoint(save_request())
    assert vectors(config) == {FIRST: [1.0, 0.0]}


async def test_saves_of_a_stream_have_both(
    config: Config, checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    requests = [
        *frames(1, save_request(FIRST, vector=[1.0, 2.0])),
        *frames(2, save_request(SECOND, parent=FIRST, vector=[1.0, 2.0, 3.0])),
        *frames(3, save_request(SECOND, thread_id="other", searchable=False)),
    ]
    answers = await exchanged(checkpoints, requests)
    assert len(answers) == 3
    assert vectors(config) == {FIRST: [1.0, 2.0]}
    response = await threads.GetThread(threads_pb.GetThreadRequest(thread_id="other"))
    assert response.thread.unsearchable


async def test_limits_are_announced(admin: AdminServiceAsyncStub) -> None:
    info = await admin.GetServerInfo(admin_service_pb2.GetServerInfoRequest())
    assert info.limits.max_vector_dimension == LIMITS.max_vector_dimension
    assert info.limits.max_search_text_bytes == LIMITS.max_search_text
    assert info.limits.max_query_bytes == LIMITS.max_query
    assert info.limits.max_search_results == LIMITS.max_search_results
