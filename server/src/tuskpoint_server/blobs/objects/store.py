"""Blob store in a bucket.

An object appears whole or not at all, and is durable once its put is answered. If the store
supports it, an object is put only if it is absent; an existing object is read and compared.
Correctness does not depend on that condition: the same name means the same bytes.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, ClassVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError

from ...core.errors import Reason, Refusal
from ...core.limits import MIB
from ..api import StoreLimits, StoreLostError, digest_of
from ..packed import (
    LAYOUT,
    SHARD_CHARACTERS,
    PackStore,
    StoredFile,
    UnknownLayoutError,
    check_layout,
    check_whole,
    without_layout,
)
from .failures import trouble

_PUTS_AT_ONCE = 8
# smallest part that S3 accepts; also the most bytes that one request sends or reads
_PART_BYTES = 5 * MIB
_PARTS_AT_ONCE = 2  # concurrent requests: with more, a request would time out on a slow line
# least bytes of the first read of a blob: the index of a pack of a thousand members
_FIRST_BYTES = 64 * 1024
# largest gap between two spans that one request reads: cheaper than a second request
_GAP_BYTES = 256 * 1024
_PAGE = 1000
_YOUNG_S = 600.0  # below MIN_AGE_S of a garbage collection, by more than clocks may differ
_NO_SUCH_RANGE = 416
_NOT_IMPLEMENTED = 501

_log = logging.getLogger(__name__)


class RefusedError(Exception):
    """The place does not exist, or refuses a request that a server needs; the text is one line."""


class _Object:
    """Blob that is read in few requests; each request extends as far as reads are expected."""

    def __init__(
        self, blob_id: str, size: int, data: bytes, age_s: float, fetch: Callable[[int, int], bytes]
    ) -> None:
        self.blob_id = blob_id
        self.size = size
        self.age_s = age_s
        self._fetch = fetch
        self._at, self._data = 0, memoryview(data)
        self._runs: list[tuple[int, int]] = []

    def expect(self, spans: Sequence[tuple[int, int]]) -> None:
        """Merge expected reads that are close together."""
        self._runs = []
        for begin, size in spans:
            end = begin + size
            if self._runs and begin - self._runs[-1][1] <= _GAP_BYTES:
                begin, last_end = self._runs.pop()
                end = max(end, last_end)
            self._runs.append((begin, end))

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from an offset, or fewer if the blob ends before."""
        end = min(offset + size, self.size)
        pieces = []
        while offset < end:
            start = offset - self._at
            if not 0 <= start < len(self._data):
                upto = max(
                    (stop for begin, stop in self._runs if begin <= offset < stop), default=0
                )
                upto = min(max(end, upto), self.size, offset + _PART_BYTES)
                self._at, self._data, start = offset, memoryview(self._fetch(offset, upto)), 0
            piece = self._data[start : start + end - offset]
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
        return b"".join(pieces)


