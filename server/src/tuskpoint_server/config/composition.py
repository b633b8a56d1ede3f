"""Opens the configured parts of the server: journal, blob store, archive, search.

A part that a setting enables (a bucket, Walrus, an embedder, MemWal) is imported when it is opened:
its libraries load longer than the rest of the server starts.
"""

from __future__ import annotations

import base64
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..archive.archive import Archive, StoreChangedError
from ..archive.archive_settings import ArchiveSettings
from ..blobs.api import BlobStore
from ..core import process
from ..core.errors import Reason, Refusal
from ..journal import rebinding, resealing
from ..journal.clock import JournalClock
from ..journal.database import binding
from ..journal.database.database import Database
from ..journal.database.journal_keys import IN_THE_CLEAR
from ..journal.lease import OWN_KEY, SIGNERS, Duty, Leader, Lease, SettingsDifferError
from ..journal.sql.sealing import KEY_BYTES
from ..keys import key_file
from ..keys.identities import Identities
from ..keys.local import LocalKeys, parse_keys, read_keys
from ..keys.provider import KeyProvider
from ..keys.signing import Signer
from ..search.embedders import Embedder, EmbedderError
from ..search.memwal.api import MemWalSettings
from ..search.pacing import IndexSettings
from ..search.search import SearchEngine
from .settings import ENV_PREFIX, Config

if TYPE_CHECKING:  # it loads an HTTP client
    from ..search.memwal.memwal import MemWal
    from ..search.memwal.relayer import Count

# Name for which the journal's keys are wrapped; no tenant can have this name.
_JOURNAL, ROWS = "$journal", "$rows"
BY_SIGNING_KEY, _BY_PROVIDER = "signing-key", "provider"
_OF_KEYS = (Reason.KEY_MISSING, Reason.KEY_WRONG, Reason.KEY_PROVIDER_UNAVAILABLE)
LOOK_SECONDS = {"directory": 3.0, "walrus": 600.0}
"""Seconds between two checks for the newest catalogs in the blob store; a minute for buckets."""
WITNESS = "witness"  # file of the data directory
MODELS = "models"  # folder of the data directory that keeps the local embedder's model

_log = logging.getLogger(__name__)


async def open_journal(
    config: Config,
    keys: KeyProvider | None,
    *,
    generation: int | None = None,
    alone: bool = False,
    clock: JournalClock | None = None,
) -> Database:
    """Open or create the journal; `Database.open` explains the arguments."""
    clock_us = {} if clock is None else {"clock_us": clock}
    open_key = partial(_journal_key, keys) if config.seal_journal and keys is not None else None
    try:
        return await Database.open(
            config.journal_place,
            generation=generation,
            alone=alone,
            migrates=config.migrate,
            open_key=open_key,
            open_row_key=partial(row_key, config, keys),
            accepts_rows=config.accept_rows,
            witness=None if generation is not None else config.data_dir / WITNESS,
            accepts_older=config.accept_older_journal,
            **clock_us,
        )
    except ImportError as error:
        raise process.ConfigError(
            f"--journal needs {error.name}, which is not installed; pip install "
            "'tuskpoint-server[postgres]'"
        ) from None
    except Exception as error:
        if isinstance(error, Refusal) and error.reason in _OF_KEYS:
            problem = f"the key of journal {config.journal_name} cannot be opened: {error}"
            raise process.StartError(process.EXIT_JOURNAL, problem) from None
        problem = error.metadata["problem"] if isinstance(error, Refusal) else str(error)
        reason = problem.partition("\n")[0]
        advice = (
            "check --journal and the server's log"
            if config.journal
            else "restore it, or choose another --data-dir"
        )
        raise process.StartError(
            process.EXIT_JOURNAL,
            f"journal {config.journal_name} cannot be opened: {reason}; {advice}",
        ) from error


