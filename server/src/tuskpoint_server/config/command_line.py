"""Settings from the command line, variables and the TOML file, with one line for what is wrong."""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlsplit

from pydantic import (
    SecretStr,
    ValidationError,
)

from ..core.process import ConfigError
from .settings import ECOSYSTEM_VARIABLES, ENV_PREFIX, Config


def load(argv: Sequence[str], *, version: str) -> Config:
    """Return the settings in force for a command line; `--help` and `--version` end the program."""
    parser = settings_parser(
        version,
        prog="tuskpoint-server",
        description="gRPC checkpoint service for AI agents.",
        epilog="Every setting may also be given by its variable or, in the file that --config "
        "names, by its key. SIGTERM drains: running calls finish, then the server ends. "
        "`tuskpoint-server recover --help` says how to rebuild an empty server from blobs, "
        "`tuskpoint-server collect --help` how to remove unneeded blobs from a blob store, "
        "`copy --help`, `backup --help` and `restore --help` how to move and back up a journal, "
        "`tuskpoint-server token --help` how to make tokens, `keys --help` how to make keys that "
        "seal what is stored, `tuskpoint-server health --help` how to check a server.",
    )
    return from_flags(vars(parser.parse_args(argv)))


def from_flags(flags: dict[str, Any]) -> Config:
    """Return the settings in force where the flags that a `settings_parser` found name some."""
    file = flags.pop("config", None) or os.environ.get(f"{ENV_PREFIX}CONFIG")
    own_names = {f"{ENV_PREFIX}{name.upper()}": name for name in Config.model_fields}
    variables = {
        name: os.environ[variable]
        for variable, name in (ECOSYSTEM_VARIABLES | own_names).items()
        if os.environ.get(variable)
    }
    if has_password(flags.get("journal", "")):
        raise ConfigError(
            "--journal has a password, which every user of this machine could read; set "
            f"{ENV_PREFIX}JOURNAL, or let PGPASSFILE name a file with it"
        )
    for name in ("walrus_publisher_url", "walrus_aggregator_url"):
        if any(map(has_password, flags.get(name, ()))):
            raise ConfigError(
                f"--{name.replace('_', '-')} has a password, which every user of this machine "
                f"could read; set {name.upper()}"
            )
    try:
        keys = tomllib.loads(Path(file).read_text("utf-8")) if file else {}
        return Config(**(keys | variables | flags))
    except OSError:
        raise ConfigError(f"--config: there is no file {file}") from None
    except ValidationError as error:
        raise ConfigError(_first_problem(error)) from None
    except ValueError as error:
        raise ConfigError(f"--config: {file} is not TOML: {error}") from None


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_context=False)[0]
    text = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:
        return text
    name = str(problem["loc"][0])
    if problem["type"] == "extra_forbidden":
        return f"there is no setting '{name}'"
    sentence = f"{text[:1].lower()}{text[1:]}"
    if Config.model_fields[name].annotation is SecretStr:
        return f"{ENV_PREFIX}{name.upper()}: {sentence}"
    return f"--{name.replace('_', '-')}: {sentence}, not '{problem['input']}'"


def has_password(url: str) -> bool:
    """Return whether a URL has a password in it."""
    parts = urlsplit(url)
    return parts.password is not None or "password" in parse_qs(parts.query)


class OneLineParser(argparse.ArgumentParser):
    """Refuses a command line with a `ConfigError`, whose text is one line."""

    def error(self, message: str) -> NoReturn:
        """Refuse in one line."""
        raise ConfigError(message)


def settings_parser(
    version: str,
    *,
    prog: str,
    description: str,
    epilog: str = "All settings of the server are accepted; most of them have no effect here.",
) -> argparse.ArgumentParser:
    """Return a parser of all settings, to be added to by a command beside serving."""
    parser = OneLineParser(
        prog=prog,
        description=description,
        epilog=epilog,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version}")
    parser.add_argument(
        "--config", metavar="FILE", help=f"TOML file with settings [{ENV_PREFIX}CONFIG]"
    )
    secrets: list[str] = []
    for name, field in Config.model_fields.items():
        text, variable = (field.description or "").replace("%", "%%"), f"{ENV_PREFIX}{name.upper()}"
        if field.annotation is SecretStr:  # every user of the machine can read a program's flags
            secrets.append(f"{variable} ({name}): {text}")
            continue
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
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, dest=name, help=f"{text} [{variable}, {name}]", **kind)
    parser.add_argument_group("secrets, which have no flag", " ".join(secrets))
    return parser
