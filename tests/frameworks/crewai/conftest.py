"""CrewAI without telemetry, with an empty home folder, and without connections to other
machines."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples/frameworks/crewai"
HOME = TemporaryDirectory()

# CrewAI reads most of these variables during its import, so set them first.
os.environ.update(
    HOME=HOME.name,
    XDG_DATA_HOME=f"{HOME.name}/data",
    CREWAI_STORAGE_DIR=f"{HOME.name}/storage",
    CREWAI_DISABLE_TELEMETRY="true",
    CREWAI_DISABLE_VERSION_CHECK="true",
    CREWAI_TESTING="true",
    CREWAI_TRACING_ENABLED="false",
    OTEL_SDK_DISABLED="true",
)


def refuse_other_machines(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse a connection to another machine, and the lookup of its name."""
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    else:
        return
    if host not in ("127.0.0.1", "::1", "localhost", None):
        raise PermissionError(f"a test connects to {host}")


sys.addaudithook(refuse_other_machines)


@pytest.fixture(scope="session", autouse=True)
def example(target: str) -> Iterator[subprocess.Popen[str]]:
    """The process of the example; it runs beside other tests, because its imports take long."""
    environment = {**os.environ, "TUSKPOINT_TARGET": target, "PYTHONWARNINGS": "error:::tuskpoint"}
    with subprocess.Popen(
        [sys.executable, EXAMPLE],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()
