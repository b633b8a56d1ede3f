"""Fixture: a new server for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.lost_files.server_home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")
