"""Programs in an interpreter of their own, which has imported nothing yet."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def run(program: str) -> str:
    """Run a program to its end, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
