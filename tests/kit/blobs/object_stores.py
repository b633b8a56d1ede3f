"""Buckets for the tests of the blob store in a bucket.

`TUSKPOINT_TEST_BUCKETS` names further buckets for the same tests, as URLs of `--blobs` with white
space between them; objects below the prefix are removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import obstore
from obstore.store import LocalStore, MemoryStore

from tests.kit.blobs.member_file import replaced
from tests.kit.blobs.s3_server import ENVIRONMENT, S3Server
from tuskpoint_server.blobs.objects.places import open_bucket, parse_place

BUCKETS = (
    "s3",
    "s3-that-ignores-conditions",
    "gs",
    "objects-in-memory",
    "objects-in-files",
    *os.environ.get("TUSKPOINT_TEST_BUCKETS", "").split(),
)
_CONDITIONS = {"s3": "kept", "s3-that-ignores-conditions": "ignored", "gs": "kept"}


@contextmanager
def bucket(kind: str, directory: Path) -> Iterator[Any]:
    """Create an empty bucket of a kind of `BUCKETS`, which is removed afterwards."""
    if kind == "objects-in-memory":
        yield MemoryStore()
    elif kind == "objects-in-files":
        (directory / "objects").mkdir()
        yield LocalStore(directory / "objects")
    elif kind in _CONDITIONS:
        with S3Server() as server, mock.patch.dict(os.environ, ENVIRONMENT):
            server.conditional, server.tokens = _CONDITIONS[kind], kind == "gs"
            yield open_bucket(parse_place(server.url("a/prefix")))
    else:
        objects = open_bucket(parse_place(kind))
        _empty(objects)
        yield objects
        _empty(objects)


def name_of(blob_id: str) -> str:
    return f"{blob_id[:2]}/{blob_id}"


def overwrite(objects: Any, location: Any, data: bytes) -> None:
    """Replace the bytes at a location, behind the store's back."""
    name = name_of(location.blob_id)
    whole = bytes(obstore.get(objects, name).bytes())
    obstore.put(objects, name, replaced(whole, location.identifier, data), use_multipart=False)


def remove(objects: Any, location: Any) -> None:
    """Remove the blob at a location, behind the store's back."""
    obstore.delete(objects, name_of(location.blob_id))


def _empty(objects: Any) -> None:
    for page in obstore.list(objects):
        for entry in page:
            obstore.delete(objects, entry["path"])
