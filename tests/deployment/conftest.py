"""Tools that the checks of deployments use where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable

import pytest

from tests.deployment.files import ROOT

TOOLS = ROOT / ".venv-deploy" / "bin"
"""Where `make test-deploy` installs tools."""

_INSTALLED = ("compose-spec", "hadolint", "helm", "kubernetes-validate")
_HINT = "; `make test-deploy` installs it"

Tool = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def tool() -> Tool:
    """Run a tool, or skip the test if there is none; its output is text."""

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = shutil.which(name, path=f"{TOOLS}{os.pathsep}{os.environ['PATH']}")
        if path is None:
            pytest.skip(f"there is no {name} here{_HINT if name in _INSTALLED else ''}")
        return subprocess.run([path, *arguments], capture_output=True, text=True, check=False)

    return run
