"""Every setting of the server, in one place, each with a sentence.

A setting is a flag (`--data-dir`), an environment variable (`TUSKPOINT_DATA_DIR`) and a
key of the TOML file named by `--config` (`data_dir`); the flag wins over the variable,
the variable over the file, the file over the default. An empty variable counts as unset.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from .domain.credentials import TOKEN_PREFIX, is_loopback
from .domain.limits import LIMITS, MIB

ENV_PREFIX = "TUSKPOINT_"
ECOSYSTEM_VARIABLES = {
    "WALRUS_PUBLISHER_URL": "walrus_publisher_url",
    "WALRUS_AGGREGATOR_URL": "walrus_aggregator_url",
    "WALRUS_EPOCHS": "walrus_epochs",
    "MEMWAL_PRIVATE_KEY": "memwal_private_key",
    "MEMWAL_ACCOUNT_ID": "memwal_account_id",
    "MEMWAL_SERVER_URL": "memwal_server_url",
    "MEMWAL_NAMESPACE": "memwal_namespace",
}
"""Variables that other programs of Walrus and MemWal read too; the server's own win over them."""
FLUSH_SECONDS = 2.0
WALRUS_FLUSH_SECONDS = 30.0
MAX_NAMESPACE_BYTES = 128
"""Longest namespace in MemWal: the relayer takes 255 bytes, and a tenant's name comes after it."""


def _words(value: object) -> object:
    """Split the text of a variable: several words stand there with spaces or commas."""
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]


class ConfigError(Exception):
    """A setting that cannot be used; its text is one line that says which and why."""


