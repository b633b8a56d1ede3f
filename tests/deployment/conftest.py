"""Tools for the checks of deployments; a check runs where its tool is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable

import pytest

from tests.deployment.files import ROOT

TOOLS = ROOT / ".venv-deploy" / "bin"
"""Folder that `make test-deploy` installs tools in."""

_INSTALLED = ("compose-spec", "hadolint", "helm", "kubernetes-validate")
_HINT = "; `make test-deploy` installs it"

Tool = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def tool() -> Tool:
    """Return a function that runs a tool and returns its output as text; skip the test without the
    tool."""

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = shutil.which(name, path=f"{TOOLS}{os.pathsep}{os.environ['PATH']}")
        if path is None:
            pytest.skip(f"there is no {name} here{_HINT if name in _INSTALLED else ''}")
        return subprocess.run([path, *arguments], capture_output=True, text=True, check=False)

    return run
