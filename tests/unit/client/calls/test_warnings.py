"""Warnings of answers are logged, each kind once a minute."""

from __future__ import annotations

import logging

import pytest

from tests.unit.client.faces import Face
from tests.unit.client.scripted_services import ScriptedServices
from tuskpoint._transport import warnings
from tuskpoint._transport.warnings import PAUSE_S, WarningLog
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_pb2 import DURABILITY_JOURNALED, CheckpointRef
from tuskpoint.v1.errors_pb2 import WARNING_KIND_BACKLOG
from tuskpoint.v1.errors_pb2 import Warning as ServiceWarning

FULL = ServiceWarning(kind=WARNING_KIND_BACKLOG, message="7 bytes wait")
NEWER = ServiceWarning(kind=99, message="something else")  # type: ignore[arg-type]


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert {(record.name, record.levelno) for record in caplog.records} <= {
        ("tuskpoint", logging.WARNING)
    }
    logged = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return logged


def test_each_kind_of_each_server_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    warnings = WarningLog(clock)
    warnings.log("a:1", [FULL, FULL, NEWER])
    warnings.log("a:1", [FULL])
    warnings.log("b:1", [FULL])
    assert messages(caplog) == [
        "a:1 warns (backlog): 7 bytes wait",
        "a:1 warns (99): something else",
        "b:1 warns (backlog): 7 bytes wait",
    ]
    clock.now += PAUSE_S - 1
    warnings.log("a:1", [FULL])
    assert messages(caplog) == []
    clock.now += 1
    warnings.log("a:1", [FULL])
    assert messages(caplog) == ["a:1 warns (backlog): 7 bytes wait"]


async def test_the_warnings_of_a_save_are_logged(
    services: ScriptedServices,
    face: Face,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warnings.WARNINGS, "_logged", {})
    answer = pb.SaveCheckpointResponse(
        ref=CheckpointRef(thread_id="t", checkpoint_id="1"),
        durability=DURABILITY_JOURNALED,
        warnings=[FULL],
    )
    for _ in range(2):
        services.on("SaveCheckpoint", answer)
        await face.call("save", "t", {"n": 1}, parent="")
    assert messages(caplog) == [f"{face.sync.target} warns (backlog): 7 bytes wait"]
    assert isinstance(services.requests[0], pb.SaveCheckpointRequest)
