"""A saver that calls a service in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.client.background.kit import (
    Service,
)
from tuskpoint import background
from tuskpoint._transport.retry import RetryPolicy
from tuskpoint.background import AgentStep, BackgroundSaver


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    monkeypatch.setattr(background, "SyncCalls", made.calls)
    monkeypatch.setattr(background, "_PAUSES", RetryPolicy(max_delay_s=0.001))
    return made


@pytest.fixture
def reported() -> list[tuple[AgentStep, Exception]]:
    return []


@pytest.fixture
def saver(
    service: Service, reported: list[tuple[AgentStep, Exception]]
) -> Iterator[BackgroundSaver]:
    made = BackgroundSaver("h:1", on_error=lambda *report: reported.append(report))
    made.start()
    yield made
    service.before = service.after = lambda request: None
    made.stop()
