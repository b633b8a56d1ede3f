"""All certified checkpoints can be read from the blobs alone, after any history of a journal."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.histories import STEPS, History, live, store_of

# The database makes no difference to stored bytes; on PostgreSQL, the tests of recovery run
# histories.
pytestmark = pytest.mark.sqlite

histories = st.lists(st.sampled_from(STEPS), min_size=5, max_size=40)
thorough = settings(deadline=None, suppress_health_check=list(HealthCheck))


def read_back(seed: int, steps: list[str], way: str) -> None:
    history = History(seed, store_of(way))
    asyncio.run(live(history, [*steps, "restart", "settle"], standalone=way == "standalone"))


@settings(thorough, max_examples=25)
@given(seed=st.integers(0, 1 << 30), steps=histories)
def test_whatever_is_certified_reads_back_from_the_blobs(seed: int, steps: list[str]) -> None:
    read_back(seed, steps, "whole")


@pytest.mark.parametrize("way", ["small puts", "standalone"])
@settings(thorough, max_examples=12)
@given(seed=st.integers(0, 1 << 30), steps=histories)
def test_whatever_is_certified_reads_back_however_it_is_stored(
    way: str, seed: int, steps: list[str]
) -> None:
    read_back(seed, steps, way)


@pytest.mark.parametrize("seed", range(2))
def test_a_long_history_reads_back(seed: int) -> None:
    read_back(seed, random.Random(seed).choices(STEPS, k=250), "whole")
