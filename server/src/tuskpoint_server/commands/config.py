"""The command `tuskpoint-server config`: prints the settings in force, or checks them."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from ..auth.access import open_access
from ..config.command_line import settings_parser
from ..config.composition import open_identities, open_keys, signing_keys
from ..config.option_groups import GROUPS
from ..config.settings import Config
from ..config.sources import DEFAULT, Settings, examine, read_settings, without_secrets
from ..core import process
from .startup.retention_file import read_rules
from .startup.start_checks import require_publisher
from .startup.webhook_file import read_webhooks

_ORIGIN_COLUMN = 44


def main(arguments: Sequence[str], version: str) -> int:
    """Print or check the settings with the arguments after `config`; return the exit code."""
    parser = settings_parser(
        version,
        prog="tuskpoint-server config",
        description="Print the settings with which a server would start here, as a TOML file, and "
        "where each comes from. Secrets are hidden. Give the options of the server, too.",
        shown=(),
    )
    parser.add_argument(
        "--check",
        action="store_true",
        default=False,
        help="Check the settings, and the files that they name, instead: end with 0, or with 2 "
        "after a line for each problem. Nothing is written, and no journal, blob store or "
        "address is opened.",
    )
    flags = vars(parser.parse_args(arguments))
    if flags.pop("check"):
        return _check(flags)
    print("\n".join(_lines(read_settings(flags))))  # noqa: T201 - the answer
    return 0


def _lines(settings: Settings) -> Iterator[str]:
    """Yield the settings as lines of TOML, each with its source in a comment."""
    for title, names in GROUPS.items():
        yield f"# {title}"
        for name in names:
            value = getattr(settings.config, name)
            origin = settings.origins.get(name, DEFAULT)
            yield f"{_assignment(name, value):{_ORIGIN_COLUMN}} # {origin}"
        yield ""


def _assignment(name: str, value: Any) -> str:
    """Return a setting as TOML; an unset or hidden setting becomes a comment."""
    if isinstance(value, SecretStr):
        return f"# {name}: {'hidden' if value.get_secret_value() else 'not set'}"
    if value is None:
        return f"# {name}: not set"
    texts = [*map(str, value)] if isinstance(value, tuple) else [str(value)]
    shown = [*map(without_secrets, texts)]
    if shown != texts:
        return f"# {name}: {' '.join(shown)}"
    plain = str(value) if isinstance(value, Path) else value
    return f"{name} = {json.dumps(plain, ensure_ascii=False)}"


def _check(flags: Mapping[str, Any]) -> int:
    """Print the errors of the settings; return the exit code."""
    process.configure_logs("warning")
    settings, problems = examine(flags)
    if settings is not None:
        problems = asyncio.run(_problems(settings.config))
        for variable in settings.ignored:
            _say(f"variable {variable} is ignored: it is not a setting of the server")
    for problem in problems:
        _say(problem)
    if problems:
        return process.EXIT_CONFIG
    print("the settings can be used")  # noqa: T201 - the answer
    return 0


def _say(text: str) -> None:
    print(f"tuskpoint-server: {text}", file=sys.stderr)  # noqa: T201 - for who started it


async def _problems(config: Config) -> list[str]:
    """Return the errors of the files and libraries that the settings need.

    The function is async because the parts that read the files expect an event loop.
    """
    checks: list[Callable[[], object]] = [
        partial(require_publisher, config),
        partial(open_access, config),
        partial(open_keys, config),
        partial(open_identities, config),
        partial(_check_signing_key, config),
        partial(_check_libraries, config),
        partial(_check_directory, "--data-dir", config.data_dir),
    ]
    if config.retention_file is not None:
        checks.append(partial(read_rules, config.retention_file))
    if config.webhooks is not None:
        checks.append(partial(read_webhooks, config.webhooks))
    is_directory = not config.bucket and not config.walrus_aggregator_url
    if is_directory and config.data_dir not in config.blob_directory.parents:
        checks.append(partial(_check_directory, "--blob-dir", config.blob_directory))
    problems = []
    for check in checks:
        try:
            check()
        except process.StartError as error:
            problems.append(str(error))
    return problems


def _check_signing_key(config: Config) -> None:
    """Read the signing key, unless the first start would create it."""
    if config.signing_key is not None or os.path.exists(config.signing_file):
        signing_keys(config)


def _check_directory(flag: str, path: Path) -> None:
    """Refuse a directory that a server could not create or write."""
    try:
        existing = _nearest_existing(path.absolute())
    except OSError as error:
        raise process.ConfigError(f"{flag} {path} cannot be used: {error.strerror}") from None
    if not os.path.isdir(existing):
        raise process.ConfigError(f"{flag} {path} cannot be used: {existing} is not a directory")
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        raise process.ConfigError(
            f"{flag} {path} cannot be used: this user may not read and write {existing}"
        )


def _nearest_existing(path: Path) -> Path:
    """Return a path, or the nearest of its parents that exists."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return _nearest_existing(path.parent)
    return path


def _check_libraries(config: Config) -> None:
    """Refuse a setting whose libraries are not installed."""
    extras = {
        ("--journal", "postgres", "psycopg"): config.journal,
        ("--http-listen", "http", "connectrpc"): config.http_listen,
        ("--blobs", "objects", "obstore"): config.bucket,
        ("--embedder local", "embedder", "fastembed"): config.embedder == "local",
        ("--metrics-listen", "prometheus", "prometheus_client"): config.metrics_listen,
    }
    for (setting, extra, module), is_set in extras.items():
        if is_set and importlib.util.find_spec(module) is None:
            raise process.ConfigError(
                f"{setting} needs {module}, which is not installed; "
                f"pip install 'tuskpoint-server[{extra}]'"
            )
