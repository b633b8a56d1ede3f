"""`make test` ends with the groups of tests that this machine skips."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from tools import skipped_groups


@pytest.mark.parametrize(
    ("arguments", "lacking", "status", "printed"),
    [
        ([], "", 0, "no group of tests is skipped on this machine\n"),
        ([], "install it", 0, "skipped on this machine:\n  browser: pages\n    install it\n"),
        (["--required", "browser"], "", 0, "no group of tests is skipped on this machine\n"),
        (["--required", "browser"], "install it", 1, "    install it\n"),
    ],
)
def test_a_skipped_group_is_named_with_its_remedy_and_fails_if_it_is_required(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: Sequence[str],
    lacking: str,
    status: int,
    printed: str,
) -> None:
    groups = [skipped_groups.Group("browser", "pages", lambda: lacking)]
    monkeypatch.setattr(skipped_groups, "GROUPS", groups)
    monkeypatch.setattr(sys, "argv", ["skipped_groups", *arguments])
    assert skipped_groups.main() == status
    assert printed in capsys.readouterr().out


@pytest.mark.parametrize("name", ["browser", "age", "node", "go"])
def test_an_empty_path_names_what_to_install(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("PATH", "")
    assert next(group for group in skipped_groups.GROUPS if group.name == name).lacking()
