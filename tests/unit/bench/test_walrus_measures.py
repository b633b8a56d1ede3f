"""The measures compute sizes on Walrus and its bill as documented."""

from __future__ import annotations

import json

import pytest

from bench.measures.certification.walrus_cost import plain_puts
from bench.running.walrus import encoded_bytes
from tuskpoint_emulators.walrus.encoding.geometry import MAINNET


@pytest.mark.parametrize(
    ("size", "encoded"),
    [
        (0, 66_034_000),
        (445_556, 66_034_000),
        (445_557, 68_036_000),
        (1 << 20, 70_038_000),
        (10 << 20, 112_080_000),
        (1 << 30, 4_888_852_000),
    ],
)
def test_the_formula_gives_the_documented_sizes(size: int, encoded: int) -> None:
    assert encoded_bytes(size) == encoded == MAINNET.encoded_bytes(size)


def test_the_plain_way_puts_a_checkpoint_and_a_whole_manifest_each_time() -> None:
    puts = list(plain_puts("thread", 5))
    assert len(puts) == 10
    manifests = [json.loads(data) for data in puts[1::2]]
    assert [len(manifest["entries"]) for manifest in manifests] == [1, 2, 3, 4, 5]
    last = manifests[-1]["entries"]
    parents = [entry["parent_checkpoint_id"] for entry in last.values()]
    assert parents == [None, *list(last)[:-1]]
