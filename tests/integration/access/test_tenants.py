"""Nothing crosses from one tenant to another: no byte, no name, not even that something exists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.access.tenant_kit import METHODS, House, furnish, house
from tests.integration.access.tenant_probes import NOBODYS, OWN, probes
from tests.kit.databases import journal_of
from tests.kit.messages import channel, incompressible, ref, save_request
from tuskpoint import AsyncClient, InvalidRequest, NotFound, TuskPointError
from tuskpoint._transport import methods
from tuskpoint.v1 import snapshot_service_pb2 as snapshots
from tuskpoint.v1 import thread_service_pb2 as threads
from tuskpoint.v1.thread_service_pb2 import ForkThreadRequest
from tuskpoint_server.commands import recover

pytestmark = pytest.mark.usefixtures("database")

# Methods that answer the owner's names and unknown names alike.
SAME_FOR_ALL = {
    methods.GET_SERVER_INFO.path,
    methods.GET_ARCHIVE_STATUS.path,
    methods.FLUSH.path,
    methods.ACCEPT_CLOCK.path,
    methods.LIST_TRAIL.path,  # requests have no names
    # the server has no webhooks; `test_webhooks.py` shows that other tenants' are hidden
    methods.LIST_WEBHOOKS.path,
    methods.LIST_DELIVERIES.path,
    methods.RETRY_DELIVERIES.path,
    methods.TEST_WEBHOOK.path,
    methods.PUT_ITEMS.path,  # answers have no fields
    methods.ERASE_THREADS.path,  # threads that are deleted count like threads that no tenant has
}


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path / "house") as running:
        await running.stranger.client.save(OWN, {"plan": ["look around"]}, vector=[0, 1])
        yield running


def test_every_method_is_probed() -> None:
    assert probes(NOBODYS).keys() == METHODS.keys()


async def test_another_tenants_names_are_as_good_as_nobodys(two: House) -> None:
    names = await furnish(two.owner)
    nobodys = replace(NOBODYS, cursor=names.cursor)
    before = await two.owner.belongings()
    real, imagined = probes(names), probes(nobodys)
    for path, requests in real.items():
        for request, instead in zip(requests, imagined[path], strict=True):
            reported = await two.stranger.heard(path, request, names)
            assert reported == await two.stranger.heard(path, instead, nobodys), (path, request)
    assert await two.owner.belongings() == before


async def test_the_probes_return_something_to_the_owner(two: House) -> None:
    names = await furnish(two.owner)
    nobodys = replace(NOBODYS, cursor=names.cursor)
    await two.owner.client.save(OWN, {"plan": ["look around"]}, vector=[0, 1])
    imagined = probes(nobodys)
    silent = set()
    for path, requests in probes(names).items():
        pairs = zip(requests, imagined[path], strict=True)
        reported = [
            await two.owner.heard(path, request, names)
            != await two.owner.heard(path, other, nobodys)
            for request, other in pairs
        ]
        if not any(reported):
            silent.add(path)
    assert silent <= SAME_FOR_ALL


async def test_nothing_that_one_tenant_does_is_seen_by_the_other(two: House) -> None:
    client = two.stranger.client
    await client.save("diary", {"plan": ["sleep"]}, summary="Nothing of note.", vector=[1, 0])
    await client.create_snapshot([OWN], session_id="own")
    await two.operator.client.flush()
    async with asyncio.timeout(30):
        # the time of a scrub is part of the comparison
        while (await client.status()).scrubbed is None:
            pass

    async def seen() -> tuple[object, ...]:
        results = await client.search_history("zebras wrote owner meet", limit=20)
        near = await client.search_similar([1, 0], limit=20)
        figures = await client.status()
        return (
            await two.stranger.belongings(),
            [*results, results.unindexed, *near, near.unindexed],
            (figures.journal_bytes, figures.spool_bytes, figures.cache_bytes),
        )

    before = await seen()
    await furnish(two.owner)
    assert await seen() == before
    assert before[2] == (0, 0, 0), "only an admin gets the sizes of all tenants"


async def test_one_name_in_two_tenants_is_two_threads(two: House) -> None:
    ours, theirs = two.owner.client, two.stranger.client
    clients = {"ours": ours, "theirs": theirs}

    async def work(who: str) -> list[str]:
        """Save to the shared name, and return the plans that a watch of this name returned."""
        client = clients[who]
        reported: list[str] = []
        await client.save("shared", {"plan": f"{who} 0"})
        async with aclosing(client.watch("shared")) as events:
            saved = 0
            async for event in events:
                if event.checkpoint is not None:
                    reported.append(event.checkpoint.state["plan"])
                if event.kind == "checkpoint_saved" and saved < 9:
                    saved += 1
                    await client.save("shared", {"plan": f"{who} {saved}"})
                if len(reported) == 10:
                    return reported
        raise AssertionError("the watch ended")

    reported = dict(zip(clients, await asyncio.gather(*map(work, clients)), strict=True))
    assert reported == {who: [f"{who} {number}" for number in range(10)] for who in clients}
    for tenant in (two.owner, two.operator):
        await tenant.client.flush()
        own = {record.checkpoint_id async for record in tenant.client.list("shared")}
        assert {record.checkpoint_id async for record in tenant.client.manifest("shared")} == own
        assert (await tenant.client.verify("shared")).passed == len(own) == 10
    for who, client in clients.items():
        assert (await client.load("shared", source="blob")).state == {"plan": f"{who} 9"}
    forks = {who: await client.fork("shared", new_thread_id="f") for who, client in clients.items()}
    assert forks["ours"].checkpoint_id != forks["theirs"].checkpoint_id
    first = await anext(theirs.history("shared"))
    await theirs.rollback("shared", first.checkpoint_id)
    assert await theirs.delete("f") == 1
    assert (await ours.load("f")).state == {"plan": "ours 9"}
    assert await theirs.delete("shared") == 11
    assert (await ours.load("shared")).state == {"plan": "ours 9"}
    # The thread of one tenant has a tombstone; the thread of the other tenant continues.
    head = (await ours.load("shared")).checkpoint_id
    await ours.save("shared", {"plan": "ours 10"}, parent=head)
    assert len([record async for record in ours.list("shared")]) == 11
    with pytest.raises(NotFound):
        await theirs.load("shared")


async def test_a_cursor_leads_nowhere_in_the_other_tenant(two: House) -> None:
    for tenant in (two.owner, two.stranger):
        await tenant.client.save("shared", {"plan": 1})
    async with aclosing(two.owner.client.watch("shared")) as events:
        cursor = (await anext(events)).cursor
    async with aclosing(two.stranger.client.watch("shared", cursor=cursor)) as events:
        with pytest.raises(InvalidRequest, match="cursor"):
            await anext(events)


async def test_a_request_id_is_the_tenants_own(two: House) -> None:
    made = {}
    for name, tenant in {"ours": two.owner, "theirs": two.stranger}.items():
        saved = await tenant.client.save("shared", {"plan": name})
        request = ForkThreadRequest(ref=ref(saved, "shared"), request_id="the same")
        (answer,) = await tenant.call(methods.FORK_THREAD.path, request)
        (again,) = await tenant.call(methods.FORK_THREAD.path, request)
        assert answer == again
        made[name] = answer.ref  # type: ignore[attr-defined]
    assert made["ours"].thread_id != made["theirs"].thread_id
    for name, tenant in {"ours": two.owner, "theirs": two.stranger}.items():
        assert (await tenant.client.load(made[name].thread_id)).state == {"plan": name}


async def test_a_page_token_shows_no_other_tenants_pages(two: House) -> None:
    ours, theirs = two.owner, two.stranger
    for number in range(3):
        await ours.client.save(f"a-{number}", {"plan": number})
        await ours.client.create_snapshot([f"a-{number}"])
        await ours.client.save("many", {"plan": number})
    await theirs.client.save("many", {"plan": 0})
    await two.owner.client.flush()
    await two.operator.client.flush()
    for path, request in (
        (methods.LIST_THREADS.path, threads.ListThreadsRequest(page_size=1)),
        (methods.LIST_SNAPSHOTS.path, snapshots.ListSnapshotsRequest(page_size=1)),
        (methods.GET_MANIFEST.path, threads.GetManifestRequest(thread_id="many", page_size=1)),
    ):
        (page,) = await ours.call(path, request)
        request.page_token = page.next_page_token  # type: ignore[attr-defined]
        assert request.page_token
        assert (await ours.heard(path, request, NOBODYS)).startswith("[")
        said = await theirs.heard(path, request, NOBODYS)
        assert "PAGE_TOKEN_INVALID" in said, said


async def test_a_flush_is_of_one_tenant(two: House) -> None:
    await two.owner.client.save("a", {"plan": 1})
    await two.owner.client.save("b", {"plan": 1})
    assert await two.operator.client.flush() == 1
    assert (await two.owner.client.status()).backlog_checkpoints == 2
    assert (await two.owner.client.load("a")).durability == "journaled"
    assert await two.owner.client.flush() == 2


async def test_a_full_backlog_stops_its_own_tenant(tmp_path: Path) -> None:
    limits = {"backlog_soft_limit": 2**20, "backlog_hard_limit": 2**20}
    async with house(tmp_path / "house", **limits) as two:
        save = save_request("", [channel("x", incompressible(2**20))], thread_id="large")
        await two.owner.call(methods.SAVE_CHECKPOINT.path, save)
        assert "BACKLOG_FULL" in await two.owner.heard(methods.SAVE_CHECKPOINT.path, save, NOBODYS)
        small = save_request("", [channel("x", b"small")], thread_id="small")
        (answer,) = await two.stranger.call(methods.SAVE_CHECKPOINT.path, small)
        assert not answer.warnings  # type: ignore[attr-defined]


async def test_equal_bytes_are_no_bridge(two: House) -> None:
    """Values are stored by content; another tenant that stores the content learns nothing."""
    for tenant in (two.owner, two.stranger):
        await tenant.client.save("secret", {"key": "the same in both"})
    await two.owner.client.delete("secret")
    await two.owner.client.flush()
    assert (await two.stranger.client.load("secret")).state == {"key": "the same in both"}


async def test_vectors_of_each_tenant_have_a_dimension_of_their_own(two: House) -> None:
    await two.owner.client.save("three", {"plan": 1}, vector=[1, 0, 0])
    await two.stranger.client.save("two", {"plan": 1}, vector=[1, 0])
    assert [result.thread_id for result in await two.owner.client.search_similar([1, 0, 0])] == [
        "three"
    ]
    results = await two.stranger.client.search_similar([1, 0], limit=5)
    assert {result.thread_id for result in results} == {"two", OWN}


async def test_a_descriptor_gives_another_tenant_access(two: House) -> None:
    """Teams hand over by a descriptor: the other tenant needs no other access."""
    await two.owner.client.save("plan", {"plan": ["meet"]}, summary="Planned.")
    descriptor = await two.owner.client.handoff("plan", to_agent="writer")
    adoption = await two.stranger.client.adopt(descriptor, "adopted")
    assert adoption.verified
    assert (await two.stranger.client.load("adopted")).state == {"plan": ["meet"]}
    # The descriptor opens the handed-off bundle and nothing else.
    with pytest.raises(NotFound):
        await two.stranger.client.load("plan")
    assert (await two.owner.client.lineage("plan")).descendants == ()


async def test_tenants_stay_apart_over_restarts_and_recovery(tmp_path: Path) -> None:
    async def reported(client: AsyncClient) -> tuple[object, ...]:
        try:
            return ((await client.load("shared")).state, [record async for record in client.list()])
        except TuskPointError as error:
            return (error.reason, [record async for record in client.list()])

    first = tmp_path / "first"
    async with house(first) as two:
        for writer in (two.owner, two.operator):
            await writer.client.save("gone", {"plan": "forget"})
            await writer.client.flush()
            await writer.client.delete("gone")
        for name, tenant in {"theirs": two.operator, "ours": two.owner}.items():
            await tenant.client.save("shared", {"plan": name})
            await tenant.client.flush()
        before = [await reported(tenant.client) for tenant in (two.owner, two.stranger)]
        assert [report[0] for report in before] == [{"plan": "ours"}, {"plan": "theirs"}]
    async with house(first) as two:
        assert [await reported(tenant.client) for tenant in (two.owner, two.stranger)] == before
        pointers = {
            tenant: (two.data_dir / f"catalog.{tenant}").read_text().strip()
            for tenant in ("acme", "other")
        }
        blobs = two.blobs
    assert pointers["acme"] != pointers["other"]

    second = tmp_path / "second"
    second.mkdir()
    for name in ("tokens.toml", "tokens.json"):
        (second / name).write_bytes((first / name).read_bytes())
    flags = ["--data-dir", str(second / "data"), "--blob-dir", str(blobs)]
    flags += [f"--journal={journal_of(second / 'data')}"]
    flags += ["--catalog", pointers["acme"], "--tenant", "acme"]
    config, order = recover.parse(flags, "test")
    await recover.recover(config, order)
    async with house(second, blob_dir=blobs) as two:
        ours, theirs = [await reported(tenant.client) for tenant in (two.owner, two.stranger)]
        assert [thread.thread_id async for thread in two.owner.client.list_threads()] == ["shared"]
    assert ours[0] == {"plan": "ours"}
    assert theirs == ("CHECKPOINT_NOT_FOUND", [])
