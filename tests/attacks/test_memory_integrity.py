"""The at-rest attacks of the package `agent-memory-integrity`, run by the package's own runner."""

from __future__ import annotations

import pytest
from agmi.attacks.at_rest import AT_REST_ATTACKS_WITH_SNAPSHOT

from tests.attacks.memory_integrity_adapter import TuskPointAdapter


class Certified(TuskPointAdapter):
    """The adapter, with everything certified before the attack."""

    certified = True


# The tests of edited rows cover each state on each database.
ADAPTERS = {"sqlite": TuskPointAdapter, "postgresql": Certified}


@pytest.mark.parametrize(
    "attack", AT_REST_ATTACKS_WITH_SNAPSHOT, ids=lambda attack: str(attack.name)
)
def test_every_attack_is_noticed(database: str, attack: type) -> None:
    result = attack().run(ADAPTERS[database]())
    assert result.status == "safe", f"{result.status}: {result.error or result.guard}"
