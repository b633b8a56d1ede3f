"""Without CrewAI, or with another version of it, the adapter says what to install."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version


def test_missing_crewai_is_named(import_error: Callable[..., str]) -> None:
    error = import_error("crewai", "crewai", "crewai", "absent")
    assert error == "this adapter needs the package crewai: pip install 'tuskpoint[crewai]'"


def test_another_version_is_named_with_those_supported(import_error: Callable[..., str]) -> None:
    error = import_error("crewai", "crewai", "crewai", "other")
    assert f"cannot use crewai {version('crewai')}, which is installed" in error
    assert "supports crewai<2,>=1.15" in error
    assert "pip install 'tuskpoint[crewai]'" in error
