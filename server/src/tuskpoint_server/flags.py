"""The settings as flags of a command line: what `--help` says of each, and reading them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from pydantic.fields import FieldInfo

from .config import ENV_PREFIX, Config, ConfigError, from_flags, is_secret


def load(argv: Sequence[str], *, version: str) -> Config:
    """Return the settings in force for a command line.

    Args:
        argv: The arguments, without the program's name.
        version: What `--version` prints.

    Raises:
        ConfigError: A flag, variable or key is unknown or has a bad value.
        SystemExit: After `--help` or `--version`.
    """
    return from_flags(vars(_parser(version).parse_args(argv)))


class OneLineParser(argparse.ArgumentParser):
    """Refuses a command line with a `ConfigError`, whose text is one line."""

    def error(self, message: str) -> NoReturn:
        """Refuse in one line."""
        raise ConfigError(message)


def _parser(version: str) -> argparse.ArgumentParser:
    return _with_settings(
        version,
        prog="tuskpoint-server",
        description="gRPC checkpoint service for AI agents.",
        epilog="Every setting may also be given by its variable or, in the file that --config "
        "names, by its key. SIGTERM drains: running calls finish, then the server ends. "
        "`tuskpoint-server recover --help` tells how to rebuild an empty server from blobs, "
        "`tuskpoint-server collect --help` how to free what a blob directory need not hold, "
        "`tuskpoint-server token --help` how to make tokens.",
    )


def command_parser(version: str, *, command: str, description: str) -> argparse.ArgumentParser:
    """Return a parser of all settings for a command beside serving, to be added to."""
    return _with_settings(
        version,
        prog=f"tuskpoint-server {command}",
        description=description,
        epilog="All settings of the server are taken; most of them matter only to serving.",
    )


def _with_settings(version: str, **texts: str) -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=texts["prog"],
        description=texts["description"],
        epilog=texts["epilog"],
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version}")
    parser.add_argument(
        "--config", metavar="FILE", help=f"TOML file with settings [{ENV_PREFIX}CONFIG]"
    )
    secrets: list[str] = []
    for name, field in Config.model_fields.items():
        if is_secret(field):
            secrets.append(f"{ENV_PREFIX}{name.upper()} ({name}): {_description(field)}")
            continue  # every user of the machine can read a program's flags
        flag = "--" + name.replace("_", "-")
        description = f"{_description(field)} [{ENV_PREFIX}{name.upper()}, {name}]"
        if field.annotation is bool:
            parser.add_argument(
                flag, help=description, dest=name, action=argparse.BooleanOptionalAction
            )
        elif field.annotation == tuple[str, ...]:
            metavar = "URL" if name.endswith("_url") else "NAME"
            parser.add_argument(flag, help=description, dest=name, metavar=metavar, action="append")
        else:
            parser.add_argument(flag, help=description, dest=name, metavar=_metavar(name, field))
    parser.add_argument_group("secrets, which have no flag", " ".join(secrets))
    return parser


def _description(field: FieldInfo) -> str:
    text = (field.description or "").replace("%", "%%")
    silent = is_secret(field) or field.default in (None, (), "")
    shown = "" if silent else f" Default: {_shown(field.default)}."
    return text + shown


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_METAVARS = {
    "embedder_dimensions": "NUMBER",
    "embedder_url": "URL",
    "listen": "HOST:PORT",
    "memwal_account_id": "ID",
    "memwal_points_per_hour": "POINTS",
    "memwal_points_per_minute": "POINTS",
    "memwal_server_url": "URL",
    "walrus_epochs": "EPOCHS",
    "walrus_jwt_lifetime": "SECONDS",
    "walrus_puts_at_once": "NUMBER",
    "walrus_renew_margin": "EPOCHS",
    "walrus_send_object_to": "ADDRESS",
}


def _metavar(name: str, field: FieldInfo) -> str:
    if name in _METAVARS:
        return _METAVARS[name]
    names = {Path: "PATH", int: "BYTES", float: "SECONDS"}
    kind = field.annotation
    if kind == Path | None:
        return "PATH"
    if kind == float | None:
        return "SECONDS"
    return names.get(kind, "NAME") if isinstance(kind, type) else "NAME"
