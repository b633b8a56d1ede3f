"""`make test` skips the emulators' own tests only while the emulators are unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import emulators as tool


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Runs of pytest; each run ends with the exit code that the test put into `codes`."""
    source = tmp_path / "emulators/src/module.py"
    source.parent.mkdir(parents=True)
    source.write_text("")
    done: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        done.append(command)
        return subprocess.CompletedProcess(command, 1 if "fail" in source.read_text() else 0)

    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "TESTS", tmp_path / "emulators/tests")
    monkeypatch.setattr(tool, "PASSED", tmp_path / "passed")
    monkeypatch.setattr(tool, "sources", lambda: [source])
    monkeypatch.setattr(subprocess, "run", run)
    return done


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["emulators", *arguments])
    return tool.main()


def test_they_run_once_and_again_when_something_changed(
    runs: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, "--if-changed", "-n2") == 0
    assert len(runs) == 1
    assert runs[0][-1] == "-n2"
    assert run(monkeypatch, "--if-changed", "-n2") == 0
    assert len(runs) == 1
    assert "emulators: unchanged since their tests last passed (hash " in capsys.readouterr().out
    (tmp_path / "emulators/src/module.py").write_text("changed")
    run(monkeypatch, "--if-changed")
    assert len(runs) == 2
    run(monkeypatch)
    assert len(runs) == 3


def test_failed_tests_run_again(
    runs: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "emulators/src/module.py").write_text("fail")
    assert [run(monkeypatch, "--if-changed") for _ in range(2)] == [1, 1]
    assert len(runs) == 2


def test_a_part_of_them_does_not_count(
    runs: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(monkeypatch, "-k", "one")
    run(monkeypatch, "--if-changed")
    assert len(runs) == 2


def test_the_hash_covers_sources_tests_and_requirements() -> None:
    names = {str(path.relative_to(tool.ROOT)) for path in tool.sources()}
    assert {
        "emulators/src/tuskpoint_emulators/walrus/server.py",
        "emulators/tests/walrus/test_store.py",
        "emulators/tests/walrus/data/vectors.json",
        "emulators/pyproject.toml",
        "requirements/dev.txt",
    } <= names
    assert not any("__pycache__" in name for name in names)
