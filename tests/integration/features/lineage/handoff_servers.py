"""Servers in this process that hand off to one another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from tests.integration.features.lineage.handoff_kit import Side
from tests.kit.databases import journal_of
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config


@asynccontextmanager
async def side(data_dir: Path, **settings: Any) -> AsyncIterator[Side]:
    """Run a server that flushes when a test asks for a flush."""
    settings.setdefault("flush_interval", 3600)
    config = Config(
        listen="127.0.0.1:0", data_dir=data_dir, journal=journal_of(data_dir), **settings
    )
    async with (
        serve.running_server(config) as server,
        grpc.aio.insecure_channel(
            f"127.0.0.1:{server.port}",
            options=[("grpc.max_receive_message_length", 8 * 1024 * 1024)],
        ) as channel,
    ):
        yield Side.at(channel, data_dir, config.blob_directory)
