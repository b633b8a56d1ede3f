"""Reads the settings from flags, variables and the TOML file, and remembers each source.

An unknown name in any source is refused with a suggestion.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import SecretStr, ValidationError

from ..core.process import ConfigError
from .settings import ECOSYSTEM_VARIABLES, ENV_PREFIX, Config

CLIENT_VARIABLES = frozenset(
    f"{ENV_PREFIX}{name}"
    for name in (
        *("TARGET", "TOKEN", "TOKEN_FILE", "TLS", "CA_FILE", "CERT_FILE", "KEY_FILE"),
        *("TENANT", "KEYS", "TRACEBACK"),
        *("AGENT_ID", "DURABILITY", "LEASE", "SERIALIZER", "TIMEOUT_S"),
    )
)
"""Variables of TuskPoint's clients and programs, which share the prefix with the settings."""
COMMAND_LINE = "command line"
DEFAULT = "default"

_CONFIG_VARIABLE = f"{ENV_PREFIX}CONFIG"
_OWN_VARIABLES = {f"{ENV_PREFIX}{name.upper()}": name for name in Config.model_fields}
_OTHER_VARIABLES = CLIENT_VARIABLES | {_CONFIG_VARIABLE, f"{ENV_PREFIX}FAILPOINT"}
# Variables that Kubernetes sets in each pod for a service whose name starts with `tuskpoint`.
_OF_KUBERNETES = re.compile(
    rf"{ENV_PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)
_TYPO = 0.75  # similarity to a setting from which an unknown variable is refused
_SECRET_PARAMETER = re.compile(r"(\w*(?:password|secret|token)\w*=)[^&]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force.

    Attributes:
        config: The values.
        origins: The source of each value that is not a default.
        ignored: Ignored variables: they have the prefix of settings and resemble no setting.
    """

    config: Config
    origins: Mapping[str, str]
    ignored: tuple[str, ...]


def from_flags(flags: Mapping[str, Any]) -> Config:
    """Return the values in force for the flags of a `settings_parser`."""
    return read_settings(flags).config


def read_settings(flags: Mapping[str, Any], defaults: Mapping[str, Any] = {}) -> Settings:
    """Return the settings in force.

    Args:
        flags: The flags that a `settings_parser` found on the command line.
        defaults: Defaults that replace the settings' own defaults.

    Raises:
        ConfigError: A setting cannot be used; the text has the first problem.
    """
    settings, problems = examine(flags, defaults)
    if settings is None:
        raise ConfigError(problems[0])
    return settings


def examine(
    flags: Mapping[str, Any], defaults: Mapping[str, Any] = {}
) -> tuple[Settings | None, list[str]]:
    """Return the settings in force, or `None` and all problems."""
    flags = dict(flags)
    file = flags.pop("config", None) or os.environ.get(_CONFIG_VARIABLE)
    keys, problems = _read_file(file) if file else ({}, [])
    origins = dict.fromkeys(keys, f"file {file}")
    values = {**defaults, **keys}
    for variable, name in (ECOSYSTEM_VARIABLES | _OWN_VARIABLES).items():
        if text := os.environ.get(variable):
            values[name], origins[name] = text, f"variable {variable}"
    typos, ignored = _unknown_variables()
    problems += typos + _shown_passwords(flags)
    values |= flags
    origins |= dict.fromkeys(flags, COMMAND_LINE)
    try:
        config = Config(**values)
    except ValidationError as error:
        problems += [_problem(entry, origins) for entry in error.errors(include_url=False)]
        return None, problems
    return (None if problems else Settings(config, origins, ignored)), problems


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the end of a sentence that suggests the most similar name; empty without one."""
    names = {_bare(each): each for each in known}
    similar = difflib.get_close_matches(_bare(name), names, n=1, cutoff=cutoff)
    return f"; did you mean {names[similar[0]]}?" if similar else ""


def _bare(name: str) -> str:
    """Return the common form of a flag, a variable and a key, for comparisons."""
    return name.lower().removeprefix(ENV_PREFIX.lower()).strip("-").replace("-", "_")


def _read_file(file: str) -> tuple[dict[str, Any], list[str]]:
    """Return the settings in a TOML file, and its problems."""
    try:
        keys = tomllib.loads(Path(file).read_text("utf-8"))
    except FileNotFoundError:
        return {}, [f"--config: there is no file {file}"]
    except OSError as error:
        return {}, [f"--config: {file} cannot be read: {error.strerror or error}"]
    except ValueError as error:
        return {}, [f"--config: {file} is not TOML: {error}"]
    unknown = [name for name in keys if name not in Config.model_fields]
    problems = [
        f"{file}: there is no setting '{name}'{did_you_mean(name, Config.model_fields)}"
        for name in unknown
    ]
    return {name: value for name, value in keys.items() if name not in unknown}, problems


def _unknown_variables() -> tuple[list[str], tuple[str, ...]]:
    """Return the problems of variables, and the ignored variables.

    Programs share an environment, so only a variable that resembles a setting is refused.
    """
    problems, ignored = [], []
    for variable in sorted(os.environ):
        if (
            not variable.startswith(ENV_PREFIX)
            or variable in _OWN_VARIABLES
            or variable in _OTHER_VARIABLES
            or _OF_KUBERNETES.fullmatch(variable)
        ):
            continue
        known = [*_OWN_VARIABLES, _CONFIG_VARIABLE]
        if suggestion := did_you_mean(variable, known, _TYPO):
            problems.append(f"variable {variable} is not a setting{suggestion}")
        else:
            ignored.append(variable)
    return problems, tuple(ignored)


def _shown_passwords(flags: Mapping[str, Any]) -> list[str]:
    """Return the problems of flags with passwords, which every user of the machine can read."""
    problems = []
    if has_password(flags.get("journal", "")):
        problems.append(
            "--journal has a password, which every user of this machine could read; set "
            f"{ENV_PREFIX}JOURNAL, or let PGPASSFILE name a file with it"
        )
    problems += [
        f"--{name.replace('_', '-')} has a password, which every user of this machine could read; "
        f"set {name.upper()}"
        for name in ("walrus_publisher_url", "walrus_aggregator_url")
        if any(map(has_password, flags.get(name, ())))
    ]
    return problems


def _problem(error: Any, origins: Mapping[str, str]) -> str:
    """Return a problem that pydantic found as one line, with the source of the value."""
    text: str = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        return text
    name = str(error["loc"][0])
    sentence = f"{text[:1].lower()}{text[1:]}"
    kind, _, place = origins.get(name, COMMAND_LINE).partition(" ")
    is_secret = Config.model_fields[name].annotation is SecretStr
    written = {"variable": place, "file": f"{place}: {name}"}.get(
        kind, f"{ENV_PREFIX}{name.upper()}" if is_secret else f"--{name.replace('_', '-')}"
    )
    return (
        f"{written}: {sentence}" if is_secret else f"{written}: {sentence}, not '{error['input']}'"
    )


def has_password(url: str) -> bool:
    """Return whether a URL has a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.password is not None or "password" in parse_qs(parts.query)


def without_secrets(url: str) -> str:
    """Return a text for display, without the password of a URL."""
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        return url
    netloc = parts.netloc
    if password is not None:
        user, _, host = netloc.rpartition("@")
        netloc = f"{user.partition(':')[0]}:***@{host}"
    query = _SECRET_PARAMETER.sub(r"\1***", parts.query)
    if (netloc, query) == (parts.netloc, parts.query):
        return url
    return parts._replace(netloc=netloc, query=query).geturl()
