"""A server without threads for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.command_line_page import served


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("coordination")) as address:
        yield address