async def row_key(config: Config, keys: KeyProvider | None, stored: str) -> tuple[bytes, str]:
    """Return the key that binds the rows, and its stored form; see `OpenKey`.

    The key that signs hand-offs wraps the row key, so a start needs no key service. Servers that
    share a journal may have different signing keys: without a common signing key the key provider
    wraps the row key, and without a provider the row key is not wrapped.
    """
    kind, _, text = stored.partition(":")
    data = base64.b64decode(text)
    wrapper = _wrapped_by(config)
    if not stored:
        key = os.urandom(binding.KEY_BYTES)
    elif kind == IN_THE_CLEAR:
        key = data
    elif kind == BY_SIGNING_KEY:
        key = await _unwrapped_row_key(config, data)
    elif keys is not None and kind == _BY_PROVIDER:
        key = await keys.unwrap(ROWS, data)
    else:
        raise RuntimeError(
            f"the key that binds its rows is wrapped by the {kind}: start with the setting for it"
        )
    if wrapper == IN_THE_CLEAR:
        return key, stored or f"{IN_THE_CLEAR}:{base64.b64encode(key).decode()}"
    wrapping = (
        keys if keys is not None and wrapper == _BY_PROVIDER else LocalKeys(signing_keys(config))
    )
    if kind == wrapper and wrapping.is_current(data):
        return key, stored
    wrapped = await wrapping.wrap(ROWS, key)
    return key, f"{wrapper}:{base64.b64encode(wrapped).decode()}"


def _wrapped_by(config: Config) -> str:
    if isinstance(config.journal_place, Path) or config.signing_key is not None:
        return BY_SIGNING_KEY
    return _BY_PROVIDER if config.seals else IN_THE_CLEAR


async def _unwrapped_row_key(config: Config, wrapped: bytes) -> bytes:
    path = config.signing_file
    try:
        return await LocalKeys(read_signing_keys(path)).unwrap(ROWS, wrapped)
    except (FileNotFoundError, Refusal):
        raise RuntimeError(
            f"its rows are bound by a signing key that {path} does not have: give every server of "
            "the journal the same key, or add the former key to that file, below the new one; if "
            "it is lost, start once with --accept-rows, which trusts the rows as they are"
        ) from None


async def bind_rows(config: Config, journal: Database) -> None:
    """Bind the rows of a journal that was migrated or restored, and its sealed values.

    Then refuse changes by older servers.
    """
    if _wrapped_by(config) == IN_THE_CLEAR:
        _log.warning(
            "the key that binds the rows of the journal is in the database: give all its servers "
            "one --signing-key, or a key provider, to be safe from who can read the database"
        )
    try:
        bound = await rebinding.bind_rows(journal)
        resealed = await resealing.reseal(journal)
        is_refusing = await journal.refuse_older_writers()
    except Refusal as refusal:
        if journal.is_shared:  # another server, or a dump of the database, may hold a lock
            _log.warning("the journal is migrated later, while this server serves: %s", refusal)
            return
        problem = f"journal {config.journal_name} cannot be migrated: {refusal}"
        raise process.StartError(process.EXIT_JOURNAL, problem) from None
    if not bound.is_complete:
        _log.warning(
            "rows are not protected against edits yet: servers of an older version are connected "
            "to the journal; upgrade all of them"
        )
    if not resealed.is_complete:
        _log.warning(
            "sealed values are not bound to their places yet: servers of an older version are "
            "connected to the journal; upgrade all of them"
        )
    if not is_refusing:
        _log.warning(
            "leases, effects and offers of hand-offs are refused: servers of an older version are "
            "connected to the journal; upgrade all of them"
        )


async def _journal_key(keys: KeyProvider, stored: str) -> tuple[bytes, str]:
    """Return the journal's key, and its wrapped form to store; see `OpenKey`."""
    if not stored:
        key = os.urandom(KEY_BYTES)
    else:
        wrapped = base64.b64decode(stored)
        key = await keys.unwrap(_JOURNAL, wrapped)
        if keys.is_current(wrapped):
            return key, stored
    return key, base64.b64encode(await keys.wrap(_JOURNAL, key)).decode()


