"""Freed large blocks of memory go back to the operating system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1024 * 1024
KEPT = """
from bench.usage.memory import resident_bytes
from tuskpoint_server.core.process import return_freed_memory

{setting}
block = bytearray(b"x") * (20 << 20)
del block
before = resident_bytes()
block = bytearray(b"x") * (16 << 20)
above = [bytearray(b"x") * (100 << 10) for _ in range(20)]
del block
print(resident_bytes() - before)
"""


def _kept(setting: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", KEPT.format(setting=setting)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(
    not sys.platform.startswith("linux")
    or "glibc" not in (os.confstr("CS_GNU_LIBC_VERSION") or ""),
    reason="only glibc keeps large blocks in its heaps",
)
def test_a_large_block_below_others_leaves_nothing_behind() -> None:
    assert _kept("pass") > 8 * MIB
    assert _kept("return_freed_memory()") < 6 * MIB
