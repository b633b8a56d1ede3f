"""Deltas, pruning, search and stores never rely on rows changed behind the server's back."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager

import grpc
import pytest

from tests.attacks.journal_edits.edited_server import Services, name, opened_journal, serving
from tests.kit.messages import channel, ref, refused, save_request, write
from tuskpoint.v1 import (
    admin_service_pb2,
    errors_pb2,
    history_service_pb2,
    search_service_pb2,
    store_service_pb2,
    thread_service_pb2,
    value_pb2,
)
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint_server.archive.verify.scrub_progress import Progress
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.limits import MIB

pytestmark = pytest.mark.usefixtures("database")

COUNT = 5
THREADS = ("victim", "witness")
OF_VICTIM = "thread = (SELECT number FROM threads WHERE thread_id = 'victim')"
MIDDLE = f"{OF_VICTIM} AND checkpoint_id = '1f000000-0000-6000-8000-000000000002'"


class Running(Services):
    """The services of a server with two threads."""

    async def grow(self) -> None:
        """Save two threads; their channel `log` is stored once, and written at each step."""
        for thread_id in THREADS:
            for number in range(COUNT):
                stored = (
                    channel("log", b"seed")
                    if not number
                    else channel("log", empty=value_pb2.Empty())
                )
                request = save_request(
                    name(number),
                    [stored],
                    thread_id=thread_id,
                    parent=name(number - 1) if number else "",
                    metadata=b'{"step": %d}' % number,
                    writes=[write(name="log", value=said(f"written {number}"))],
                )
                request.checkpoint.state.delta_channels.append("log")
                request.checkpoint.summary = f"{thread_id} took step {number}"
                await self.checkpoints.SaveCheckpoint(request)

    async def rebuilt(self, thread_id: str, checkpoint_id: str = name(COUNT - 1)) -> list[bytes]:
        request = pb.GetDeltaHistoryRequest(ref=ref(checkpoint_id, thread_id), channels=["log"])
        [answer] = [answer async for answer in self.checkpoints.GetDeltaHistory(request)]
        return [
            answer.history.seed.value.data,
            *(write.value.data for write in answer.history.writes),
        ]

    async def prune(self, thread_id: str) -> int:
        request = thread_service_pb2.PruneThreadsRequest(
            thread_ids=[thread_id], strategy=thread_service_pb2.PRUNE_STRATEGY_KEEP_LATEST
        )
        return int((await self.threads.PruneThreads(request)).deleted_checkpoints)

    async def status(self) -> admin_service_pb2.GetArchiveStatusResponse:
        request = admin_service_pb2.GetArchiveStatusRequest()
        return await self.admin.GetArchiveStatus(request)

    async def find(self, text: str) -> tuple[list[str], list[errors_pb2.Warning]]:
        """Return the threads that a search finds, and the damage warnings of the search."""
        request = search_service_pb2.SearchCheckpointsRequest(text=text, limit=50)
        answer = await self.search.SearchCheckpoints(request)
        warnings = [
            warning
            for warning in answer.warnings
            if warning.kind == errors_pb2.WARNING_KIND_DAMAGED
        ]
        return sorted({result.ref.thread_id for result in answer.results}), warnings


def said(text: str) -> value_pb2.Value:
    return value_pb2.Value(type="bytes", data=text.encode())


def running(config: Config, **changed: object) -> AbstractAsyncContextManager[Running]:
    return serving(Running, config, **changed)


def edit(config: Config, statement: str) -> None:
    """Change at least one row of the database."""
    with opened_journal(config) as (journal, _):
        assert journal.execute(statement).rowcount > 0


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE checkpoints SET parent_id = '{name(0)}' WHERE {MIDDLE}",
        f"UPDATE checkpoints SET metadata = state WHERE {MIDDLE}",
        f"UPDATE writes SET channel = 'unlogged' WHERE {MIDDLE} AND channel = 'log'",
        f"UPDATE writes SET task_path = 'first' WHERE {MIDDLE}",
        f"DELETE FROM checkpoints WHERE {MIDDLE}",
    ],
    ids=["parent", "metadata", "channel-of-write", "path-of-write", "deleted"],
)
async def test_a_delta_channel_is_not_rebuilt_from_an_edited_ancestor(
    config: Config, statement: str
) -> None:
    async with running(config) as server:
        await server.grow()
        whole = [b"seed", *(b"written %d" % number for number in range(COUNT - 1))]
        assert await server.rebuilt("victim") == whole
        edit(config, statement)
        for checkpoint_id in (name(COUNT - 1), ""):
            error = await refused(server.rebuilt("victim", checkpoint_id))
            assert (error.code, error.reason) == (grpc.StatusCode.DATA_LOSS, "JOURNAL_DAMAGED")
        assert await server.rebuilt("victim", name(1)) == whole[:2]
        assert await server.rebuilt("witness") == whole
        fork = thread_service_pb2.ForkThreadRequest(ref=ref(name(COUNT - 1), "victim"))
        if "DELETE" not in statement:
            assert (await refused(server.threads.ForkThread(fork))).reason == "JOURNAL_DAMAGED"


async def test_the_latest_of_an_edited_thread_has_no_history(config: Config) -> None:
    async with running(config) as server:
        await server.grow()
        edit(config, f"DELETE FROM checkpoints WHERE {OF_VICTIM} AND checkpoint_id = '{name(4)}'")
        assert (await refused(server.rebuilt("victim", ""))).reason == "JOURNAL_DAMAGED"
        assert len(await server.rebuilt("witness", "")) == COUNT


async def test_nothing_is_pruned_by_an_edited_row(config: Config) -> None:
    async with running(config) as server:
        await server.grow()
        edit(config, f"UPDATE checkpoints SET label = 'kept' WHERE {MIDDLE}")
        error = await refused(server.prune("victim"))
        assert (error.reason, error.metadata["checkpoint_id"]) == ("JOURNAL_DAMAGED", name(2))
        assert await server.rebuilt("victim", name(1))
        assert await server.prune("witness") == COUNT - 1


async def test_a_search_leaves_out_edited_rows_and_says_so(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(config) as server:
        await server.grow()
        assert await server.find("took step") == (["victim", "witness"], [])
        edit(config, f"UPDATE checkpoints SET summary = 'transfer everything' WHERE {OF_VICTIM}")
        thread_ids, [warning] = await server.find("took step")
        assert thread_ids == ["witness"]
        assert "of thread 'victim' is damaged in the journal" in warning.message
        assert f"{COUNT - 1} more" in warning.message
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert any("left out of a search" in error.getMessage() for error in errors)


async def test_edited_rows_are_not_indexed(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(config, search=False) as server:
        await server.grow()
    edit(config, f"UPDATE checkpoints SET summary = 'transfer everything' WHERE {MIDDLE}")
    async with running(config) as server:
        assert await server.find("transfer everything") == ([], [])
        assert (await server.find("took step"))[0] == ["victim", "witness"]
    assert any(
        record.levelno == logging.ERROR and "not indexed: checkpoint" in record.getMessage()
        for record in caplog.records
    )


async def test_an_edited_item_is_refused_and_left_out_of_searches(config: Config) -> None:
    async with running(config) as server:
        put = store_service_pb2.PutItemsRequest(
            changes=[
                store_service_pb2.ItemChange(
                    namespace=["users"], key=key, value_json=b'{"owes": "%s"}' % key.encode()
                )
                for key in ("ann", "bob")
            ]
        )
        await server.store.PutItems(put)
        edit(
            config,
            "UPDATE checkpoints SET metadata = (SELECT o.metadata FROM checkpoints o"
            " WHERE o.checkpoint_id = 'bob') WHERE checkpoint_id = 'ann'",
        )

        async def get(*keys: str) -> list[str]:
            wanted = [store_service_pb2.ItemKey(namespace=["users"], key=key) for key in keys]
            request = store_service_pb2.GetItemsRequest(keys=wanted)
            return [item.key for item in (await server.store.GetItems(request)).items]

        assert await get("bob") == ["bob"]
        assert (await refused(get("ann", "bob"))).reason == "JOURNAL_DAMAGED"
        for query in ("", "who owes"):
            answer = await server.store.SearchItems(
                store_service_pb2.SearchItemsRequest(namespace_prefix=["users"], query=query)
            )
            assert [item.item.key for item in answer.items] == ["bob"]
            [warning] = [
                warning
                for warning in answer.warnings
                if warning.kind == errors_pb2.WARNING_KIND_DAMAGED
            ]
            assert "checkpoint 'ann'" in warning.message


async def test_retention_goes_on_past_an_edited_thread(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rules = config.data_dir.parent / "rules.toml"
    rules.write_text('[[retention]]\ntenant = "*"\nkeep_last = 1\n')
    async with running(config) as server:
        await server.grow()
    edit(config, f"UPDATE checkpoints SET label = 'kept' WHERE {MIDDLE}")
    monkeypatch.setattr(serve, "RULES_SECONDS", 0.05)
    async with running(config, retention_file=rules) as server:
        deleted = history_service_pb2.WatchThreadRequest(
            thread_id="witness", kinds=[history_service_pb2.EVENT_KIND_CHECKPOINTS_DELETED]
        )
        async for frame in server.history.WatchThread(deleted):
            if frame.event.kind == history_service_pb2.EVENT_KIND_CHECKPOINTS_DELETED:
                break
        request = thread_service_pb2.GetThreadRequest(thread_id="victim")
        assert (await server.threads.GetThread(request)).thread.checkpoint_count == COUNT
    assert any("no retention rule is applied" in record.getMessage() for record in caplog.records)


async def test_the_scrub_names_an_edited_thread_that_nobody_reads(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(config, scrub_bytes_per_second=0) as server:
        await server.grow()
        assert not (await server.status()).HasField("scrub_time")
    edit(config, f"UPDATE checkpoints SET summary = 'transfer everything' WHERE {MIDDLE}")
    ended = asyncio.Event()
    end = Progress.end

    def told(progress: Progress, now_us: int) -> None:
        end(progress, now_us)
        ended.set()

    monkeypatch.setattr(Progress, "end", told)
    async with running(config, scrub_bytes_per_second=64 * MIB) as server:
        async with asyncio.timeout(60):
            await ended.wait()
        status = await server.status()
        while not status.HasField("scrub_time"):  # The time is recorded after the end.
            status = await server.status()
        assert list(status.damaged_thread_ids) == ["victim"]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert any("thread 'victim' of tenant default is damaged" in error for error in errors)
