"""The files of the contract that define services."""

from __future__ import annotations

from tuskpoint.v1 import (
    admin_service_pb2,
    checkpoint_service_pb2,
    effect_service_pb2,
    handoff_service_pb2,
    history_service_pb2,
    lease_service_pb2,
    search_service_pb2,
    snapshot_service_pb2,
    store_service_pb2,
    thread_service_pb2,
    webhook_service_pb2,
)

FILES = (
    admin_service_pb2,
    checkpoint_service_pb2,
    effect_service_pb2,
    handoff_service_pb2,
    history_service_pb2,
    lease_service_pb2,
    search_service_pb2,
    snapshot_service_pb2,
    store_service_pb2,
    thread_service_pb2,
    webhook_service_pb2,
)
