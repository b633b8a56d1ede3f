"""The program `tuskpoint-server`, and `python -m tuskpoint_server`: load the server and run it."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the server until a signal stops it, or one of its commands; return the exit code.

    The modules that are loaded here are never freed. They are excluded from garbage collection,
    which would otherwise scan them while they load, in every full collection, and at the end.
    """
    if sys.argv[1:2] == ["health"]:
        from .commands import health

        return health.main(sys.argv[2:])
    gc.disable()
    from .commands.serve import main as run
    from .core.process import return_freed_memory

    return_freed_memory()
    gc.freeze()
    gc.enable()
    return run()


if __name__ == "__main__":
    sys.exit(main())
