"""The systemd unit passes all checks that systemd can do without running the unit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.deployment.conftest import Tool
from tests.deployment.files import ROOT, STOP_SECONDS

FILES = ROOT / "deploy" / "systemd"
PROGRAM = "/opt/tuskpoint/bin/tuskpoint-server"
OLDEST = 250
"""First version of systemd with all directives of the unit."""
MOST_EXPOSURE = 2.0
"""Worst exposure level allowed: `systemd-analyze security` rates from 0 to 10, and up to 2 is its
best class."""


@pytest.fixture
def unit(tmp_path: Path, tool: Tool) -> Path:
    """The unit with its drop-in, and with a program that this machine has."""
    version = tool("systemd-analyze", "--version").stdout.split()[1]
    if int(version) < OLDEST:
        pytest.skip(f"systemd {version} is older than {OLDEST}")
    text = (FILES / "tuskpoint.service").read_text("utf-8")
    assert f"ExecStart={PROGRAM}\n" in text
    copy = tmp_path / "tuskpoint.service"
    copy.write_text(text.replace(PROGRAM, shutil.which("true") or ""), "utf-8")
    (tmp_path / "tuskpoint.service.d").mkdir()
    shutil.copy(FILES / "tls.conf", tmp_path / "tuskpoint.service.d")
    return copy


def test_systemd_finds_nothing(unit: Path, tool: Tool) -> None:
    done = tool("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit))
    assert (done.returncode, done.stderr) == (0, "")


def test_little_is_exposed(unit: Path, tool: Tool) -> None:
    limit = f"--threshold={MOST_EXPOSURE * 10:.0f}"
    done = tool("systemd-analyze", "security", "--offline=true", "--no-pager", limit, str(unit))
    assert done.returncode == 0, done.stdout


def test_it_waits_for_the_drain() -> None:
    text = (FILES / "tuskpoint.service").read_text("utf-8")
    assert f"\nTimeoutStopSec={STOP_SECONDS}s\n" in text


def test_it_waits_until_the_server_says_that_it_serves() -> None:
    text = (FILES / "tuskpoint.service").read_text("utf-8")
    assert "\nType=notify\n" in text
    assert "\nTimeoutStartSec=infinity\n" in text
