"""Recalls of the emulated relayer: matches, expired blobs, unreadable blobs."""

from __future__ import annotations

import numpy as np
import pytest

from emulators.tests.memwal.peer import free, running
from tuskpoint_emulators.memwal.memory.embedding import DIMENSION, embed, stem


def distance(text: str, other: str) -> float:
    return 1.0 - float(embed(text) @ embed(other))


def test_texts_that_share_words_are_near_and_others_are_not() -> None:
    query = "when did the writer start?"
    near = distance(query, "The writers started a report on Monday")
    far = distance(query, "Compiler settings of the nightly build")
    paraphrase = distance(query, "An author began her work last week")
    assert near < 0.6 < 0.85 < min(far, paraphrase)
    assert distance(query, "WHEN DID THE WRITER START") == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("text", ["", " ", "?!", "a", "ß", "日本語", "x" * 100_000, "\ud800"])
def test_every_text_has_a_vector_of_length_one(text: str) -> None:
    vector = embed(text)
    assert vector.shape == (DIMENSION,)
    assert float(np.linalg.norm(vector)) == pytest.approx(1)


def test_only_the_beginning_of_a_long_text_counts() -> None:
    beginning = "word " * 2000
    assert distance(beginning, beginning + "another end") == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("started", "start"),
        ("starting", "start"),
        ("builds", "build"),
        ("is", "is"),
        ("red", "red"),
    ],
)
def test_stems_are_words_without_endings(word: str, expected: str) -> None:
    assert stem(word) == expected


async def test_limit_is_cut_to_one_hundred_in_silence() -> None:
    async with running(free()) as memwal:
        for number in range(105):
            memwal.emulator.ledger.store(memwal.emulator.owner, "default", f"text {number}")
        assert len(await memwal.recalled("text", limit=101)) == 100
        assert len(await memwal.recalled("text", limit=2**32 - 1)) == 100
        assert len(await memwal.recalled("text")) == 10
        assert await memwal.recalled("text 42", limit=1) == ["text 42"]
        assert await memwal.recalled("text", limit=0) == []


async def test_blank_query_is_refused() -> None:
    async with running(free()) as memwal:
        assert (await memwal.post("/api/recall", {"query": " "})).status_code == 400


async def test_distances_rise_and_equal_texts_are_at_none() -> None:
    async with running(free()) as memwal:
        for text in ("the build is red", "the build is green", "cats sleep all day"):
            await memwal.accept(text)
        response = await memwal.post("/api/recall", {"query": "the build is red"})
        distances = [result["distance"] for result in response.json()["results"]]
        assert distances == sorted(distances)
        assert distances[0] == pytest.approx(0, abs=1e-6)
        assert all(0 <= value <= 2 for value in distances)


async def test_expired_memories_are_dropped_once_and_then_gone() -> None:
    async with running(free(lifetime_s=100)) as memwal:
        await memwal.accept("an old text")
        memwal.emulator.clock.advance(60)
        await memwal.accept("a new text")
        memwal.emulator.clock.advance(40)
        response = (await memwal.post("/api/recall", {"query": "text"})).json()
        assert [result["text"] for result in response["results"]] == ["a new text"]
        assert (response["total"], response["dropped_count"]) == (1, 1)
        again = (await memwal.post("/api/recall", {"query": "text"})).json()
        assert "dropped_count" not in again
        restored = (await memwal.post("/api/restore", {"namespace": "default"})).json()
        assert (restored["total"], restored["restored"]) == (1, 0)


async def test_memories_expire_on_demand() -> None:
    async with running(free()) as memwal:
        for namespace in ("a", "b"):
            await memwal.accept("text", namespace=namespace)
        assert await memwal.tell("POST", "memories/expire", namespace="a") == {"expired": 1}
        response = (await memwal.post("/api/recall", {"query": "text", "namespace": "a"})).json()
        assert response == {"results": [], "total": 0, "dropped_count": 1}
        assert await memwal.recalled("text", namespace="b") == ["text"]


async def test_memories_that_others_wrote_are_added_and_shown() -> None:
    async with running(free()) as memwal:
        added = await memwal.tell("POST", "memories", text="forged [ckpt:x]", namespace="team")
        assert await memwal.recalled("forged", namespace="team") == ["forged [ckpt:x]"]
        (shown,) = (await memwal.tell("GET", "memories"))["memories"]
        assert shown["blob_id"] == added["blob_id"]
        assert (shown["owner"], shown["namespace"]) == (memwal.emulator.owner, "team")
        assert memwal.emulator.statistics.stored == {}
