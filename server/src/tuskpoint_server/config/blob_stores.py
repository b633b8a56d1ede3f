"""Opens the configured blob store.

The libraries for buckets and Walrus are imported when such a store is opened: they load slowly.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..blobs.api import BlobStore, StoreLostError
from ..blobs.cache import CachedStore
from ..blobs.directory import DirectoryStore
from ..blobs.packed import UnknownLayoutError
from ..core import process
from ..core.errors import Refusal
from ..keys.local import check_private
from .settings import Config

if TYPE_CHECKING:  # it loads an HTTP client
    pass

_log = logging.getLogger(__name__)


def open_blobs(config: Config, holding: Sequence[str] | None = ()) -> BlobStore:
    """Open the blob store, behind the cache if one is configured.

    Args:
        config: The settings.
        holding: Blob IDs that the store must have. Unless this is empty, nothing is created in an
            empty directory or bucket; `None`: blobs with unknown IDs.
    """
    if config.walrus_aggregator_url:
        store = _walrus(config)
    else:
        begin = holding is not None and not holding
        try:
            store = _bucket(config, begin) if config.bucket else _directory(config, begin)
        except StoreLostError as error:
            place = config.bucket or f"directory {config.blob_directory}"
            raise process.StartError(
                process.EXIT_ARCHIVE,
                f"blob store {place} cannot be used: {error.metadata['problem']}"
                + (or_accept("missing-blobs", holding) if holding else ""),
            ) from None
    if not config.cache_bytes:
        return store
    path = config.data_dir / "cache"
    with process.require_usable("cache directory", path):
        return CachedStore(store, path, config.cache_bytes)


def or_accept(what: str, blob_ids: Sequence[str]) -> str:
    """Return the end of a line: the flags that give up the content of catalogs."""
    flags = " ".join(f"--accept-{what}={blob_id}" for blob_id in blob_ids)
    return f"; to start without it, add {flags} (docs/servers/recovery.md says what you give up)"


def _directory(config: Config, begin: bool) -> BlobStore:
    try:
        with process.require_usable("blob directory", config.blob_directory):
            return DirectoryStore(config.blob_directory, begin=begin)
    except UnknownLayoutError as error:
        raise process.StartError(
            process.EXIT_DIRECTORY,
            f"blob directory {config.blob_directory} cannot be used: {error}; choose another "
            "--blob-dir",
        ) from None


def _bucket(config: Config, begin: bool) -> BlobStore:
    """Open a bucket. If the bucket does not answer, a server that never stored anything stops.

    Any other server serves from its journal; the next put checks the bucket first.
    """
    from ..blobs.objects.places import open_bucket, parse_place

    try:
        place = parse_place(config.bucket)
        from ..blobs.objects.store import ObjectStore, RefusedError

        store = ObjectStore(open_bucket(place), place.scheme, begin=begin)
    except ValueError as error:
        raise process.ConfigError(f"--blobs cannot be used: {error}") from None
    except ImportError as error:
        raise process.ConfigError(
            f"--blobs {place} needs {error.name}, which is not installed; pip install "
            "'tuskpoint-server[objects]'"
        ) from None
    try:
        store.prepare()
    except StoreLostError:
        raise
    except (Refusal, RefusedError, UnknownLayoutError) as error:
        problem = error.metadata["problem"] if isinstance(error, Refusal) else str(error)
        if not isinstance(error, Refusal) or not config.pointer.exists():
            raise process.StartError(
                process.EXIT_ARCHIVE, f"blob store {place} cannot be used: {problem}"
            ) from None
        _log.warning("blob store %s cannot be used now: %s", place, problem)
    return store


def _walrus(config: Config) -> BlobStore:
    from ..blobs.walrus.settings import WalrusSettings
    from ..blobs.walrus.store import WalrusStore

    try:
        return WalrusStore(
            WalrusSettings(
                aggregators=config.walrus_aggregator_url,
                publishers=config.walrus_publisher_url,
                epochs=config.walrus_epochs,
                epoch_s=config.walrus_epoch_seconds,
                send_object_to=config.walrus_send_object_to,
                jwt_secret=_jwt_secret(config.walrus_jwt_secret_file),
                jwt_algorithm=config.walrus_jwt_algorithm,
                jwt_lifetime_s=config.walrus_jwt_lifetime,
                put_timeout_s=config.walrus_put_timeout,
                puts_at_once=config.walrus_puts_at_once,
                max_put_bytes=config.walrus_max_put_bytes,
            )
        )
    except (ValueError, process.ConfigError) as error:
        raise process.ConfigError(f"Walrus settings cannot be used: {error}") from None


def _jwt_secret(file: Path | None) -> bytes:
    if file is None:
        return b""
    flag = "--walrus-jwt-secret-file"
    content = process.read_bytes(flag, file)
    try:
        check_private(file)
        text = content.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise process.ConfigError(f"{flag} {file} cannot be read: it is not text") from None
    except ValueError as error:
        raise process.ConfigError(f"{flag} {file} cannot be used: {error}") from None
    if not text:
        raise process.ConfigError(f"{flag} {file} is empty")
    from ..blobs.walrus.settings import secret_bytes

    return secret_bytes(text)
