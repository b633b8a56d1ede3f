"""The local embedder returns the library's vectors, or reports what is missing."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.unit.search.embedders.local_model import CACHE, NEEDS_FASTEMBED, NEEDS_MODEL, TINY
from tuskpoint_server.core.search import unpack_vector
from tuskpoint_server.search.embedders import EmbedderError
from tuskpoint_server.search.embedders.local import DIMENSION, LocalEmbedder

CLS, SEP, BREAD, BOAT = 2, 3, 4, 5
"""Numbers of tokens in the tiny model."""


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEmbedder]:
    """Return one embedder with the tiny model for all tests: importing the library is slow."""
    opened = LocalEmbedder(tmp_path_factory.mktemp("cache"), TINY)
    yield opened
    asyncio.run(opened.close())


def as_array(embedded: list[bytes]) -> npt.NDArray[np.float32]:
    return np.array([unpack_vector(vector) for vector in embedded], np.float32)


@NEEDS_FASTEMBED
async def test_a_vector_is_the_mean_of_the_tokens_of_length_1(embedder: LocalEmbedder) -> None:
    (made,) = as_array(await embedder.embed(["bread boat"]))
    components = np.arange(1, DIMENSION + 1) / 100
    mean = sum(np.sin(number * components) for number in (CLS, BREAD, BOAT, SEP)) / 4
    assert made == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)
    assert await embedder.dimension() == len(made) == DIMENSION
    assert embedder.name == "minilm-l6-v2"


@NEEDS_FASTEMBED
async def test_each_text_has_its_own_vector_whatever_it_is_embedded_with(
    embedder: LocalEmbedder,
) -> None:
    texts = ["bread boat " * 40, "bread", "", "bread boat", "boat\ud800", "bread"]
    together = as_array(await embedder.embed(texts))
    alone = np.concatenate([as_array(await embedder.embed([text])) for text in texts])
    assert np.abs(together - alone).max() < 1e-5
    assert len({tuple(np.round(vector, 3)) for vector in together}) == len(set(texts))


@NEEDS_FASTEMBED
async def test_text_after_the_first_tokens_does_not_count(embedder: LocalEmbedder) -> None:
    first, long, other = as_array(
        await embedder.embed(["bread " * 254, "bread " * 254 + "boat " * 9000, "bread " * 200])
    )
    assert first == pytest.approx(long, abs=1e-6)
    assert np.abs(first - other).max() > 1e-6


@NEEDS_FASTEMBED
async def test_several_may_embed_at_once_and_no_loop_is_blocked(embedder: LocalEmbedder) -> None:
    expected = await embedder.embed(["bread"])
    every = await asyncio.gather(*(embedder.embed(["bread"]) for _ in range(3)))
    assert every == [expected] * 3
    computing = {t.name for t in threading.enumerate() if t.name.startswith("tuskpoint-embedder")}
    assert len(computing) == 1
    assert await embedder.embed([]) == []


@NEEDS_MODEL
async def test_the_model_finds_what_is_meant() -> None:
    embedder = LocalEmbedder(CACHE)
    question, bread, ferry = as_array(
        await embedder.embed(["Why was the loaf so flat?", "The dough did not rise.", "A ferry."])
    )
    assert question @ bread > question @ ferry
    await embedder.close()


def test_a_library_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbedderError) as raised:
        LocalEmbedder(tmp_path)
    assert "needs fastembed, which is not installed: pip install" in str(raised.value)


@NEEDS_FASTEMBED
async def test_a_library_that_cannot_be_imported_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    embedder = LocalEmbedder(tmp_path)
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(EmbedderError, match=r"MiniLM-L6-v2 cannot be loaded: .*fastembed"):
        await embedder.embed(["a"])
    await embedder.close()


@NEEDS_FASTEMBED
async def test_a_model_that_cannot_be_had_is_asked_for_again(tmp_path: Path) -> None:
    missing = tmp_path / "model"
    embedder = LocalEmbedder(tmp_path, missing)
    with pytest.raises(EmbedderError, match=r"cannot be loaded: .*model\.onnx"):
        await embedder.dimension()
    missing.symlink_to(TINY)
    assert await embedder.dimension() == DIMENSION
    await embedder.close()
