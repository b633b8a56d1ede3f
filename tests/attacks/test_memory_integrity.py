"""The at-rest attacks of the package `agent-memory-integrity`, run by its own runner."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from agmi.attacks.at_rest import AT_REST_ATTACKS_WITH_SNAPSHOT

from tests.attacks.memory_integrity_adapter import TuskPointAdapter
from tests.kit.databases import in_postgres, postgres


class Certified(TuskPointAdapter):
    """The same, with everything certified before the attack."""

    certified = True


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sqlite":
        yield "sqlite"
    else:
        with in_postgres(postgres()):
            yield "postgresql"


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("attack", AT_REST_ATTACKS_WITH_SNAPSHOT, ids=lambda one: str(one.name))
@pytest.mark.parametrize("adapter", [TuskPointAdapter, Certified], ids=["journaled", "certified"])
def test_every_attack_is_noticed(adapter: type[TuskPointAdapter], attack: type) -> None:
    result = attack().run(adapter())
    assert result.status == "safe", f"{result.status}: {result.error or result.guard}"
