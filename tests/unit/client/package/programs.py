"""Programs in a new interpreter that has imported nothing yet."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def run(program: str) -> str:
    """Run a program to its end, and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