def open_keys(config: Config) -> KeyProvider | None:
    """Open the key provider; `None` if the server seals nothing."""
    if not config.seals:
        return None
    from ..keys.command import CommandKeys

    try:
        if config.key_file is not None:
            return LocalKeys.of_file(config.key_file)
        if text := config.keys.get_secret_value():
            return LocalKeys(parse_keys(text))
        if config.key_vault:
            from ..keys.vault import VaultKeys

            return VaultKeys(config.key_vault)
        if config.key_aws_kms:
            from ..keys.aws import AwsKeys

            return AwsKeys(config.key_aws_kms)
        return CommandKeys(config.key_command)
    except ImportError as error:
        extra = "vault" if config.key_vault else "kms"
        raise process.ConfigError(
            f"--key-{'vault' if config.key_vault else 'aws-kms'} needs {error.name}; "
            f"pip install 'tuskpoint-server[{extra}]'"
        ) from None
    except (OSError, ValueError) as error:
        name = f"--key-file {config.key_file}" if config.key_file else "--key-command"
        if config.keys.get_secret_value():
            name = f"{ENV_PREFIX}KEYS"
        if config.key_vault:
            name = f"--key-vault {config.key_vault}"
        if config.key_aws_kms:
            name = f"--key-aws-kms {config.key_aws_kms}"
        problem = (error.strerror or error) if isinstance(error, OSError) else error
        raise process.ConfigError(f"{name} cannot be used: {problem}") from None


def signing_keys(config: Config) -> tuple[bytes, ...]:
    """Return the keys that sign hand-offs; a new data directory gets a new key."""
    path = config.signing_file
    try:
        if config.signing_key is None and not path.exists():
            key_file.make(path)
        return read_signing_keys(path)
    except OSError as error:
        problem = error.strerror or error
        raise process.ConfigError(f"--signing-key {path} cannot be used: {problem}") from None


def read_signing_keys(path: Path) -> tuple[bytes, ...]:
    """Return the keys in a file.

    Raises:
        OSError: The file of keys cannot be read.
    """
    try:
        return read_keys(path)
    except ValueError as error:
        raise process.ConfigError(f"--signing-key {path} cannot be used: {error}") from None


def open_identities(config: Config) -> Identities:
    """Open the identities to which hand-offs are sealed; none without the setting."""
    if config.identity is None:
        return Identities()
    try:
        return Identities.of_file(config.identity)
    except ImportError as error:
        raise process.ConfigError(
            f"--identity needs {error.name}; pip install 'tuskpoint-server[age]'"
        ) from None
    except (OSError, ValueError) as error:
        problem = (error.strerror or error) if isinstance(error, OSError) else error
        raise process.ConfigError(
            f"--identity {config.identity} cannot be used: {problem}"
        ) from None


async def start_archive(
    config: Config,
    journal: Database,
    lease: Lease,
    blobs: BlobStore,
    keys: KeyProvider | None,
) -> Archive:
    """Start the archive, which flushes when the server has the leader's duties."""
    path = config.data_dir / "spool"
    settings = ArchiveSettings(
        pointer=config.pointer,
        flush_interval_s=config.flush_seconds,
        soft_limit_bytes=config.backlog_soft_limit,
        hard_limit_bytes=config.backlog_hard_limit,
        standalone=config.packing == "blob",
        epochs=config.walrus_epochs,
        renew_interval_s=config.walrus_renew_interval,
        renew_margin_epochs=config.walrus_renew_margin,
        given_up=frozenset(config.accept_missing_blobs),
        look_interval_s=LOOK_SECONDS.get(blobs.backend, 60.0),
    )
    try:
        with end_on_refusal(), process.require_usable("spool directory", path):
            archive = Archive(
                journal,
                lease,
                blobs,
                path,
                settings=settings,
                clock_us=lambda: time.time_ns() // 1000,
                keys=keys,
            )
            await archive.start()
    except StoreChangedError as error:
        raise store_changed(config, error) from None
    return archive


