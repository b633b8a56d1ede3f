"""Walrus peers that fail on demand, servers of buckets, and stores on them and in directories."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.kit.blobs.s3_server import ENVIRONMENT, S3Server
from tests.kit.blobs.walrus_stores import PeerKit
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.blobs.objects import places


@pytest.fixture(scope="module", autouse=True)
def journals() -> None:
    """Open no journal in these tests."""


@pytest.fixture
async def kit() -> AsyncIterator[PeerKit]:
    kit = PeerKit()
    yield kit
    await kit.end()


@pytest.fixture
def s3_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set only the credentials of the test's server, and retry without long pauses."""
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    pauses = {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=5)}
    monkeypatch.setitem(places.RETRIES, "backoff", {**pauses, "base": 2})


@pytest.fixture
def server(s3_credentials: None) -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
async def blobs(root: Path) -> AsyncIterator[DirectoryStore]:
    store = DirectoryStore(root)
    yield store
    await store.close()
