"""Client of the server whose journal was edited; each module has its own `home`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.journal_edits.edited_journal import Home
from tuskpoint import Client


@pytest.fixture
def client(home: Home) -> Iterator[Client]:
    with Client(home.server.target) as client:
        yield client
