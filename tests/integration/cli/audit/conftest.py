"""Blobs of a stopped server, created once for all audits of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.cli.audit import kit
from tests.integration.cli.audit.kit import House
from tuskpoint.cli import main


@pytest.fixture(scope="session")
def left(tmp_path_factory: pytest.TempPathFactory) -> House:
    """The blobs of a stopped server; no test may change them."""
    return kit.left_behind(tmp_path_factory.mktemp("audited"), {})


@pytest.fixture
def house(left: House, tmp_path: Path) -> House:
    """A copy of the blobs, which a test may damage."""
    return left.copied(tmp_path)


@dataclass
class Ended:
    """The end of the command."""

    code: int
    out: str
    errors: str


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `tuskpoint audit` in this process."""

    def run(*arguments: str) -> Ended:
        code = main(["audit", *arguments])
        return Ended(code, *capsys.readouterr())

    return run
