"""The command line: commands, and parsers of settings with errors of one line."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from pydantic import SecretStr

from ..core.process import ConfigError
from .option_groups import GROUPS
from .settings import ENV_PREFIX, Config
from .sources import did_you_mean

PROGRAM = "tuskpoint-server"
COMMANDS: Mapping[str, str] = {
    "dev": "serve this machine, with a console and its data in a folder",
    "config": "print the settings and where each comes from, or check them",
    "health": "ask the server of the same settings whether it serves",
    "token": "make a token for a client",
    "keys": "make, rotate and list the keys that seal what is stored",
    "backup": "write the SQLite journal to a file",
    "restore": "make a journal from a backup",
    "copy": "copy a journal between SQLite and PostgreSQL",
    "recover": "rebuild a journal from the blob store alone",
    "collect": "remove blobs that nothing needs",
}
"""Descriptions of the commands. `tuskpoint_server.commands` has a module of each name."""


def server_parser(version: str) -> argparse.ArgumentParser:
    """Return the parser of the program without a command, which serves."""
    commands = "\n".join(f"  {name:9} {text}" for name, text in COMMANDS.items())
    parser = OneLineParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [OPTION ...]\n       {PROGRAM} COMMAND [OPTION ...]",
        description=f"Checkpoint server for AI agents.\n\ncommands:\n{commands}\n\n"
        f"`{PROGRAM} COMMAND --help` describes a command. Without a command the server starts\n"
        "with the options below and serves until SIGTERM or SIGINT: running calls finish,\n"
        "then the server ends.",
        epilog="Each setting is an option, a variable and a key of the TOML file, as the brackets "
        "show. An option wins over a variable, a variable over the file.",
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    _add_common(parser, version)
    for title, names in GROUPS.items():
        _add_settings(parser.add_argument_group(title, _secrets(names)).add_argument, names)
    return parser


def settings_parser(
    version: str, *, prog: str, description: str, shown: Sequence[str]
) -> argparse.ArgumentParser:
    """Return a parser of all settings for a command, which may add arguments.

    Args:
        version: The version of the server.
        prog: The program and the command.
        description: What the command does.
        shown: The settings that the help of the command describes.
    """
    parser = OneLineParser(
        prog=prog,
        description=description,
        epilog="Every other setting of the server is accepted too, as an option, a variable or a "
        f"key of the file: `{PROGRAM} --help` lists them.",
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    _add_common(parser, version)
    if shown:
        group = parser.add_argument_group("settings of the server", _secrets(shown))
        _add_settings(group.add_argument, shown)
    others = [name for name in Config.model_fields if name not in shown]
    _add_settings(parser.add_argument, others, hidden=True)
    return parser


class OneLineParser(argparse.ArgumentParser):
    """Refuses a command line with a `ConfigError`, whose text is one line."""

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse a command line; refuse an unknown option before anything else."""
        words = list(sys.argv[1:] if args is None else args)
        for word in words:
            if word == "--":
                break
            option = word.partition("=")[0]
            if option.startswith("--") and option not in self._option_string_actions:
                self._refuse(option)
        options, rest = self.parse_known_args(words, namespace)
        if rest:
            self._refuse(rest[0])
        return options

    def _refuse(self, word: str) -> NoReturn:
        if word.startswith("-"):
            suggestion = did_you_mean(word, filter(self._is_long, self._option_string_actions))
            self.error(f"unknown option {word}{suggestion or self._see_help()}")
        is_program = self.prog == PROGRAM
        suggestion = did_you_mean(word, COMMANDS) if is_program else ""
        kind = "command" if is_program else "argument"
        self.error(f"unknown {kind} '{word}'{suggestion or self._see_help()}")

    @staticmethod
    def _is_long(option: str) -> bool:
        return option.startswith("--")

    def _see_help(self) -> str:
        return f"; see `{self.prog} --help`"

    def error(self, message: str) -> NoReturn:
        """Refuse in one line."""
        raise ConfigError(message)


class _HelpFormatter(argparse.HelpFormatter):
    """Keeps the line breaks of texts with several lines, and wraps all other texts."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return textwrap.indent(text, indent)
        return super()._fill_text(text, width, indent)


def _add_common(parser: argparse.ArgumentParser, version: str) -> None:
    parser.add_argument("--version", action="version", version=f"%(prog)s {version}")
    parser.add_argument(
        "--config", metavar="FILE", help=f"TOML file with settings [{ENV_PREFIX}CONFIG]"
    )


def _add_settings(
    add_argument: Callable[..., object], names: Iterable[str], *, hidden: bool = False
) -> None:
    """Add an option for each setting that is not a secret."""
    for name in names:
        field = Config.model_fields[name]
        if field.annotation is SecretStr:
            continue
        text = (field.description or "").replace("%", "%%")
        if field.default not in (None, (), ""):
            default = str(field.default)
            text += f" Default: {default.lower() if field.annotation is bool else default}."
        typed = str(field.annotation)
        words = {"Path": "PATH", "int": "NUMBER", "float": "SECONDS"}
        metavar = next((word for part, word in words.items() if part in typed), "TEXT")
        kind: dict[str, Any] = {"metavar": metavar}
        if field.annotation is bool:
            kind = {"action": argparse.BooleanOptionalAction}
        elif field.annotation == tuple[str, ...]:
            kind["action"] = "append"
        shown_text = f"{text} [{_variable(name)}, {name}]"
        add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            help=argparse.SUPPRESS if hidden else shown_text,
            **kind,
        )


def _secrets(names: Iterable[str]) -> str | None:
    """Return a group's note on its secrets: they are not options, which all users can read."""
    texts = [
        f"{_variable(name)} ({name}): {field.description}"
        for name, field in Config.model_fields.items()
        if name in set(names) and field.annotation is SecretStr
    ]
    return " ".join(("A secret has no option.", *texts)) if texts else None


def _variable(name: str) -> str:
    return f"{ENV_PREFIX}{name.upper()}"
