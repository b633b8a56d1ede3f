"""A server for the tests of a module, and calls to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.command_line_page import served
from tuskpoint import Client


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("served")) as address:
        yield address


@pytest.fixture(scope="module")
def client(target: str) -> Iterator[Client]:
    with Client(target) as client:
        yield client
