"""What a server left behind, made once for all audits of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.audit import kit
from tests.integration.cli.audit.kit import House


@pytest.fixture(scope="session")
def left(tmp_path_factory: pytest.TempPathFactory) -> House:
    """What a server left behind; nobody changes it."""
    return kit.left_behind(tmp_path_factory.mktemp("audited"), {})


@pytest.fixture
def house(left: House, tmp_path: Path) -> House:
    """A copy that may be damaged."""
    return left.copied(tmp_path)