class ObjectStore(PackStore):
    """A `BlobStore` in a bucket, through `obstore`; all names may have a prefix.

    The store sends no request before `prepare`. Without `begin`, a place without a file `layout` is
    refused and stays unchanged.
    """

    limits = StoreLimits(puts_at_once=_PUTS_AT_ONCE)
    threads: ClassVar[int] = 16
    troubles: ClassVar[tuple[type[Exception], ...]] = (
        BaseError,
        OSError,
        RefusedError,
        UnknownLayoutError,
    )

    def __init__(self, bucket: Any, backend: str, *, begin: bool = True) -> None:
        self.backend = backend
        self._begins = begin
        self._bucket = bucket
        self._prepared = False
        self._conditional = True
        super().__init__()

    def prepare(self, within_s: float = 10.0) -> None:
        """Check that the place exists and has the right layout; initialize an empty place.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`: the place does not answer within `within_s`.
            RefusedError: The place does not exist, or refuses a request.
            StoreLostError: The place has no layout, and `begin` is false.
            UnknownLayoutError: The place has another layout.
        """
        try:
            self._pool.submit(self._prepare).result(within_s)
        except TimeoutError:
            problem = f"it gave no answer within {within_s:g} s; check the endpoint and the network"
            raise Refusal(Reason.BLOB_UNAVAILABLE, backend=self.backend, problem=problem) from None

    def _prepare(self) -> None:
        try:
            layout = self._layout()
            if not layout and not self._begins:
                obstore.list_with_delimiter(self._bucket)  # fails if the bucket does not exist
                raise self._lost()
            layout = layout or self._begin()
        except (BaseError, OSError) as error:
            answer = trouble(error)
            if answer.passing:
                raise self._unavailable(error) from error
            raise RefusedError(answer.problem) from error
        check_layout(layout)
        self._prepared = True

    def _layout(self) -> bytes:
        """Return the content of the file `layout`; empty if the file does not exist."""
        try:
            return bytes(obstore.get(self._bucket, "layout").bytes())
        except FileNotFoundError:
            return b""

    def _begin(self) -> bytes:
        """Write `layout` and return its content; refuse a place with blobs of another layout."""
        prefixes = obstore.list_with_delimiter(self._bucket)["common_prefixes"]
        used = any(len(prefix) == SHARD_CHARACTERS for prefix in prefixes)
        # Read `layout` after the listing: a server writes `layout` before it puts a blob.
        layout = self._layout()
        if used and not layout:
            raise without_layout()
        return layout or (self._put_absent("layout", [LAYOUT]) and LAYOUT) or self._layout()

    def _place(self, blob_id: str, pieces: Sequence[bytes]) -> None:
        if not self._prepared:
            self._prepare()
        name = _name(blob_id)
        if sum(map(len, pieces)) <= _PART_BYTES:
            if self._put_absent(name, pieces) or self._is_kept(blob_id):
                return
            # Put again: the object is damaged, or so old that the `collect` of another server might
            # remove it.
            obstore.put(self._bucket, name, pieces, use_multipart=False)
            return
        obstore.put(
            self._bucket,
            name,
            iter(pieces),
            use_multipart=True,
            chunk_size=_PART_BYTES,
            max_concurrency=_PARTS_AT_ONCE,
        )

    def _put_absent(self, name: str, pieces: Sequence[bytes]) -> bool:
        """Put an object if it is absent; return whether the object is certainly stored."""
        if self._conditional:
            try:
                obstore.put(self._bucket, name, pieces, mode="create")
            except (AlreadyExistsError, PreconditionError):
                # or a concurrent put of the object: some stores answer that in the same way
                return False
            except BaseError as error:
                unknown = isinstance(error, NotSupportedError)
                if not unknown and trouble(error).status != _NOT_IMPLEMENTED:
                    raise
            else:
                return True
            self._conditional = False
            _log.warning(
                "the bucket does not support conditional puts (If-None-Match); objects are put "
                "without a condition, which is safe: their names are hashes of their bytes"
            )
        obstore.put(self._bucket, name, pieces, use_multipart=False)
        return True

    def _is_kept(self, blob_id: str) -> bool:
        """Return whether the blob exists, is whole, and is too young to be collected soon."""
        try:
            with self._open(blob_id, _PART_BYTES) as blob:
                check_whole(blob)
                return blob.age_s < _YOUNG_S
        except StoreLostError:
            raise
        except (FileNotFoundError, Refusal):
            return False

    @contextlib.contextmanager
    def _open(self, blob_id: str, likely: int) -> Iterator[_Object]:
        name = _name(blob_id)
        first = min(max(likely, _FIRST_BYTES), _PART_BYTES)
        try:
            try:
                result = obstore.get(self._bucket, name, options={"range": (0, first)})
                meta, data = result.meta, bytes(result.bytes())
            except BaseError as error:
                answer = trouble(error)
                if answer.passing or answer.status not in (0, _NO_SUCH_RANGE):
                    raise
                meta, data = obstore.head(self._bucket, name), b""
                # for an empty blob the error is expected: an empty range cannot be read
                if meta["size"]:
                    raise
            yield _Object(
                blob_id,
                meta["size"],
                data,
                _age(meta["last_modified"]),
                lambda begin, end: bytes(
                    obstore.get_range(self._bucket, name, start=begin, end=end)
                ),
            )
        except FileNotFoundError:
            # A missing or another bucket proves nothing about stored blobs.
            if not self._layout():
                raise self._lost() from None
            raise

    def _lost(self) -> StoreLostError:
        problem = "it has no file 'layout'; check the names of bucket and prefix"
        return StoreLostError(self.backend, problem)

    def _remove(self, blob_id: str, min_age_s: float) -> bool:
        if digest_of(blob_id) is None:
            return False
        try:
            # Check the age again: the blob may have been put once more since it was listed.
            if _age(obstore.head(self._bucket, _name(blob_id))["last_modified"]) < min_age_s:
                return False
            obstore.delete(self._bucket, _name(blob_id))
        except FileNotFoundError:
            return False
        return True

    def _pages(self) -> Iterator[list[StoredFile]]:
        for page in obstore.list(self._bucket, chunk_size=_PAGE):
            yield [
                StoredFile(blob_id, entry["size"], _age(entry["last_modified"]))
                for entry in page
                if digest_of(blob_id := entry["path"].rpartition("/")[2]) is not None
                and entry["path"] == _name(blob_id)
            ]

    def _problem(self, error: Exception) -> str:
        if isinstance(error, BaseError | OSError):
            return trouble(error).problem
        return str(error)


def _age(modified: datetime) -> float:
    return max(0.0, time.time() - modified.timestamp())


def _name(blob_id: str) -> str:
    return f"{blob_id[:SHARD_CHARACTERS]}/{blob_id}"