def store_changed(config: Config, changed: StoreChangedError) -> process.StartError:
    """Return the error of a start with another kind of store than the journal's."""
    return process.StartError(
        process.EXIT_ARCHIVE,
        f"journal {config.journal_name}: {changed}; use the settings of that "
        "store, or an empty --data-dir",
    )


async def open_lease(config: Config, journal: Database, signer: Signer) -> Lease:
    """Return the leader's lease; refuse settings that differ from the other servers' settings."""
    own_keys = () if config.signing_key is not None else (OWN_KEY,)
    settings = {**config.common, SIGNERS: " ".join((*own_keys, *signer.public))}
    lease = Lease(journal, config.lease_seconds, settings=settings)
    with end_on_refusal():
        await lease.agree()
    return lease


async def start_leader(lease: Lease, duties: Sequence[Duty]) -> Leader:
    """Start the leader's duties, if no other server has them."""
    leader = Leader(lease, duties)
    with end_on_refusal():
        await leader.start()
    return leader


@contextmanager
def end_on_refusal() -> Iterator[None]:
    """End the start in one line if the journal, or the other servers' settings, refuse it."""
    try:
        yield
    except SettingsDifferError as error:
        raise process.ConfigError(str(error)) from None
    except Refusal as refusal:
        problem = f"the archive cannot start: {refusal}"
        raise process.StartError(process.EXIT_ARCHIVE, problem) from None


async def start_search(config: Config, journal: Database, lease: Lease) -> SearchEngine | None:
    """Start search; return `None` if it is switched off.

    An unusable embedder stops the start: otherwise users would unknowingly search by words.
    Unusable MemWal does not stop the start: MemWal may recover, and the log names the problem.
    """
    if not config.search:
        if config.memwal_private_key.get_secret_value() or config.memwal_account_id:
            _log.warning("MemWal is off: this server runs with --no-search")
        return None
    settings = IndexSettings(
        excluded=frozenset(config.search_exclude), cache_bytes=config.search_cache_bytes
    )
    try:
        embedder, memwal = _embedder(config), _memwal(config, journal)
        engine = SearchEngine(journal, lease, settings, embedder=embedder, memwal=memwal)
    except EmbedderError as error:
        raise process.ConfigError(f"--embedder {config.embedder} cannot be used: {error}") from None
    await engine.start()
    return engine


def _embedder(config: Config) -> Embedder | None:
    if config.embedder == "local":
        from ..search.embedders.local import LocalEmbedder

        return LocalEmbedder(config.data_dir / MODELS)
    if config.embedder == "openai":
        from ..search.embedders.openai import OpenAIEmbedder

        return OpenAIEmbedder(
            config.embedder_url,
            config.embedder_model,
            key=config.embedder_key.get_secret_value(),
            dimensions=config.embedder_dimensions,
        )
    return None


def _memwal(
    config: Config, journal: Database
) -> Callable[[Count, Callable[[], bool]], MemWal] | None:
    key, account = config.memwal_private_key.get_secret_value(), config.memwal_account_id
    if not (key and account):
        if key or account:
            variable = "MEMWAL_ACCOUNT_ID" if key else "MEMWAL_PRIVATE_KEY"
            _log.error("MemWal is off: %s is not set; search uses the server's own index", variable)
        return None
    from ..search.memories import MemoryRows
    from ..search.memwal.memwal import MemWal

    settings = MemWalSettings(
        private_key=key,
        account_id=account,
        server_url=config.memwal_server_url,
        namespace=config.memwal_namespace,
        points_per_minute=config.memwal_points_per_minute,
        points_per_hour=config.memwal_points_per_hour,
    )
    return partial(MemWal, MemoryRows(journal), settings, journal.now_us)
