"""A journal for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.values import Home, home_in


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with home_in(tmp_path) as opened:
        yield opened
