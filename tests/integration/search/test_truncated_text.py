"""A search says that it may have missed text that was cut before indexing."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.integration.cli.command_line.kit import run
from tests.integration.mcp.mcp_kit import calling, over_stdio
from tests.kit.servers.embedding_endpoint import serving
from tuskpoint import AsyncClient
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config

pytestmark = pytest.mark.usefixtures("database")

LONG = "begin with the walrus " + "and then " * 2000 + "end with the puffin"
WARNING = "checkpoints with more text than is indexed that were not found: 1; "


async def save_both(client: AsyncClient) -> None:
    await client.save("long", {"current_plan": LONG}, metadata={"kind": "plan"}, agent_id="planner")
    await client.save("short", {"current_plan": "look for the puffin"})


def kinds(results: object) -> list[str]:
    return [warning.kind for warning in results.warnings]  # type: ignore[attr-defined]


async def test_a_miss_warns_where_the_text_in_scope_was_cut(server: Server) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        await client.save("short", {"current_plan": "look for the puffin"})
        assert kinds(await client.search_history("walrus")) == []
        await save_both(client)
        missed = await client.search_history("walrus")
        assert (list(missed), kinds(missed)) == ([], ["text_truncated"])
        assert str(missed.warnings[0]).startswith(WARNING)
        assert kinds(await client.search_history('"the walrus"')) == ["text_truncated"]
        for scope in (
            {"thread_id": "long"},
            {"agent_id": "planner"},
            {"filter_metadata": {"kind": "plan"}},
        ):
            assert kinds(await client.search_history("walrus", **scope)) == ["text_truncated"]
        for scope in (
            {"thread_id": "short"},
            {"agent_id": "writer"},
            {"filter_metadata": {"kind": "draft"}},
        ):
            assert kinds(await client.search_history("walrus", **scope)) == []


async def test_no_search_warns_that_found_what_was_cut_or_as_many_as_it_may(
    server: Server,
) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        await save_both(client)
        results = await client.search_history("puffin")
        assert {result.thread_id: result.truncated for result in results} == {
            "long": True,
            "short": False,
        }
        assert kinds(results) == []
        assert kinds(await client.search_history("look", 1)) == []
        assert kinds(await client.search_history("look", 2)) == ["text_truncated"]
        await client.set_searchable("long", False)
        assert kinds(await client.search_history("walrus")) == []
        await client.set_searchable("long", True)
        assert kinds(await client.search_history("walrus")) == ["text_truncated"]
        await client.delete("long")
        assert kinds(await client.search_history("walrus")) == []


async def test_an_identifier_that_is_in_no_indexed_text_warns_in_a_search_by_meaning(
    config: Config,
) -> None:
    async with serving(lambda text: [1.0, float(len(text))]) as endpoint:
        settings = config.model_copy(update={"embedder": "openai", "embedder_url": endpoint.url})
        async with (
            serve.running_server(settings) as server,
            AsyncClient(f"127.0.0.1:{server.port}") as client,
        ):
            await save_both(client)
            for number in range(5):
                await client.save(f"t{number}", {}, summary=f"note {number}")
            async with asyncio.timeout(60):
                while True:
                    results = await client.search_history("PAY-1234", 5)
                    if results.mode == "vector" and not results.unindexed:
                        break
                    await asyncio.sleep(0.02)
            assert len(results) == 5
            expected = (
                [] if "long" in {result.thread_id for result in results} else ["text_truncated"]
            )
            assert kinds(results) == expected
            assert kinds(await client.search_history("note", 5)) == []


async def test_the_command_line_and_mcp_show_it(server: Server) -> None:
    target = f"127.0.0.1:{server.port}"
    async with AsyncClient(target) as client:
        await save_both(client)
    shown = await asyncio.to_thread(run, target, "search", "walrus")
    assert WARNING in " ".join(shown.errors.split()) + " "
    printed = await asyncio.to_thread(run, target, "search", "walrus", "--json")
    [warning] = json.loads(printed.out)["warnings"]
    assert (warning["kind"], warning["message"][: len(WARNING)]) == ("text_truncated", WARNING)
    async with calling(over_stdio(target)) as call:
        answer = await call("checkpoint_search", query="walrus")
        [message] = answer["warnings"]
        assert message.startswith(WARNING)
