"""An adapter whose framework is missing or of another version says what to install."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

ADAPTERS = [  # module, extra, package, the package's module
    ("agent_framework", "agent-framework", "agent-framework-core", "agent_framework"),
    ("claude_agent_sdk", "claude-agent-sdk", "claude-agent-sdk", "claude_agent_sdk"),
    ("google_adk", "google-adk", "google-adk", "google.adk"),
    ("openai_agents", "openai-agents", "openai-agents", "agents"),
    ("pydantic_ai", "pydantic-ai", "pydantic-ai-slim", "pydantic_ai"),
]

PROGRAM = """
import importlib, importlib.metadata, sys, types

adapter, package, module, problem = sys.argv[1:]
if problem == "absent":
    # As if it were not installed: neither its module nor its metadata are found.
    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name == module or name.startswith(f"{module}."):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    found = importlib.metadata.version

    def absent(name):
        if name == package:
            raise importlib.metadata.PackageNotFoundError(name)
        return found(name)

    importlib.metadata.version = absent
    sys.meta_path.insert(0, Absent())
else:
    sys.modules[module] = types.ModuleType(module)  # as if it had none of the names
try:
    importlib.import_module(f"tuskpoint.frameworks.{adapter}")
except ImportError as error:
    print(error)
"""


def error_of(*arguments: str) -> str:
    """Return what importing an adapter says."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("adapter", "extra", "package", "module"), ADAPTERS)
def test_a_missing_framework_is_named(adapter: str, extra: str, package: str, module: str) -> None:
    expected = f"this adapter needs the package {package}: pip install 'tuskpoint[{extra}]'"
    assert error_of(adapter, package, module, "absent").strip() == expected


@pytest.mark.parametrize(("adapter", "extra", "package", "module"), ADAPTERS)
def test_another_version_is_named_with_those_supported(
    adapter: str, extra: str, package: str, module: str
) -> None:
    error = error_of(adapter, package, module, "other")
    assert f"cannot use {package} {version(package)}, which is installed" in error
    assert f"supports {package}<" in error
    assert f"pip install 'tuskpoint[{extra}]'" in error
