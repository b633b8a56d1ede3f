"""A bucket as the source of an audit: S3, Google Cloud Storage, Azure Blob Storage.

Written from docs/blobs/object-stores.md, because an audit shares no code with the server. `obstore`
is an optional requirement, imported only in this module.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from .sources import BadSource, BlobMissingError, BlobUnreadableError, PackSource, hash_of_id

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_OPTIONS = {
    "s3": {"endpoint": "endpoint", "region": "region"},
    "gs": {"endpoint": "base_url"},
    "az": {"endpoint": "endpoint", "account": "account_name"},
}
_STORES = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_AHEAD_BYTES = 256 * 1024  # least bytes of a read
_CLIENT_ERROR = re.compile(r"status code: (4\d\d)")


class ObjectSource(PackSource):
    """A bucket of the server's `--blobs`.

    Args:
        url: The URL in the server's settings. Credentials come from the environment.

    Raises:
        BadSource: The URL is malformed, or there is no such bucket of a server.
    """

    kind = "bucket"

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        super().__init__(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")
        option_names = _OPTIONS.get(parts.scheme)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        if (
            option_names is None
            or "@" in parts.netloc
            or not parts.netloc
            or query.keys() - option_names.keys()
        ):
            raise BadSource(
                f"{self.places[0]} is not s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or "
                "az://CONTAINER/PREFIX, with the options that the server takes"
            )
        options: dict[str, Any] = {option_names[name]: value for name, value in query.items()}
        try:
            self._bucket: Any = _STORES[parts.scheme](
                parts.netloc,
                prefix=unquote(parts.path).strip("/") or None,
                client_options={"allow_http": query.get("endpoint", "").startswith("http://")},
                retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=20)},
                **options,
            )
        except (BaseError, OSError) as error:
            raise BadSource(f"{self.places[0]} cannot be used: {_line(error)}") from None
        try:
            obstore.get(self._bucket, "layout")
        except FileNotFoundError:
            raise BadSource(
                f"{self.places[0]} is not a bucket of a server: it has no file 'layout'"
            ) from None
        except (BaseError, OSError) as error:
            if _CLIENT_ERROR.search(str(error)):
                raise BadSource(f"{self.places[0]} cannot be read: {_line(error)}") from None

    @contextlib.contextmanager
    def _open(self, blob_id: str) -> Iterator[io.BufferedReader]:
        if hash_of_id(blob_id) is None:
            raise BlobMissingError
        try:
            yield io.BufferedReader(_Ranges(self._bucket, f"{blob_id[:2]}/{blob_id}"), _AHEAD_BYTES)
        except FileNotFoundError:
            raise BlobMissingError from None
        except (BaseError, OSError) as error:
            raise BlobUnreadableError(f"{self.places[0]}: {_line(error)}") from None


class _Ranges(io.RawIOBase):
    """An object as a file: each read is a request for a range."""

    def __init__(self, bucket: Any, name: str) -> None:
        self._bucket = bucket
        self._name = name
        self._size: int = obstore.head(bucket, name)["size"]
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = begin + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        end = min(self._at + len(view), self._size)
        if self._at >= end:
            return 0
        data = bytes(obstore.get_range(self._bucket, self._name, start=self._at, end=end))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def _line(error: Exception) -> str:
    """Return the text of an error in one short line. It has no URLs: they may have credentials."""
    text = re.sub(r"https?://\S+", "(URL)", str(error).partition("\n\nDebug source")[0])
    return " ".join(text.split())[:300]
