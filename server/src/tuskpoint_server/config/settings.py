"""All settings of the server, each with its text.

A setting is a flag (`--data-dir`), an environment variable (`TUSKPOINT_DATA_DIR`) and a
key of the TOML file named by `--config` (`data_dir`); the flag wins over the variable,
the variable over the file, the file over the default. An empty variable counts as unset.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)

from ..core.credentials import TOKEN_PREFIX, is_loopback
from ..core.limits import LIMITS, MIB

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
"""Variables that programs of Walrus and MemWal share; the server's own variables override them."""
MAX_NAMESPACE_BYTES = 128
"""Longest namespace in MemWal: the relayer allows 255 bytes, which include the tenant's name."""


def _words(value: object) -> object:
    """Split the text of a variable with several values, at spaces or commas."""
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Telemetry = Literal["none", "console", "otlp"]
_FILE_SCHEME = "file://"
_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]+)?")


class Config(BaseModel):
    """Settings in force. The docstring of each setting is its text in `--help`."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    listen: str = "127.0.0.1:7390"
    """Address to serve on, HOST:PORT; port 0 picks a free one."""
    http_listen: str = ""
    """Address to serve JSON over HTTP, gRPC-Web and the console on, HOST:PORT; port 0 picks a free
    one. TLS and tokens are the same as for --listen. Default: no HTTP."""
    http_origins: Words = ()
    """Origins, such as https://console.example.com, of pages that may call --http-listen besides
    its own: other sites, and the name under which a proxy serves it."""
    data_dir: Path = Path("./.tuskpoint")
    """Directory of the journal, the spool and the cache; one server at a time."""
    journal: str = ""
    """PostgreSQL database that keeps the journal, as libpq takes it:
    postgresql://USER@HOST/DATABASE; any number of servers. Default: SQLite, in
    DATA_DIR/journal.db, for one server."""
    migrate: bool = True
    """Migrate a journal of an older version; --no-migrate refuses to start with it."""
    accept_rows: bool = False
    """Trust the rows of the journal as they are, and bind them with a new key: once, after the
    signing key was lost or another program changed the journal on purpose."""
    lease_seconds: float = Field(default=10.0, ge=1, le=600)
    """Seconds after which another server of a journal in PostgreSQL takes the duties over of one
    that died; a clean stop hands them over at once."""
    blob_dir: Path | None = None
    """Directory of the blob store; may be shared by several servers. Default: DATA_DIR/blobs."""
    blobs: str = ""
    """Blob store as a URL, in the place of --blob-dir: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,
    az://CONTAINER/PREFIX or file:///DIRECTORY; may be shared by several servers."""
    walrus_publisher_url: Words = ()
    """Publisher of Walrus that blobs are sent to; may be given more than once, the first that
    works is used."""
    walrus_aggregator_url: Words = ()
    """Aggregator of Walrus that blobs are read from; may be given more than once. With a
    publisher, Walrus takes the place of the blob directory."""
    walrus_epochs: int = Field(default=5, ge=2, le=53)
    """Epochs for which Walrus is asked to keep a blob."""
    walrus_epoch_seconds: float = Field(default=14 * 24 * 3600.0, gt=0, le=366 * 24 * 3600)
    """Length of an epoch in seconds: 1209600 on Mainnet, 86400 on Testnet."""
    walrus_renew_margin: int = Field(default=1, ge=1)
    """Epochs before its end at which a blob that is still needed is stored once more; below
    --walrus-epochs."""
    walrus_renew_interval: float = Field(default=3600.0, gt=0)
    """Longest time in seconds between two checks for blobs that have to be renewed."""
    walrus_puts_at_once: int = Field(default=8, ge=1, le=256)
    """Number of concurrent puts that a publisher accepts."""
    walrus_max_put_bytes: int = Field(default=10 * MIB, ge=10 * MIB, le=60 * MIB)
    """Size limit of a quilt. Every publisher accepts the default; larger quilts cost less for each
    byte, if the publisher accepts them."""
    walrus_put_timeout: float = Field(default=120.0, gt=0)
    """Timeout of an attempt of a put in seconds; the put is then retried."""
    walrus_jwt_secret_file: Path | None = None
    """File with the secret that a publisher checks tokens with; its text, or hex digits after
    0x."""
    walrus_jwt_algorithm: Literal["HS256", "HS384", "HS512"] = "HS256"
    """Algorithm that tokens are signed with."""
    walrus_jwt_lifetime: int = Field(default=60, ge=1, le=3600)
    """Seconds for which a token is valid; a publisher may ask for a certain number."""
    walrus_send_object_to: str = ""
    """Sui address that becomes the owner of the blobs; only an owner can extend them on chain."""
    key_file: Path | None = None
    """File of keys, one of 32 bytes in base64 on each line, that seal what is stored: the first
    is used, the others open what they sealed. `tuskpoint-server keys create` makes one."""
    keys: SecretStr = SecretStr("")
    """The same keys, separated by spaces."""
    key_command: str = ""
    """Command that wraps and unwraps keys (`COMMAND wrap`, `COMMAND unwrap`), in the place of a
    key file: the way to any key service."""
    key_vault: str = ""
    """Transit key of HashiCorp Vault that wraps keys, as MOUNT/KEY, in the place of a key file;
    VAULT_ADDR, VAULT_TOKEN and VAULT_NAMESPACE apply."""
    key_aws_kms: str = ""
    """Key of AWS KMS that wraps keys, as ID, ARN or alias, in the place of a key file."""
    seal_journal: bool = False
    """Seal the values in the journal, too, under a key that the key provider wraps. Search then
    knows the summaries of checkpoints, and nothing of their values. For a new journal."""
    signing_key: Path | None = None
    """File of keys that sign hand-offs, like --key-file: the first signs, the others did before.
    Default: DATA_DIR/signing.key, which the first start makes."""
    identity: Path | None = None
    """File of identities of age (AGE-SECRET-KEY-1...), to which others seal hand-offs for this
    server: the first is current, the others still open. `tuskpoint-server keys identity` makes
    one."""
    public: bool = False
    """Store blobs unsealed on Walrus, where everybody can read them."""
    packing: Literal["quilt", "blob"] = "quilt"
    """How checkpoints are stored on Walrus: many in a quilt, or each in a blob of its own, which
    costs about as much for one as for a whole quilt."""
    catalog_pointer: Path | None = None
    """File that always names the newest catalog; best kept on another disk. Default:
    DATA_DIR/catalog."""
    accept_older_journal: Words = ()
    """Blob ID of a catalog that a pointer file names and the journal does not lead to, or the last
    change that this server acknowledged, as the refused start names it: start nevertheless, and
    give up what the journal lacks. The pointer file is kept beside the new one. May be given more
    than once."""
    accept_missing_blobs: Words = ()
    """Blob ID of the newest catalog if the blob store has lost it: start nevertheless, store again
    what the journal and the cache still have, and give up the rest. May be given more than once."""
    flush_interval: float | None = Field(default=None, gt=0, le=3600)
    """Age in seconds at which a change is flushed to the blob store, if nobody waits for it.
    Default: 2; with Walrus 30, because every flush is billed like a large one."""
    backlog_soft_limit: int = Field(default=256 * MIB, ge=0)
    """Bytes waiting for certification from which saves carry a warning."""
    backlog_hard_limit: int = Field(default=1024 * MIB, ge=1)
    """Bytes waiting for certification from which saves are refused."""
    cache_bytes: int = Field(default=256 * MIB, ge=0)
    """Size of the local cache of blobs; 0 turns it off."""
    memory_bytes: int = Field(default=1024 * MIB, ge=2 * LIMITS.max_checkpoint)
    """Memory that calls may hold: requests, checkpoints that are loaded, bundles that are adopted,
    and answers that their clients have not read; also what `recover` may unpack at once."""
    journal_bytes: int = Field(default=1024 * MIB, ge=0)
    """Bytes that the journal may use before values of certified checkpoints are evicted from it; 0
    evicts them as soon as possible."""
    scrub_bytes_per_second: int = Field(default=MIB, ge=0, le=1024 * MIB)
    """Bytes of the journal that are checked in a second, although nobody reads them; 0 checks
    none. All threads are gone through, at most once an hour."""
    eviction_grace: float = Field(default=60.0, ge=0)
    """Seconds for which the values of a new checkpoint are not evicted. The server checks the size
    of the journal twice in this time, and at least every 30 seconds."""
    late_save_grace: float = Field(default=0.0, ge=0, le=86400)
    """Seconds after a thread was deleted in which a save that repeats the ID of one of its
    checkpoints, and has no parent, starts the thread again. Later such a save is refused, because
    a delayed retry looks the same. Raise it for programs that delete a thread and save the same
    IDs again."""
    max_clock_step: float = Field(default=600.0, ge=1, le=86400)
    """Largest step of the clock, in seconds, against the journal's last time. After a larger step
    the server deletes nothing until the clock is right, or an operator accepts it."""
    search: bool = True
    """Index checkpoints for search. What is saved while it is off is indexed once it is on
    again."""
    search_exclude: Words = ()
    """Name of a channel, or of a key at any depth of the state, that is never indexed; may be
    given more than once."""
    search_cache_bytes: int = Field(default=256 * MIB, ge=0)
    """Size limit of the vectors that search keeps in memory, in bytes."""
    embedder: Literal["none", "local", "openai"] = "none"
    """What makes vectors of text: the local model if its package is installed, or an endpoint of
    OpenAI's kind. Without one, text is searched by words."""
    embedder_url: str = "https://api.openai.com/v1"
    """Endpoint of --embedder openai; summaries and searchable text are sent to it."""
    embedder_model: str = "text-embedding-3-small"
    """Model of --embedder openai."""
    embedder_dimensions: int | None = Field(default=None, ge=1, le=LIMITS.max_vector_dimension)
    """Components that --embedder openai is asked for. Default: the model's own."""
    embedder_key: SecretStr = SecretStr("")
    """Key of --embedder openai, if it wants one."""
    memwal_private_key: SecretStr = SecretStr("")
    """Seed of the delegate key that MemWal knows. With an account, summaries are sent to MemWal
    and text is searched there."""
    memwal_account_id: str = ""
    """Object ID of the MemWal account (not a wallet's address)."""
    memwal_server_url: str = "https://relayer.memory.walrus.xyz"
    """MemWal's relayer."""
    memwal_namespace: str = Field(default="tuskpoint", min_length=1)
    """Namespace of the memories in MemWal."""
    memwal_points_per_minute: int = Field(default=25, ge=10)
    """Points of the relayer's rate limit that deliveries may spend in a minute; searches may spend
    five more."""
    memwal_points_per_hour: int = Field(default=450, ge=10)
    """Points that deliveries may spend in an hour; searches may spend fifty more."""
    max_connections: int = Field(default=4096, ge=16)
    """Connections at once on each address that is listened on; over HTTP half of them from one
    address. Fewer where the system allows the server fewer open files."""
    max_call_seconds: float = Field(default=300.0, gt=0)
    """Longest time of a call, whatever deadline the client sets; streams of requests and watches
    are exempt."""
    drain_grace: float = Field(default=30.0, ge=0)
    """Seconds that running calls get to finish at shutdown."""
    reflection: bool = False
    """Offer gRPC server reflection, for tools that explore the API."""
    tls_cert: Path | None = None
    """PEM file with the certificate of the server, then those between it and its root. Read again
    when it changes, as the next three are."""
    tls_key: Path | None = None
    """PEM file with the private key of the certificate."""
    tls_client_ca: Path | None = None
    """PEM file with the roots that a client's certificate must lead to; with it no client
    connects without one."""
    tokens: Path | None = None
    """TOML file that says which tokens are known, for which tenant and scopes; `tuskpoint-server
    token` makes its entries. With it no call passes without one."""
    trail: Literal["auto", "off", "changes", "all"] = "auto"
    """Calls that the audit trail of each tenant records: those that change something, or all.
    auto: changes, if the server asks for credentials."""
    retention_file: Path | None = None
    """TOML file with rules that say which threads and checkpoints are kept. Read again when it
    changes."""
    webhooks: Path | None = None
    """TOML file with the addresses that get events of threads. Read again when it changes."""
    insecure_plaintext: bool = False
    """Serve other machines without TLS; only for networks that are trusted as a whole."""
    insecure_anonymous: bool = False
    """Serve other machines with TLS and ask for no credential; everyone who reaches the server may
    read and change everything."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged to stderr."""
    log_format: Literal["text", "json"] = "text"
    """Format of the log on stderr; json: an object for each line, with trace and span."""
    metrics_listen: str = ""
    """Address on which Prometheus reads the metrics, HOST:PORT, over plain HTTP; port 0 picks a
    free one."""
    otel: Telemetry | None = None
    """Where traces and metrics go. Default: what OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER or
    OTEL_EXPORTER_OTLP_ENDPOINT ask for, else none."""

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        self._check_access()
        if self.journal and urlsplit(self.journal).scheme not in ("postgresql", "postgres"):
            raise ValueError("--journal is not a URL that begins with postgresql://")
        if self.blobs.startswith(_FILE_SCHEME):
            parts = urlsplit(self.blobs)
            if parts.netloc or parts.query or parts.fragment or len(parts.path) < 2:
                raise ValueError(f"--blobs '{self.blobs}' is not file:///DIRECTORY")
        if self.walrus_publisher_url and not self.walrus_aggregator_url:
            raise ValueError(
                "--walrus-publisher-url is set and --walrus-aggregator-url is not; the "
                "server has to read back what it stores"
            )
        if self.blob_dir is not None and self.blobs:
            raise ValueError("both --blob-dir and --blobs are set; choose one blob store")
        if (self.blob_dir is not None or self.blobs) and self.walrus_aggregator_url:
            flag = "--blobs" if self.blobs else "--blob-dir"
            place = "bucket" if self.bucket else "directory"
            raise ValueError(
                f"both {flag} and --walrus-aggregator-url are set; choose one blob store "
                f"(unset WALRUS_PUBLISHER_URL and WALRUS_AGGREGATOR_URL to use the {place})"
            )
        self._check_sealing()
        if self.walrus_renew_margin >= self.walrus_epochs:
            raise ValueError(
                f"--walrus-renew-margin {self.walrus_renew_margin} must be below --walrus-epochs "
                f"{self.walrus_epochs}"
            )
        if self.backlog_soft_limit > self.backlog_hard_limit:
            raise ValueError("--backlog-soft-limit must not be above --backlog-hard-limit")
        if len(self.memwal_namespace.encode()) > MAX_NAMESPACE_BYTES:
            raise ValueError(
                f"--memwal-namespace must be at most {MAX_NAMESPACE_BYTES} bytes: the relayer "
                "takes 255, and a tenant's name comes after it"
            )
        return self

    def _check_sealing(self) -> None:
        """Refuse settings that would store data publicly by accident."""
        flags = {
            "--key-file": self.key_file is not None,
            f"{ENV_PREFIX}KEYS": bool(self.keys.get_secret_value()),
            "--key-command": bool(self.key_command),
            "--key-vault": bool(self.key_vault),
            "--key-aws-kms": bool(self.key_aws_kms),
        }
        providers = [name for name, is_set in flags.items() if is_set]
        if len(providers) > 1:
            raise ValueError(f"both {providers[0]} and {providers[1]} are set; choose one")
        if providers and self.public:
            raise ValueError(f"both --public and {providers[0]} are set; choose one")
        if self.seal_journal and not providers:
            raise ValueError(
                "--seal-journal needs a key provider: give --key-file "
                "(`tuskpoint-server keys create FILE` makes one)"
            )
        if self.walrus_publisher_url and not providers and not self.public:
            raise ValueError(
                "everybody can read what is on Walrus: give --key-file, so that it is sealed "
                "(`tuskpoint-server keys create FILE` makes one), or --public if that is meant"
            )

    @property
    def recorded(self) -> Literal["off", "changes", "all"]:
        """The calls that the audit trail records."""
        if self.trail != "auto":
            return self.trail
        return "changes" if self.tokens or self.tls_client_ca else "off"

    @property
    def seals(self) -> bool:
        """Whether stored data is sealed."""
        services = self.key_command or self.key_vault or self.key_aws_kms
        return bool(self.key_file or self.keys.get_secret_value() or services)

    def _check_access(self) -> None:
        """Refuse settings that would open the server to other machines by accident."""
        if (self.tls_cert is None) != (self.tls_key is None):
            flag, missing_flag = ("cert", "key") if self.tls_key is None else ("key", "cert")
            raise ValueError(f"--tls-{flag} is set and --tls-{missing_flag} is not; TLS needs both")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError(
                "--tls-client-ca is set and --tls-cert is not; without TLS no client shows a "
                "certificate"
            )
        if self.tokens is not None and self.tokens.name.startswith(TOKEN_PREFIX):
            raise ValueError("--tokens names a file, and this looks like a token")
        if self.metrics_listen:
            split_address(self.metrics_listen, "--metrics-listen")
        for origin in self.http_origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"--http-origins has {origin}, which is not an origin: give what a browser "
                    "sends, such as https://console.example.com or http://localhost:5173"
                )
        self._check_address("--listen", self.listen)
        if self.http_listen:
            self._check_address("--http-listen", self.http_listen)

    def _check_address(self, flag: str, address: str) -> None:
        host, _ = split_address(address, flag)
        if is_loopback(host):
            return
        if self.tls_cert is None and not self.insecure_plaintext:
            raise ValueError(
                f"{flag} {address} would serve other machines in plaintext; give "
                "--tls-cert and --tls-key, or add --insecure-plaintext if that network is trusted"
            )
        credentials = self.tokens is not None or self.tls_client_ca is not None
        if self.tls_cert is not None and not (credentials or self.insecure_anonymous):
            raise ValueError(
                f"{flag} {address} would let everyone who reaches it do everything; give "
                "--tokens or --tls-client-ca, or add --insecure-anonymous if that is meant"
            )

    @property
    def journal_place(self) -> Path | str:
        """File or URL of the journal."""
        return self.journal or self.data_dir / "journal.db"

    @property
    def journal_name(self) -> str:
        """The name of the journal for messages, without a password."""
        if not self.journal:
            return str(self.journal_place)
        parts = urlsplit(self.journal)
        user, separator, host = parts.netloc.rpartition("@")
        return f"{parts.scheme}://{user.partition(':')[0]}{separator}{host}{parts.path}"

    @property
    def signing_file(self) -> Path:
        """File of the keys that sign hand-offs."""
        return self.signing_key or self.data_dir / "signing.key"

    @property
    def common(self) -> dict[str, str]:
        """Settings that must be equal on all servers of a journal, by name."""
        blobs = self.bucket or str(self.blob_directory.absolute())
        embedder: str = self.embedder
        if embedder == "openai":
            embedder = f"openai {self.embedder_model} {self.embedder_dimensions or ''}".strip()
        return {
            "the blob store": "Walrus" if self.walrus_aggregator_url else blobs,
            "sealing": "on" if self.seals else "off",
            "--seal-journal": "on" if self.seal_journal else "off",
            "--search": "on" if self.search else "off",
            "--search-exclude": " ".join(sorted(self.search_exclude)),
            "--embedder": embedder,
            "MEMWAL_ACCOUNT_ID": self.memwal_account_id,
        }

    @property
    def bucket(self) -> str:
        """URL of the bucket; empty if the blob store is a directory or Walrus."""
        return "" if self.blobs.startswith(_FILE_SCHEME) else self.blobs

    @property
    def blob_directory(self) -> Path:
        """Directory of the blob store, unless the blob store is a bucket or Walrus."""
        if self.blobs:
            return Path(unquote(urlsplit(self.blobs).path))
        return self.blob_dir or self.data_dir / "blobs"

    @property
    def flush_seconds(self) -> float:
        """Age at which a change is flushed to the blob store."""
        return self.flush_interval or (30.0 if self.walrus_aggregator_url else 2.0)

    @property
    def pointer(self) -> Path:
        """File that names the newest catalog."""
        return self.catalog_pointer or self.data_dir / "catalog"

    @property
    def telemetry(self) -> Telemetry:
        """Where traces and metrics go; OpenTelemetry's own variables count."""
        if self.otel is not None:
            return self.otel
        if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return "none"
        exporters = {os.environ.get(f"OTEL_{kind}_EXPORTER", "") for kind in ("TRACES", "METRICS")}
        if "otlp" in exporters or any(
            os.environ.get(f"OTEL_EXPORTER_OTLP_{kind}ENDPOINT")
            for kind in ("", "TRACES_", "METRICS_")
        ):
            return "otlp"
        return "console" if "console" in exporters else "none"


def split_address(address: str, flag: str = "--listen") -> tuple[str, int]:
    """Return host and port of "HOST:PORT", or raise `ValueError`; IPv6 hosts are in brackets."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{flag} must be HOST:PORT, not '{address}'")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{flag}: put the IPv6 address in brackets: [{host}]:{port}")
    return host, int(port)
