"""This repository's programs on a command line of a page, as far as they can run in a test.

If a command needs a cloud, another machine or a name that the reader fills in, the program only
checks its options. So does a program that serves in the foreground, because nothing would end it: a
server checks its settings as `tuskpoint-server config --check` does.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from typer.core import TyperCommand

SERVES = "PAGE_SERVES"
"""Variable that lets a program serve, because the page starts it in the background."""
PLACEHOLDER = re.compile(r"(^|[=/@])[A-Z][A-Z_]+($|[/@])|\.\.\.|…")
"""A placeholder that the reader of a page replaces with a name."""
ELSEWHERE = re.compile(
    r"(s3|gs|az|postgresql)://|https?://(?!127\.0\.0\.1|localhost)|\.example\b|"
    + PLACEHOLDER.pattern
)
_VARIABLES = ("TUSKPOINT_", "WALRUS_", "MEMWAL_")
_SERVING_WORDS = {"mcp", "watch"}


def run(name: str, arguments: Sequence[str]) -> int:
    """Run a program of this repository in this process, or check its options."""
    return _PROGRAMS[name](list(arguments))


def names() -> list[str]:
    """Return the names of the programs."""
    return list(_PROGRAMS)


def _server(arguments: list[str]) -> int:
    from tuskpoint_server.__main__ import main
    from tuskpoint_server.commands import serve
    from tuskpoint_server.config.command_line import COMMANDS

    if os.environ.pop(SERVES, "") or {"--help", "--version"} & {*arguments}:
        return main(arguments)
    command = arguments[0] if arguments and arguments[0] in COMMANDS else ""
    if command == "dev":
        setattr(serve, "run", lambda *_: None)  # noqa: B010 - its settings are read
    elif _elsewhere(arguments, PLACEHOLDER if not command else ELSEWHERE):
        _only_options()
    elif not command:
        return main(["config", "--check", *arguments])
    return main(arguments)


def _only_options() -> None:
    """End every command line of the server with success once its options are accepted."""
    parser = importlib.import_module("tuskpoint_server.config.command_line").OneLineParser
    parse: Callable[..., Any] = parser.parse_args

    def parse_args(self: argparse.ArgumentParser, *arguments: Any) -> None:
        parse(self, *arguments)
        raise SystemExit(0)

    parser.parse_args = parse_args


def _client(arguments: list[str]) -> int:
    from tuskpoint.cli.__main__ import run as run_client

    if _elsewhere(arguments) or (_SERVING_WORDS & {*arguments} and SERVES not in os.environ):
        setattr(TyperCommand, "invoke", lambda *_: None)  # noqa: B010 - a class of types
    os.environ.pop(SERVES, None)
    return run_client()


def _emulator(name: str, arguments: list[str]) -> int:
    program = importlib.import_module(f"tuskpoint_emulators.{name}.program")
    if os.environ.pop(SERVES, "") or {"--help", "--version"} & {*arguments}:
        return int(program.main(arguments))
    parse: Callable[..., Any] = argparse.ArgumentParser.parse_args

    def parse_args(self: argparse.ArgumentParser, *given: Any, **options: Any) -> None:
        parse(self, *given, **options)
        raise SystemExit(0)

    setattr(argparse.ArgumentParser, "parse_args", parse_args)  # noqa: B010
    return int(program.main(arguments))


def _elsewhere(arguments: Sequence[str], pattern: re.Pattern[str] = ELSEWHERE) -> bool:
    """Return whether a command needs something that a test does not have."""
    variables = [text for name, text in os.environ.items() if name.startswith(_VARIABLES)]
    return any(pattern.search(word) for word in (*arguments, *variables))


_PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "tuskpoint": _client,
    "tuskpoint-memwal": lambda arguments: _emulator("memwal", arguments),
    "tuskpoint-server": _server,
    "tuskpoint-walrus": lambda arguments: _emulator("walrus", arguments),
}
