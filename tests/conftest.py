"""Settings of all tests."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings

_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 4 << 30

# How long an example takes says more about the machine than about the code.
settings.register_profile(
    "tuskpoint", deadline=None, max_examples=int(os.environ.get("TUSKPOINT_EXAMPLES", "40"))
)
settings.load_profile("tuskpoint")

# Tests commit thousands of times and remove what they stored. A killed process loses nothing that
# it wrote to a file system in memory either; what a disk forgets that was not fsynced no test
# here could show.
if (
    "TMPDIR" not in os.environ
    and os.access(_MEMORY, os.W_OK)
    and not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC  # tests build programs there, too
    and shutil.disk_usage(_MEMORY).free >= _ENOUGH_BYTES
):
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)


def pytest_collection_finish() -> None:
    """Take all that was imported out of the collector's sight: every full collection walks it."""
    gc.collect()
    gc.freeze()
