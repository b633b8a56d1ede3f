"""One call, as layers and servicers see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc

from ..domain.credentials import Scope


@dataclass(slots=True)
class Call:
    """A call of a method.

    Attributes:
        method: Full name, such as "/tuskpoint.v1.CheckpointService/GetCheckpoint".
        context: gRPC's side of it.
        request_streaming: The client sends a stream, and may keep it open for long.
        endless: The answers go on until one side ends the call.
        tenant: Whose data it is about; set by authentication.
        scopes: What its credential allows; set by authentication.
        denied: Why its credential was refused, for telemetry; empty if it was not. One of
            missing, malformed, unknown, expired, revoked, scope.
        draining: Set once the server shuts down; long streams end when they see it.
    """

    method: str
    context: grpc.aio.ServicerContext[Any, Any]
    request_streaming: bool = False
    endless: bool = False
    tenant: str = ""
    scopes: frozenset[Scope] = frozenset()
    denied: str = ""
    draining: asyncio.Event = field(default_factory=asyncio.Event)


Layer = Callable[[Call], AbstractAsyncContextManager[None]]
"""What is done around a call. The first layer is the outermost."""

Behavior = TypeVar("Behavior", bound=Callable[..., Any])

_ENDLESS = "endless"


def endless(behavior: Behavior) -> Behavior:
    """Mark the behavior of a method whose answers go on until one side ends the call.

    It must end by itself once `Call.draining` is set.
    """
    setattr(behavior, _ENDLESS, True)
    return behavior


def is_endless(behavior: Callable[..., Any] | None) -> bool:
    """Tell whether a behavior was marked so."""
    return getattr(behavior, _ENDLESS, False)
