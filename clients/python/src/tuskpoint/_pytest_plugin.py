"""pytest fixture of this package. pytest loads this module in each run, so the module is small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .testing import RunningServer


@pytest.fixture(scope="session")
def tuskpoint_server() -> Iterator[RunningServer]:
    """A TuskPoint server for all tests of this run; the first test that uses it starts it."""
    from .testing import server

    with server() as running:
        yield running
