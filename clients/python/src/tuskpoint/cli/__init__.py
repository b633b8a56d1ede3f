"""The program `tuskpoint`: the service for a person at a terminal, and for shell scripts.

One module per group of commands; each command asks the Python client and leaves how things look
to `output`, how they are spelled as JSON to `shapes`, and how the program ends to `exits`. A
command never writes to a stream by itself, never decides an exit code by the text of an error,
and imports gRPC only when it calls: completion and help must come at once. LangGraph is never
imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .exits import Exit

_EXTRA = ("typer", "rich", "shellingham", "markdown_it", "pygments")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: What follows the program's name. Default: those of the process.

    Returns:
        The exit code, one of `exits.Exit`.
    """
    try:
        from .app import run

        return run(arguments)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA:
            raise
        sys.stderr.write(
            f"error: the command line needs {missing}, which is not installed: "
            "pip install 'tuskpoint[cli]'\n"
        )
        return Exit.USAGE
