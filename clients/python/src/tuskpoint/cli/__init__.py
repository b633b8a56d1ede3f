"""The program `tuskpoint`: access to the service from a terminal and from shell scripts.

`commands` has one module for each group of commands, `printing` decides how results look, and
`exits` decides the exit code. Only a command that calls imports gRPC, so that completion and
help respond at once. Must never import LangGraph.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .exits import Exit

_EXTRA = ("typer", "rich", "shellingham", "markdown_it", "pygments")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: Arguments after the program's name. Default: the arguments of the process.

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
