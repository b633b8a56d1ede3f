"""Fixtures of the attacks on running servers: the fixtures of the other tests with real servers."""

from tests.integration.conftest import (
    admin,
    checkpoints,
    config,
    grpc_channel,
    listed_answers,
    server,
    threads,
)

__all__ = [
    "admin",
    "checkpoints",
    "config",
    "grpc_channel",
    "listed_answers",
    "server",
    "threads",
]
