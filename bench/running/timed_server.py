"""`python -m bench.running.timed_server MODULE [ARGUMENT...]`: a module that reports its threads.

For each line on its standard input, the process prints a line of JSON: the ID, the name and the
nanoseconds of processor time of each of its threads. The module needs no option for it.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading

from bench.usage.threads import own_times


def _answer() -> None:
    # Not sys.stdin: its lock would be held when the interpreter ends.
    while os.read(sys.__stdin__.fileno(), 1) if sys.__stdin__ else b"":
        rows = [[number, name, used] for (number, name), used in own_times().items()]
        print(json.dumps(rows), flush=True)


def main() -> None:
    """Run the module that the command line names as the program."""
    threading.Thread(target=_answer, name="bench", daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