class Config(BaseSettings):
    """Settings in force."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
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
    walrus_publisher_url: Words = Field(
        default=(),
        description="Publisher of Walrus that blobs are sent to; may be given more than once, "
        "the first that works is used.",
    )
    walrus_aggregator_url: Words = Field(
        default=(),
        description="Aggregator of Walrus that blobs are read from; may be given more than once. "
        "With a publisher, Walrus takes the place of the blob directory.",
    )
    walrus_epochs: int = Field(
        default=5, ge=2, le=53, description="Epochs for which Walrus is asked to keep a blob."
    )
    walrus_epoch_seconds: float = Field(
        default=14 * 24 * 3600.0,
        gt=0,
        le=366 * 24 * 3600,
        description="Length of an epoch in seconds: 1209600 on Mainnet, 86400 on Testnet.",
    )
    walrus_renew_margin: int = Field(
        default=1,
        ge=1,
        description="Epochs before its end at which a blob that is still needed is stored once "
        "more; below --walrus-epochs.",
    )
    walrus_renew_interval: float = Field(
        default=3600.0,
        gt=0,
        description="Longest time in seconds between two looks at what has to be renewed.",
    )
    walrus_puts_at_once: int = Field(
        default=8, ge=1, le=256, description="Number of puts that a publisher takes at a time."
    )
    walrus_max_put_bytes: int = Field(
        default=10 * MIB,
        ge=10 * MIB,
        le=60 * MIB,
        description="Largest quilt that is sent. Every publisher takes the default; a larger one "
        "costs less for each byte, if the publisher takes it.",
    )
    walrus_put_timeout: float = Field(
        default=120.0, gt=0, description="Seconds after which a put counts as lost and is repeated."
    )
    walrus_jwt_secret_file: Path | None = Field(
        default=None,
        description="File with the secret that a publisher checks tokens with; its text, or hex "
        "digits after 0x.",
    )
    walrus_jwt_algorithm: Literal["HS256", "HS384", "HS512"] = Field(
        default="HS256", description="Algorithm that tokens are signed with."
    )
    walrus_jwt_lifetime: int = Field(
        default=60,
        ge=1,
        le=3600,
        description="Seconds for which a token is valid; a publisher may ask for a certain number.",
    )
    walrus_send_object_to: str = Field(
        default="",
        description="Sui address that becomes the owner of the blobs; only an owner can extend "
        "them on chain.",
    )
    packing: Literal["quilt", "blob"] = Field(
        default="quilt",
        description="How checkpoints are stored on Walrus: many in a quilt, or each in a blob of "
        "its own, which costs about as much for one as for a whole quilt.",
    )
    catalog_pointer: Path | None = Field(
        default=None,
        description="File that always names the newest catalog; best kept on another disk. "
        "Default: DATA_DIR/catalog.",
    )
    flush_interval: float | None = Field(
        default=None,
        gt=0,
        le=3600,
        description="Seconds after which a change is carried to the blob store, if nobody waits "
        "for it. Default: 2; with Walrus 30, as every flush is billed like a large one.",
    )
    backlog_soft_limit: int = Field(
        default=256 * MIB,
        ge=0,
        description="Bytes waiting for certification from which saves carry a warning.",
    )
    backlog_hard_limit: int = Field(
        default=1024 * MIB,
        ge=1,
        description="Bytes waiting for certification from which saves are refused.",
    )
    cache_bytes: int = Field(
        default=256 * MIB, ge=0, description="Size of the local cache of blobs; 0 turns it off."
    )
    journal_bytes: int = Field(
        default=1024 * MIB,
        ge=0,
        description="Bytes that the journal may use before certified values leave it for the "
        "blob store alone; 0 lets them leave as soon as they may.",
    )
    eviction_interval: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="Seconds between two looks at whether the journal has grown too large.",
    )
    eviction_grace: float = Field(
        default=60.0, ge=0, description="Seconds for which a checkpoint keeps its values at least."
    )
    search: bool = Field(
        default=True,
        description="Index checkpoints for search. What is saved while it is off is indexed "
        "once it is on again.",
    )
    search_exclude: Words = Field(
        default=(),
        description="Name of a channel, or of a key at any depth of the state, that is never "
        "indexed; may be given more than once.",
    )
    search_cache_bytes: int = Field(
        default=256 * MIB,
        ge=0,
        description="Most bytes of vectors that are kept in memory for search.",
    )
    embedder: Literal["none", "local", "openai"] = Field(
        default="none",
        description="What makes vectors of text: the local model if its package is installed, or "
        "an endpoint of OpenAI's kind. Without one, text is searched by words.",
    )
    embedder_url: str = Field(
        default="https://api.openai.com/v1",
        description="Endpoint of --embedder openai; summaries and searchable text are sent to it.",
    )
    embedder_model: str = Field(
        default="text-embedding-3-small", description="Model of --embedder openai."
    )
    embedder_dimensions: int | None = Field(
        default=None,
        ge=1,
        le=LIMITS.max_vector_dimension,
        description="Components that --embedder openai is asked for. Default: the model's own.",
    )
    embedder_key: SecretStr = Field(
        default=SecretStr(""), description="Key of --embedder openai, if it wants one."
    )
    memwal_private_key: SecretStr = Field(
        default=SecretStr(""),
        description="Seed of the delegate key that MemWal knows. With an account, summaries are "
        "sent to MemWal and text is searched there.",
    )
    memwal_account_id: str = Field(
        default="", description="Object ID of the MemWal account (not a wallet's address)."
    )
    memwal_server_url: str = Field(
        default="https://relayer.memory.walrus.xyz", description="MemWal's relayer."
    )
    memwal_namespace: str = Field(
        default="tuskpoint", min_length=1, description="Namespace of the memories in MemWal."
    )
    memwal_points_per_minute: int = Field(
        default=25,
        ge=10,
        description="Points of the relayer's rate limit that deliveries may spend in a minute; "
        "searches have five more.",
    )
    memwal_points_per_hour: int = Field(
        default=450,
        ge=10,
        description="Points that deliveries may spend in an hour; searches have fifty more.",
    )
    max_call_seconds: float = Field(
        default=300.0,
        gt=0,
        description="Longest time of a call, whatever deadline the client sets; streams of "
        "requests and watches are exempt.",
    )
    drain_grace: float = Field(
        default=30.0, ge=0, description="Seconds that running calls get to finish at shutdown."
    )
    reflection: bool = Field(
        default=False, description="Offer gRPC server reflection, for tools that explore the API."
    )
    tls_cert: Path | None = Field(
        default=None,
        description="PEM file with the certificate of the server, then those between it and "
        "its root. Read again when it changes, as the next three are.",
    )
    tls_key: Path | None = Field(
        default=None, description="PEM file with the private key of the certificate."
    )
    tls_client_ca: Path | None = Field(
        default=None,
        description="PEM file with the roots that a client's certificate must lead to; with "
        "it no client connects without one.",
    )
    tokens: Path | None = Field(
        default=None,
        description="TOML file that says which tokens are known, for which tenant and scopes; "
        "`tuskpoint-server token` makes its entries. With it no call passes without one.",
    )
    insecure_plaintext: bool = Field(
        default=False,
        description="Serve other machines without TLS; only for networks that are trusted as "
        "a whole.",
    )
    insecure_anonymous: bool = Field(
        default=False,
        description="Serve other machines with TLS and ask for no credential; whoever reaches "
        "the server may read and change everything.",
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
        self._check_access()
        if self.walrus_publisher_url and not self.walrus_aggregator_url:
            raise ValueError(
                "--walrus-publisher-url is set and --walrus-aggregator-url is not; nothing is "
                "certified that cannot be read back"
            )
        if self.blob_dir is not None and self.walrus_aggregator_url:
            raise ValueError(
                "both --blob-dir and --walrus-aggregator-url are set; blobs have one home "
                "(unset WALRUS_PUBLISHER_URL and WALRUS_AGGREGATOR_URL to use the directory)"
            )
        if self.walrus_renew_margin >= self.walrus_epochs:
            raise ValueError(
                f"--walrus-renew-margin {self.walrus_renew_margin} must be below --walrus-epochs "
                f"{self.walrus_epochs}: nothing lasts longer than it is stored for"
            )
        if self.backlog_soft_limit > self.backlog_hard_limit:
            raise ValueError("--backlog-soft-limit must not be above --backlog-hard-limit")
        if len(self.memwal_namespace.encode()) > MAX_NAMESPACE_BYTES:
            raise ValueError(
                f"--memwal-namespace must be at most {MAX_NAMESPACE_BYTES} bytes: the relayer "
                "takes 255, and a tenant's name comes after it"
            )
        return self

    def _check_access(self) -> None:
        """See to it that nothing is open to other machines by accident."""
        if (self.tls_cert is None) != (self.tls_key is None):
            there, missing = ("cert", "key") if self.tls_key is None else ("key", "cert")
            raise ValueError(f"--tls-{there} is set and --tls-{missing} is not; TLS takes both")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError(
                "--tls-client-ca is set and --tls-cert is not; without TLS no client shows a "
                "certificate"
            )
        if self.tokens is not None and self.tokens.name.startswith(TOKEN_PREFIX):
            raise ValueError("--tokens names a file, and this looks like a token")
        host, _ = split_address(self.listen)
        if is_loopback(host):
            return
        if self.tls_cert is None and not self.insecure_plaintext:
            raise ValueError(
                f"--listen {self.listen} would serve other machines in plaintext; give "
                "--tls-cert and --tls-key, or add --insecure-plaintext if that network is trusted"
            )
        credentials = self.tokens is not None or self.tls_client_ca is not None
        if self.tls_cert is not None and not (credentials or self.insecure_anonymous):
            raise ValueError(
                f"--listen {self.listen} would let whoever reaches it do everything; give "
                "--tokens or --tls-client-ca, or add --insecure-anonymous if that is meant"
            )

    @property
    def blobs(self) -> Path:
        """Directory of the blob store."""
        return self.blob_dir or self.data_dir / "blobs"

    @property
    def flush_seconds(self) -> float:
        """Age at which a change is carried to the blob store."""
        if self.flush_interval is not None:
            return self.flush_interval
        return WALRUS_FLUSH_SECONDS if self.walrus_aggregator_url else FLUSH_SECONDS

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
        return init_settings, env_settings, _EcosystemVariables(settings_cls)


class _EcosystemVariables(PydanticBaseSettingsSource):
    """Reads `ECOSYSTEM_VARIABLES`; an empty one counts as unset."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        for variable, name in ECOSYSTEM_VARIABLES.items():
            if name == field_name:
                return os.environ.get(variable) or None, field_name, False
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        found = {
            name: self.get_field_value(field, name)[0]
            for name, field in self.settings_cls.model_fields.items()
        }
        return {name: value for name, value in found.items() if value is not None}


def from_flags(flags: dict[str, Any]) -> Config:
    """Return the settings in force where flags name some of them.

    Args:
        flags: What a parser of `flags` found, less what is no setting.

    Raises:
        ConfigError: A flag, variable or key is unknown or has a bad value.
    """
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


def is_secret(field: FieldInfo) -> bool:
    """Tell whether a setting is one that nobody is shown."""
    return field.annotation is SecretStr


def _first_problem(error: ValidationError) -> str:
    """Say in one line what is wrong with the first bad setting."""
    problem = error.errors(include_url=False, include_context=False)[0]
    text = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:
        return text
    name = str(problem["loc"][0])
    if problem["type"] == "extra_forbidden":
        return f"there is no setting '{name}'"
    said = f"{text[:1].lower()}{text[1:]}"
    if is_secret(Config.model_fields[name]):
        return f"{ENV_PREFIX}{name.upper()}: {said}"
    return f"--{name.replace('_', '-')}: {said}, not '{problem['input']}'"
