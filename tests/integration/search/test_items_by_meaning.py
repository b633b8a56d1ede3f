"""Search finds items of stores by meaning where the server has an embedder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.servers.embedding_endpoint import Endpoint, serving
from tuskpoint import AsyncClient, FoundItems, ItemChange
from tuskpoint_server.archive.formats.stored_json import Kind
from tuskpoint_server.commands import recover, serve
from tuskpoint_server.config.settings import Config

VECTORS = {"bread": [1.0, 0.0, 0.0], "boat": [0.0, 1.0, 0.0], "a loaf": [0.8, 0.6, 0.0]}
FOOD = ("u", "food")


def vector_of(text: str) -> list[float]:
    return next((VECTORS[word] for word in VECTORS if word in text), [0.0, 0.0, 1.0])


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with serving(vector_of) as running:
        yield running


@pytest.fixture
def settings(config: Config, endpoint: Endpoint) -> Config:
    return config.model_copy(update={"embedder": "openai", "embedder_url": endpoint.url})


def said(items: FoundItems) -> list[tuple[str, float | None]]:
    return [(item.key, None if item.score is None else round(item.score, 6)) for item in items]


async def test_the_nearest_come_first_and_those_without_text_last(settings: Config) -> None:
    async with (
        serve.running_server(settings) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as client,
    ):
        await client.put_items(
            [
                ItemChange(FOOD, "hidden", {"text": "bread", "n": 1}, index=False),
                ItemChange(FOOD, "bread", {"text": "bread", "n": 1}),
                ItemChange(("u",), "sea", {"text": "boat", "note": "bread"}, index=["text"]),
                ItemChange(("v",), "bread", {"text": "bread"}),
            ]
        )
        await client.save("t", {}, summary="bread")
        items = await client.search_items(("u",), query="a loaf")
        assert said(items) == [("bread", 0.8), ("sea", 0.6), ("hidden", None)]
        assert items.warnings == ()
        paged = [
            await client.search_items(("u",), query="a loaf", limit=1, offset=n) for n in (0, 2)
        ]
        assert [*map(said, paged)] == [[("bread", 0.8)], [("hidden", None)]]
        filtered_items = await client.search_items(("u",), query="a loaf", filter={"n": {"$gt": 0}})
        assert said(filtered_items) == [("bread", 0.8), ("hidden", None)]
        await client.put_items(
            [ItemChange(FOOD, "bread", {"text": "boat"}), ItemChange(("u",), "sea", None)]
        )
        items = await client.search_items(("u",), query="a loaf")
        assert said(items) == [("bread", 0.6), ("hidden", None)]
        # Searches of checkpoints return no items, by meaning and by words.
        for mode in ("vector", "lexical"):
            results = await client.search_history("bread", mode=mode, limit=10)
            assert [result.thread_id for result in results] == ["t"]


async def test_of_several_paths_the_nearest_counts(settings: Config) -> None:
    async with (
        serve.running_server(settings) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as client,
    ):
        both, boat = {"notes": ["boat", "bread"]}, {"notes": ["boat"]}
        paths = ["notes[*]"]
        await client.put_items([ItemChange(FOOD, "both", both, index=paths)])
        await client.put_items([ItemChange(FOOD, "boat", boat, index=paths)])
        assert said(await client.search_items((), query="bread")) == [("both", 1.0), ("boat", 0.0)]
        assert said(await client.search_items((), query="boat")) == [("boat", 1.0), ("both", 1.0)]
        assert (await client.search_history("boat", mode="vector")) == []
        await client.put_items([ItemChange(FOOD, "both", both, index=["notes[0]"])])
        assert said(await client.search_items((), query="bread")) == [("both", 0.0), ("boat", 0.0)]


async def test_without_an_answer_of_the_embedder_the_last_put_come_first(
    settings: Config, endpoint: Endpoint
) -> None:
    async with (
        serve.running_server(settings) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as client,
    ):
        await client.put_items([ItemChange(FOOD, "bread", {"text": "bread"})])
        assert said(await client.search_items((), query="a loaf")) == [("bread", 0.8)]
        await client.put_items([ItemChange(FOOD, "boat", {"text": "boat"})])
        vectors, endpoint.vectors = endpoint.vectors, _broken
        items = await client.search_items((), query="bread")
        assert said(items) == [("boat", None), ("bread", None)]
        (warning,) = items.warnings
        assert warning.kind == "search_fell_back"
        assert "the embedder does not answer" in str(warning)
        endpoint.vectors = vectors


async def test_recovered_items_are_embedded_again(settings: Config, tmp_path: Path) -> None:
    async with (
        serve.running_server(settings) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as client,
    ):
        await client.put_items([ItemChange(FOOD, "bread", {"text": "bread"})])
        await client.flush()
    there = {"data_dir": tmp_path / "new", "blob_dir": settings.blob_directory}
    anew = settings.model_copy(update=there)
    recovered = await recover.recover(
        anew, recover.Order(Kind.CATALOG, settings.pointer.read_text())
    )
    assert (recovered.threads, recovered.checkpoints) == (0, 1)
    async with (
        serve.running_server(anew) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as client,
    ):
        assert said(await client.search_items((), query="a loaf")) == [("bread", 0.8)]


def _broken(text: str) -> list[float]:
    return [0.0, 0.0, 0.0]
