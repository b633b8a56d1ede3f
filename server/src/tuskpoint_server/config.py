"""Every setting of the server, in one place, each with a sentence.

A setting is a flag (`--data-dir`), an environment variable (`TUSKPOINT_DATA_DIR`) and a
key of the TOML file named by `--config` (`data_dir`); the flag wins over the variable,
the variable over the file, the file over the default. An empty variable counts as unset.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

ENV_PREFIX = "TUSKPOINT_"
_MIB = 1024 * 1024


class ConfigError(Exception):
    """A setting that cannot be used; its text is one line that says which and why."""


class Config(BaseSettings):
    """Settings in force."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True
    )

    listen: str = Field(
        default="127.0.0.1:7390",
        description="Address to serve on, HOST:PORT; port 0 picks a free one.",
    )
    data_dir: Path = Field(
        default=Path("./.tuskpoint"),
        description="Directory of the journal, the spool and the cache; one server at a time.",
    )
    blob_dir: Path | None = Field(
        default=None,
        description="Directory of the blob store; may be shared by several servers. "
        "Default: DATA_DIR/blobs.",
    )
    catalog_pointer: Path | None = Field(
        default=None,
        description="File that always names the newest catalog; best kept on another disk. "
        "Default: DATA_DIR/catalog.",
    )
    flush_interval: float = Field(
        default=2.0, gt=0, le=3600, description="Seconds between two flushes to the blob store."
    )
    backlog_soft_limit: int = Field(
        default=256 * _MIB,
        ge=0,
        description="Bytes waiting for certification from which saves carry a warning.",
    )
    backlog_hard_limit: int = Field(
        default=1024 * _MIB,
        ge=1,
        description="Bytes waiting for certification from which saves are refused.",
    )
    cache_bytes: int = Field(
        default=256 * _MIB, ge=0, description="Size of the local cache of blobs; 0 turns it off."
    )
    max_call_seconds: float = Field(
        default=300.0,
        gt=0,
        description="Longest time of a call, whatever deadline the client sets; streams of "
        "requests are exempt.",
    )
    drain_grace: float = Field(
        default=30.0, ge=0, description="Seconds that running calls get to finish at shutdown."
    )
    reflection: bool = Field(
        default=False, description="Offer gRPC server reflection, for tools that explore the API."
    )
    insecure_plaintext: bool = Field(
        default=False,
        description="Serve other machines without TLS and credentials; only for networks "
        "that are trusted as a whole.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severity that is logged to stderr."
    )
    otel: Literal["none", "console", "otlp"] | None = Field(
        default=None,
        description="Where traces and metrics go. Default: what OTEL_TRACES_EXPORTER, "
        "OTEL_METRICS_EXPORTER or OTEL_EXPORTER_OTLP_ENDPOINT ask for, else none.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        host, _ = split_address(self.listen)
        if not (self.insecure_plaintext or _is_loopback(host)):
            raise ValueError(
                f"--listen {self.listen} would serve other machines in plaintext; "
                "add --insecure-plaintext if that network is trusted"
            )
        if self.backlog_soft_limit > self.backlog_hard_limit:
            raise ValueError("--backlog-soft-limit must not be above --backlog-hard-limit")
        return self

    @property
    def blobs(self) -> Path:
        """Directory of the blob store."""
        return self.blob_dir or self.data_dir / "blobs"

    @property
    def pointer(self) -> Path:
        """File that names the newest catalog."""
        return self.catalog_pointer or self.data_dir / "catalog"

    @property
    def telemetry(self) -> Literal["none", "console", "otlp"]:
        """Where traces and metrics go; OpenTelemetry's own variables count."""
        if self.otel is not None:
            return self.otel
        if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return "none"
        asked = {os.environ.get(f"OTEL_{kind}_EXPORTER", "") for kind in ("TRACES", "METRICS")}
        if "otlp" in asked or any(
            os.environ.get(f"OTEL_EXPORTER_OTLP_{kind}ENDPOINT")
            for kind in ("", "TRACES_", "METRICS_")
        ):
            return "otlp"
        return "console" if "console" in asked else "none"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return where settings come from, the strongest first: flags, variables."""
        return init_settings, env_settings


def load(argv: Sequence[str], *, version: str) -> Config:
    """Return the settings in force for a command line.

    Args:
        argv: The arguments, without the program's name.
        version: What `--version` prints.

    Raises:
        ConfigError: A flag, variable or key is unknown or has a bad value.
        SystemExit: After `--help` or `--version`.
    """
    flags = vars(_parser(version).parse_args(argv))
    file = flags.pop("config", None) or os.environ.get(f"{ENV_PREFIX}CONFIG")

    class Sources(Config):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            *args: PydanticBaseSettingsSource,
            **sources: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            stronger = super().settings_customise_sources(settings_cls, *args, **sources)
            return (*stronger, TomlConfigSettingsSource(settings_cls, file)) if file else stronger

    if file and not Path(file).is_file():
        raise ConfigError(f"--config: there is no file {file}")
    try:
        return Sources(**flags)
    except ValidationError as error:
        raise ConfigError(_first_problem(error)) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"--config: {file} is not TOML: {error}") from None


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of "HOST:PORT"; an IPv6 host stands in brackets.

    Raises:
        ValueError: It is no such address.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"--listen must be HOST:PORT, not '{address}'")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"--listen: put the IPv6 address in brackets: [{host}]:{port}")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """Return "HOST:PORT", with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Refuse in one line."""
        raise ConfigError(message)


def _parser(version: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tuskpoint-server",
        description="gRPC checkpoint service for AI agents.",
        epilog="Every setting may also be given by its variable or, in the file that --config "
        "names, by its key. SIGTERM drains: running calls finish, then the server ends.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version}")
    parser.add_argument(
        "--config", metavar="FILE", help=f"TOML file with settings [{ENV_PREFIX}CONFIG]"
    )
    for name, field in Config.model_fields.items():
        flag = "--" + name.replace("_", "-")
        description = f"{_description(field)} [{ENV_PREFIX}{name.upper()}, {name}]"
        if field.annotation is bool:
            parser.add_argument(
                flag, help=description, dest=name, action=argparse.BooleanOptionalAction
            )
        else:
            parser.add_argument(flag, help=description, dest=name, metavar=_metavar(field))
    return parser


def _description(field: FieldInfo) -> str:
    text = (field.description or "").replace("%", "%%")
    shown = "" if field.default is None else f" Default: {_shown(field.default)}."
    return text + shown


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _metavar(field: FieldInfo) -> str:
    names = {str: "HOST:PORT", Path: "PATH", int: "BYTES", float: "SECONDS"}
    kind = field.annotation
    if kind == Path | None:
        return "PATH"
    return names.get(kind, "NAME") if isinstance(kind, type) else "NAME"


def _first_problem(error: ValidationError) -> str:
    """Say in one line what is wrong with the first bad setting."""
    problem = error.errors(include_url=False, include_context=False)[0]
    text = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:
        return text
    name = str(problem["loc"][0])
    if problem["type"] == "extra_forbidden":
        return f"there is no setting '{name}'"
    return f"--{name.replace('_', '-')}: {text[:1].lower()}{text[1:]}, not '{problem['input']}'"
