"""The committed set: steps of agents, questions of people, and vectors of both.

`python -m tests.integration.search.search_quality.questions` creates the vectors with the local
embedder, which is necessary after a change of a text. No test needs the model.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.unit.search.embedders.local_model import CACHE
from tuskpoint_server.core.search import unpack_vector
from tuskpoint_server.search.embedders.local import LocalEmbedder

HERE = Path(__file__).parent
VECTORS = HERE / "vectors.json"


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint of the set, with a unique `name`."""

    name: str
    thread: str
    agent: str
    summary: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the name of the one checkpoint that answers it."""

    question: str
    finds: str


@cache
def checkpoints() -> tuple[Saved, ...]:
    """Return the steps of the agents."""
    return tuple(Saved(**row) for row in _read("checkpoints.json"))


@cache
def exact_terms() -> tuple[Question, ...]:
    """Return questions with a ticket, a name or a quotation that occurs in one summary."""
    return tuple(Question(**row) for row in _read("exact_terms.json"))


@cache
def paraphrases() -> tuple[Question, ...]:
    """Return questions that share no word with the summary that answers them."""
    return tuple(Question(**row) for row in _read("paraphrases.json"))


def texts() -> list[str]:
    """Return every text that has a vector, in the order of the vectors."""
    return [
        *(checkpoint.summary for checkpoint in checkpoints()),
        *(question.question for question in (*exact_terms(), *paraphrases())),
    ]


def digest(contents: Sequence[str]) -> str:
    """Return a digest that shows whether vectors belong to texts."""
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()


@cache
def vectors() -> dict[str, list[float]]:
    """Return the vector of each text.

    Raises:
        ValueError: The vectors do not belong to the texts.
    """
    held = json.loads(VECTORS.read_text())
    every = texts()
    if held["texts_sha256"] != digest(every):
        raise ValueError(f"{VECTORS.name} is not of these texts: make it again, see {__name__}")
    data = base64.b64decode("".join(held["float16"]))
    rows = np.frombuffer(data, "<f2").reshape(len(every), held["dimension"])
    return dict(zip(every, rows.astype(np.float32).tolist(), strict=True))


async def embed(embedder: LocalEmbedder) -> dict[str, Any]:
    """Return the file of vectors as the model creates it."""
    every = texts()
    made = [unpack_vector(vector) for vector in await embedder.embed(every)]
    data = base64.b64encode(np.array(made, "<f2").tobytes()).decode()
    return {
        "model": embedder.name,
        "dimension": len(made[0]),
        "texts_sha256": digest(every),
        "float16": [data[at : at + 2048] for at in range(0, len(data), 2048)],
    }


async def _renew() -> None:
    embedder = LocalEmbedder(CACHE)
    made = await embed(embedder)
    await embedder.close()
    await asyncio.to_thread(VECTORS.write_text, json.dumps(made, indent=0) + "\n")


def _read(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((HERE / name).read_text())
    return rows


if __name__ == "__main__":
    asyncio.run(_renew())
