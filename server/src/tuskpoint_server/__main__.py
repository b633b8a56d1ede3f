"""The program `tuskpoint-server`, and `python -m tuskpoint_server`: load the server and run it."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the server until a signal stops it; return the exit code.

    What is loaded here lives as long as the process. The garbage collector would walk through it
    while it is loaded, on every full collection and once more at the end; it is kept out of that.
    """
    gc.disable()
    from .app import main as run

    gc.freeze()
    gc.enable()
    return run()


if __name__ == "__main__":
    sys.exit(main())
