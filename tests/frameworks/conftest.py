"""Fixtures of the adapters' tests: a real server, and a thread that no other test uses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from tuskpoint import Client

LISTENING = "tuskpoint-server listening on "

IMPORTING = """
import importlib, importlib.metadata, sys, types

adapter, package, module, problem = sys.argv[1:]
if problem == "absent":
    # As if it were not installed: neither its module nor its metadata are found.
    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name == module or name.startswith(f"{module}."):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    found = importlib.metadata.version

    def absent(name):
        if name == package:
            raise importlib.metadata.PackageNotFoundError(name)
        return found(name)

    importlib.metadata.version = absent
    sys.meta_path.insert(0, Absent())
else:
    sys.modules[module] = types.ModuleType(module)  # as if it had none of the names
try:
    importlib.import_module(f"tuskpoint.frameworks.{adapter}")
except ImportError as error:
    print(error)
"""


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of one server for all tests."""
    program = os.environ["TUSKPOINT_SERVER_PROGRAM"]  # tools/frameworks.py sets the variable.
    folder = tmp_path_factory.mktemp("server")
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "--listen", "127.0.0.1:0", "--data-dir", str(folder / "data")],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(LISTENING), (folder / "server.log").read_text()
    yield line.removeprefix(LISTENING).strip()
    process.terminate()
    process.communicate()
    assert process.returncode == 0, (folder / "server.log").read_text()


@pytest.fixture
def thread_id() -> str:
    """A thread that no other test uses."""
    return f"thread-{uuid4()}"


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    """A client that reads threads as other programs do."""
    with Client(target) as client:
        yield client


@pytest.fixture(scope="session")
def import_error() -> Callable[..., str]:
    """Return a function that imports an adapter and returns the error.

    The function accepts the adapter, the framework's package and module, and the state of the
    package: "absent" is not installed, and "other" has no name that the adapter imports.
    """

    def error_of(*arguments: str) -> str:
        command = [sys.executable, "-c", IMPORTING, *arguments]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        return run.stdout.strip()

    return error_of
