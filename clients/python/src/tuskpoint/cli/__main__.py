"""The program `tuskpoint`, and `python -m tuskpoint.cli` if the program is not on the path."""

from __future__ import annotations

import gc
import sys

from . import main

_OBJECTS_BETWEEN_COLLECTIONS = 100_000


def run() -> int:
    """Run the program in a separate process; return its exit code.

    Most commands create little garbage and end soon. Collecting garbage during imports, and once
    more at the end, would take a third of their time.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])
    try:
        return main()
    finally:
        gc.freeze()


if __name__ == "__main__":
    sys.exit(run())
