"""Vectors from a small model on this machine, by the library fastembed, if it is installed.

The model is `sentence-transformers/all-MiniLM-L6-v2` in the format of ONNX Runtime: 90 MB, fetched
once over HTTPS from the source that fastembed knows.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from . import EmbedderError

if TYPE_CHECKING:
    from fastembed import TextEmbedding

_T = TypeVar("_T")

NAME = "minilm-l6-v2"
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
INSTALL = 'pip install "tuskpoint-server[embedder]"'

DIMENSION = 384
# most characters of a text that are given to the model: the model reads 256 tokens, and few tokens
# have more than 16 characters
_MAX_TEXT = 16 * 256


class LocalEmbedder:
    """An `Embedder` with MiniLM, in a thread of its own; the model is loaded at first use.

    Args:
        cache: Directory for the fetched model.
        model: Directory with the files of the model; if given, nothing is fetched.

    Raises:
        EmbedderError: The library is not installed.
    """

    name = NAME
    batch = 16

    def __init__(self, cache: Path, model: Path | None = None) -> None:
        if importlib.util.find_spec("fastembed") is None:
            raise EmbedderError(f"it needs fastembed, which is not installed: {INSTALL}")
        self._cache, self._directory = cache, model
        self._model: TextEmbedding | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tuskpoint-embedder")

    async def dimension(self) -> int:
        """Return the number of components, once the model is loaded."""
        await self._run(self._loaded)
        return DIMENSION

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return a packed vector for each text; only the first 256 tokens of a text count."""
        readable = [text[:_MAX_TEXT].encode(errors="replace").decode() for text in texts]
        return await self._run(lambda: self._embed(readable))

    async def close(self) -> None:
        """Release the model after running computations end."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
        self._model = None

    def _embed(self, texts: Sequence[str]) -> list[bytes]:
        vectors = self._loaded().embed(texts, batch_size=self.batch)
        return [vector.astype("<f4").tobytes() for vector in vectors]

    def _loaded(self) -> TextEmbedding:
        if self._model is None:
            try:
                from fastembed import TextEmbedding
                from loguru import logger

                logger.disable("fastembed")  # fastembed logs an error for each source that it tries
                self._model = TextEmbedding(
                    MODEL, str(self._cache), threads=1, specific_model_path=self._directory
                )
            except Exception as error:
                advice = f"without a network, {self._cache} needs a copy of it"
                raise EmbedderError(f"{MODEL} cannot be loaded: {error}; {advice}") from error
        return self._model

    async def _run(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
