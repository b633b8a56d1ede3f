"""A scripted server for each test, and both faces of the client on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace

import pytest

from tests.unit.client.faces import Face
from tests.unit.client.scripted_services import ScriptedServices, serving
from tuskpoint._transport import policy


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between attempts to a hundredth of the longest pause."""
    monkeypatch.setattr(policy, "random", SimpleNamespace(random=lambda: 0.01))


@pytest.fixture
def services() -> ScriptedServices:
    return ScriptedServices()


@pytest.fixture
def target(services: ScriptedServices) -> Iterator[str]:
    with serving(services) as made:
        yield made


@pytest.fixture(params=["sync", "async"])
async def face(request: pytest.FixtureRequest, target: str) -> AsyncIterator[Face]:
    made = Face(request.param, target)
    yield made
    await made.aclose()
