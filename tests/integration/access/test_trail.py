"""The audit trail over the network records the right calls and fields, and no others."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.access.tls_kit import write_tokens
from tests.kit.databases import journal_of
from tuskpoint import AsyncClient, TrailEntry
from tuskpoint._messages.trail import TrailReader
from tuskpoint.errors import DataLoss, InvalidRequest, NotFound, PermissionDenied
from tuskpoint.v1.admin_service_pb2 import TrailBatch
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.commands import recover, serve
from tuskpoint_server.config.settings import Config

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    return write_tokens(tmp_path / "tokens.toml")


@pytest.fixture
def config(config: Config, tmp_path: Path, tokens: dict[str, str]) -> Config:
    return config.model_copy(update={"tokens": tmp_path / "tokens.toml"})


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "FLUSH_SECONDS", 0.01)


def client(server: Server, token: str | None) -> AsyncClient:
    return AsyncClient(f"127.0.0.1:{server.port}", token=token)


Counts = Counter[tuple[str, str, str, str]]


async def counts(reader: AsyncClient) -> Counts:
    """Return the number of calls of each kind in the trail, except reads of the trail."""
    calls: Counts = Counter()
    async for entry in reader.trail():
        assert entry.first <= entry.last
        if entry.method != "ListTrail":
            calls[entry.who, entry.method, entry.thread_id, entry.status] += entry.calls
    return calls


async def test_changes_are_recorded_and_reads_and_payloads_are_not(
    config: Config, tokens: dict[str, str], tmp_path: Path
) -> None:
    async with serve.running_server(config) as server, client(server, tokens["writer"]) as writer:
        for number in range(6):
            await writer.save(f"t{number % 2}", {"x": "secret text"})
        await writer.load("t0")
        with pytest.raises(NotFound):
            await writer.set_retention("never was", None)
        await writer.delete("t1")
        async with client(server, tokens["reader"]) as reader:
            with pytest.raises(PermissionDenied):
                await reader.delete("t0")
            with pytest.raises(PermissionDenied):
                await counts(reader)
        async with client(server, tokens["stranger"]) as stranger:
            await stranger.save("theirs", {"x": 1})
    # A stopping server writes the last entries.
    async with serve.running_server(config) as server, client(server, tokens["writer"]) as writer:
        await writer.flush()
        calls = await counts(writer)
        assert calls - Counter({("writer", "Flush", "", "OK"): 1}) == Counter(
            {
                ("writer", "SaveCheckpoint", "t0", "OK"): 3,
                ("writer", "SaveCheckpoint", "t1", "OK"): 3,
                ("writer", "SetRetention", "never was", "NOT_FOUND"): 1,
                ("writer", "DeleteThread", "t1", "OK"): 1,
                ("reader", "DeleteThread", "", "PERMISSION_DENIED"): 1,
            }
        )
        catalog = (await writer.status()).catalog
        entries = [entry async for entry in writer.trail()]
        assert any(entry.certified for entry in entries)
        with pytest.raises(InvalidRequest, match="server's own"):
            await writer.load("$trail/calls")
    shown = "\n".join(map(str, entries))
    assert "secret text" not in shown
    assert not [token for token in tokens.values() if token in shown]
    assert catalog is not None
    await recovered(
        config, tmp_path / "new", catalog.blob_id, [entry for entry in entries if entry.certified]
    )


async def recovered(
    config: Config, data_dir: Path, catalog: str, certified: list[TrailEntry]
) -> None:
    """Recover an empty server; its trail starts with the certified entries."""
    flags = ["--data-dir", str(data_dir), "--blob-dir", str(config.blob_directory)]
    flags += [f"--journal={journal_of(data_dir)}", "--catalog", catalog]
    anew, order = recover.parse(flags, "1")
    await recover.recover(anew, order)
    anew = anew.model_copy(update={"listen": config.listen})
    async with (
        serve.running_server(anew) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as reader,
    ):
        entries = [entry async for entry in reader.trail()]
    assert [entry.batch_id for entry in entries[: len(certified)]] == [
        entry.batch_id for entry in certified
    ]
    assert certified


async def test_reads_are_recorded_if_all_calls_are(config: Config, tokens: dict[str, str]) -> None:
    everything = config.model_copy(update={"trail": "all"})
    async with (
        serve.running_server(everything) as server,
        client(server, tokens["writer"]) as writer,
    ):
        await writer.save("t", {"x": 1})
        await writer.load("t")
        expected = ("writer", "LoadCheckpoint", "t", "OK"), ("writer", "GetCheckpoint", "t", "OK")
        calls = await counts(writer)
        while not any(calls[call] for call in expected):
            calls = await counts(writer)


async def test_nothing_is_recorded_where_nobody_is_asked_for_credentials(config: Config) -> None:
    anonymous = config.model_copy(update={"tokens": None})
    async with serve.running_server(anonymous) as server, client(server, None) as caller:
        await caller.save("t", {"x": 1})
    async with serve.running_server(anonymous) as server, client(server, None) as caller:
        assert [entry async for entry in caller.trail()] == []


def batch(previous: str, number: int) -> TrailBatch:
    content = f'{{"previous":"{previous}","entries":[{{"n":{number}}}]}}'
    return TrailBatch(batch_id=str(number), content=content.encode())


@pytest.mark.parametrize("wrong", [1, 2])
def test_a_changed_or_missing_batch_is_found(wrong: int) -> None:
    trail, last = [], ""
    for number in range(4):
        trail.append(batch(last, number))
        last = hashlib.sha256(trail[-1].content).hexdigest()
    whole = TrailReader()
    assert [entry for trail_batch in trail for entry in whole.entries(trail_batch)] == [
        {"n": n} for n in range(4)
    ]
    missing = [trail_batch for number, trail_batch in enumerate(trail) if number != wrong]
    changed = [*trail]
    changed[wrong] = TrailBatch(batch_id="x", content=trail[wrong].content.replace(b"}]", b" }]"))
    added = [*trail[:wrong], batch("0" * 64, 9), *trail[wrong:]]
    for damaged in (missing, changed, added):
        with pytest.raises(DataLoss, match="the trail is broken at batch"):
            list(map(TrailReader().entries, damaged))


@pytest.fixture
async def server(config: Config) -> AsyncIterator[Server]:
    async with serve.running_server(config) as server:
        yield server
