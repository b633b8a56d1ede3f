"""The program `tuskpoint-server`: read the command line, load what the command needs, run it."""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_PRIVATE = 0o077  # umask: only this user reads journals, blobs, caches and what a command writes
_INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server until a signal stops it, or one of its commands; return the exit code.

    Args:
        arguments: The arguments after the name; by default the arguments of the process.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    os.umask(_PRIVATE)
    # Numpy's threads spin while they wait for one another, and slow saves down.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # Ctrl-C before the server serves; afterwards the server drains
        return _INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["health"]:  # probes run it every few seconds: it loads almost nothing
        from .commands import health

        return health.main(arguments[1:])
    from .config.command_line import COMMANDS, server_parser
    from .core.process import StartError

    version = importlib.metadata.version("tuskpoint-server")
    try:
        if arguments and arguments[0] in COMMANDS:
            return int(_loaded(arguments[0]).main(arguments[1:], version))
        flags = vars(server_parser(version).parse_args(arguments))
        return int(_loaded("serve").main(flags, version))
    except StartError as error:
        print(f"tuskpoint-server: {error}", file=sys.stderr)  # noqa: T201 - for who started it
        return error.code


def _loaded(command: str) -> ModuleType:
    """Return the module of a command.

    Modules are never freed. They are excluded from garbage collection, which would otherwise scan
    them while they load, in every full collection, and at the end.
    """
    gc.disable()
    module = importlib.import_module(f".commands.{command}", __package__)
    from .core.process import return_freed_memory

    return_freed_memory()
    gc.freeze()
    gc.enable()
    return module


if __name__ == "__main__":
    sys.exit(main())
