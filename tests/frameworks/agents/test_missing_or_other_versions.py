"""An adapter whose framework is missing or has another version says which package to install."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

import pytest

ADAPTERS = [  # module, extra, package, module of the package
    ("agent_framework", "agent-framework", "agent-framework-core", "agent_framework"),
    ("claude_agent_sdk", "claude-agent-sdk", "claude-agent-sdk", "claude_agent_sdk"),
    ("google_adk", "google-adk", "google-adk", "google.adk"),
    ("openai_agents", "openai-agents", "openai-agents", "agents"),
    ("pydantic_ai", "pydantic-ai", "pydantic-ai-slim", "pydantic_ai"),
]


@pytest.mark.parametrize(("adapter", "extra", "package", "module"), ADAPTERS)
def test_a_missing_framework_is_named(
    adapter: str, extra: str, package: str, module: str, import_error: Callable[..., str]
) -> None:
    expected = f"this adapter needs the package {package}: pip install 'tuskpoint[{extra}]'"
    assert import_error(adapter, package, module, "absent") == expected


@pytest.mark.parametrize(("adapter", "extra", "package", "module"), ADAPTERS)
def test_another_version_is_named_with_those_supported(
    adapter: str, extra: str, package: str, module: str, import_error: Callable[..., str]
) -> None:
    error = import_error(adapter, package, module, "other")
    assert f"cannot use {package} {version(package)}, which is installed" in error
    assert f"supports {package}<" in error
    assert f"pip install 'tuskpoint[{extra}]'" in error
