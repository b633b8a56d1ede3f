"""The blob store in a bucket.

An object appears whole or not at all, and is durable once its put is answered. If the store
supports it, an object is put only if it is absent; one that is there is read and compared. Nothing
depends on the condition: the same name means the same bytes.
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
_PART_BYTES = 5 * MIB  # least that S3 takes; the most that one request sends or reads
_PARTS_AT_ONCE = 2  # more would not fit into the time of a request on a slow line
_FIRST_BYTES = 64 * 1024  # read of a blob at least: the index of a pack of a thousand members
_GAP_BYTES = 256 * 1024  # between two spans that one request reads: it costs less than another one
_PAGE = 1000
_YOUNG_S = 600.0  # below MIN_AGE_S of a collection, by more than clocks may differ
_NO_SUCH_RANGE = 416
_NOT_IMPLEMENTED = 501

_log = logging.getLogger(__name__)


class RefusedError(Exception):
    """The place does not exist, or refuses what a server needs; the text is one line."""


class _Object:
    """A blob that is read in few requests, each of which goes on as far as more is expected."""

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
        """Merge reads to come that are close together."""
        self._runs = []
        for begin, size in spans:
            end = begin + size
            if self._runs and begin - self._runs[-1][1] <= _GAP_BYTES:
                begin, last_end = self._runs.pop()
                end = max(end, last_end)
            self._runs.append((begin, end))

    def read(self, offset: int, size: int) -> bytes:
        """Return so many bytes from an offset on, fewer if it ends before."""
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
    """A `BlobStore` in a bucket of `obstore`; all names may have a prefix.

    Sends no request before `prepare`. Without `begin`, a place that has no file `layout` stays so,
    and is refused.
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
        """Check that the place exists and has the right layout; begin an empty one.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`: it does not answer, or not within this time.
            RefusedError: It does not exist, or refuses.
            StoreLostError: It has no layout, and must not begin.
            UnknownLayoutError: It is laid out in another way.
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
                obstore.list_with_delimiter(self._bucket)  # fails if there is no such bucket
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
        """Return the content of the file `layout`; empty if there is none."""
        try:
            return bytes(obstore.get(self._bucket, "layout").bytes())
        except FileNotFoundError:
            return b""

    def _begin(self) -> bytes:
        """Write the file `layout` and return it, unless there are blobs of another layout."""
        prefixes = obstore.list_with_delimiter(self._bucket)["common_prefixes"]
        used = any(len(prefix) == SHARD_CHARACTERS for prefix in prefixes)
        # Read after the listing: whoever puts a blob has written the layout before.
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
            # Damaged, or so old that the `collect` of another server might remove it.
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
        """Put an object if there is none; return whether it is known to be put."""
        if self._conditional:
            try:
                obstore.put(self._bucket, name, pieces, mode="create")
            except (AlreadyExistsError, PreconditionError):
                return False  # or another put was on its way: some stores answer the same then
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
        """Return whether a blob is there, whole, and too young to be collected soon."""
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
                if meta["size"]:  # else it was right: no range of nothing can be had
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
            # Looked at again: it may have been put once more since it was listed.
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
