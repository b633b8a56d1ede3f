"""`python -m tests.kit.servers.instruments FILE ...`: a server that names its instruments.

Each line of the file has the kind, the name and the unit of one instrument. The further
arguments are the arguments of the server.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics import Meter

from tuskpoint_server.__main__ import main as tuskpoint_server

KINDS = (
    "counter",
    "up_down_counter",
    "histogram",
    "observable_counter",
    "observable_gauge",
    "observable_up_down_counter",
)


def noted(kind: str, create: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """Return a method of meters that records each instrument it creates."""

    def creating(meter: Meter, name: str, *arguments: Any, **named: Any) -> Any:
        made = create(meter, name, *arguments, **named)
        with file.open("a", encoding="utf-8") as opened:
            opened.write(f"{kind} {name} {made.unit}\n")
        return made

    return creating


def main() -> int:
    """Run the server."""
    for kind in KINDS:
        create = getattr(Meter, f"create_{kind}")
        setattr(Meter, f"create_{kind}", noted(kind, create, Path(sys.argv[1])))
    return tuskpoint_server(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
