"""Equal inputs of effects have equal digests in all languages, also in effects of older clients.

The tests of the clients in TypeScript and Go read the same vectors.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.servers.processes import ServerProcess
from tuskpoint import Client, EffectInputChanged
from tuskpoint._messages.canonical_json import canonical_json
from tuskpoint._messages.effects import earlier_digest
from tuskpoint.effects import input_digest

VECTORS = json.loads(Path(__file__).with_name("input_digests.json").read_text())
FRACTION = {"amount": 1.0, "share": 1e-7}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with ServerProcess(tmp_path, {}) as server:
        server.start()
        with Client(server.target) as client:
            yield client


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["input"][:30] for vector in VECTORS])
def test_the_digest_of_a_vector(vector: dict[str, str]) -> None:
    value = json.loads(vector["input"])
    assert canonical_json(value) == vector["canonical"]
    assert input_digest(value).hex() == vector["sha256"]


def test_equal_numbers_have_one_text_and_others_have_another() -> None:
    assert canonical_json((1, 1.0, True)) == "[1,1,true]"
    seed = random.randrange(2**32)
    numbers = random.Random(seed)
    for _ in range(2000):
        number = numbers.uniform(-1, 1) * 10.0 ** numbers.randint(-320, 300)
        text = canonical_json(number)
        assert float(text) == number, (seed, number)
        assert canonical_json(json.loads(text)) == text, (seed, number)


def test_an_input_may_be_nested_as_deeply_as_json_writes_it() -> None:
    value: list[Any] = []
    for _ in range(900):
        value = [value]
    assert canonical_json(value) == json.dumps(value)


def test_an_effect_of_an_older_client_has_the_same_input(client: Client) -> None:
    earlier = earlier_digest(FRACTION)
    assert earlier != input_digest(FRACTION)
    begun = client.begin_effect("t", "charge", name="charge", input_digest=earlier)
    client.complete_effect("t", "charge", idempotency_key=begun.idempotency_key, result="paid")
    with client.effect("t", "charge", input=FRACTION) as effect:
        assert not effect.pending
        assert effect.result == "paid"
    with pytest.raises(EffectInputChanged), client.effect("t", "charge", input={"amount": 2.0}):
        pass
    # A fork that only answers finds the effect under another key by its name and input.
    checkpoint = client.save("t", {"x": 1})
    fork = client.fork("t", checkpoint, new_thread_id="f", effects="answer").new_thread_id
    with client.effect(fork, "other", name="charge", input=FRACTION) as effect:
        assert effect.result == "paid"
