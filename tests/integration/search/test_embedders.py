"""Servers use their embedder, wait for it, or report clearly that it is missing."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tests.integration.search.search_kit import has_vectors
from tests.kit.servers.embedding_endpoint import serving
from tests.unit.search.embedders.local_model import CACHE, NEEDS_MODEL
from tuskpoint import AsyncClient
from tuskpoint_server.commands import serve
from tuskpoint_server.config.composition import MODELS
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.process import EXIT_CONFIG, StartError

VECTORS = {"bread": [1.0, 0.0], "boat": [0.0, 1.0], "a loaf": [0.9, 0.1]}


def with_embedder(config: Config, **settings: Any) -> Config:
    """Return settings of a server with an embedder."""
    return config.model_copy(update={"embedder": "openai", **settings})


def vector_of(text: str) -> list[float]:
    return VECTORS.get(text, [0.5, -0.5])


async def test_an_endpoint_that_comes_back_embeds_earlier_saves(
    config: Config,
) -> None:
    async with serving(vector_of) as endpoint:
        vectors, endpoint.vectors = endpoint.vectors, _broken
        settings = with_embedder(config, embedder_url=endpoint.url)
        async with (
            serve.running_server(settings) as server,
            AsyncClient(f"127.0.0.1:{server.port}") as client,
        ):
            bread = await client.save("t", {}, summary="bread")
            await client.save("t", {}, summary="boat")
            results = await client.search_history("bread")
            assert (results.mode, results[0].checkpoint_id) == ("lexical", bread)
            (warning,) = results.warnings
            assert warning.kind == "search_fell_back"
            assert endpoint.url not in str(warning)
            (warning,) = (await client.search_similar([1, 2])).warnings
            assert str(warning).startswith("no checkpoint has a vector yet: the embedder")
            endpoint.vectors = vectors
            await has_vectors(client, 2)
            results = await client.search_history("a loaf")
            assert (results.mode, results.metric, results.warnings) == ("vector", "cosine", ())
            assert results[0].checkpoint_id == bread
            assert (await client.info()).embedder == "openai:text-embedding-3-small"


@NEEDS_MODEL
async def test_the_local_model_finds_by_meaning(config: Config) -> None:
    (config.data_dir / MODELS).symlink_to(CACHE)
    async with (
        serve.running_server(with_embedder(config, embedder="local")) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as client,
    ):
        bread = await client.save("t", {}, summary="The sourdough did not rise.")
        await client.save("t", {}, summary="The ferry left the harbour.")
        await has_vectors(client, 2)
        results = await client.search_history("Why was the loaf so flat?")
        assert (results.mode, results[0].checkpoint_id) == ("vector", bread)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"embedder": "local"}, "needs fastembed, which is not installed: pip install"),
        ({"embedder_url": "http://key@host/v1"}, "must not hold credentials"),
    ],
)
async def test_an_embedder_that_cannot_be_had_is_reported_at_the_start(
    config: Config,
    settings: dict[str, str],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *package: None if name == "fastembed" else find(name, *package),
    )
    with pytest.raises(StartError, match="cannot be used") as raised:
        async with serve.running_server(with_embedder(config, **settings)):
            pytest.fail("it started")
    assert problem in str(raised.value)
    assert raised.value.code == EXIT_CONFIG


def _broken(text: str) -> list[float]:
    return [0.0, 0.0]
