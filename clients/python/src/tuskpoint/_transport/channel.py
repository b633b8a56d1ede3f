"""The one place that opens and keeps channels.

A process has one channel per place, shared by all leases. Each call carries its own token, so
clients with different tokens may share a channel; clients that trust different certificates never
do. Channels are those of gRPC's blocking stack, for threads and event loops alike (see `loops`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from ..errors import TuskPointError
from .methods import Method
from .settings.security import Place, Tls
from .settings.target import is_loopback

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
_USER_AGENT = "tuskpoint-python"


def channel_options(target: str) -> list[tuple[str, int | str]]:
    """Return the gRPC channel arguments for a target.

    Keepalive finds a server that went away without saying so while a stream is open; it is
    slower than the 5 seconds below which gRPC servers commonly object. Reconnecting starts fast
    and is bounded, so that a restarted server is found within seconds.
    """
    options: list[tuple[str, int | str]] = [
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.primary_user_agent", _USER_AGENT),
    ]
    if is_loopback(target):
        options.append(("grpc.enable_http_proxy", 0))
    return options


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(tls.roots, tls.key, tls.certificate)


def _open(place: Place) -> grpc.Channel:
    options = channel_options(place.target)
    if place.tls is None:
        return grpc.insecure_channel(place.target, options=options)
    return grpc.secure_channel(place.target, _credentials(place.tls), options=options)


@dataclass(slots=True)
class Opened:
    """A channel with the callables made on it.

    Attributes:
        channel: The channel.
        leases: Number of its holders.
    """

    channel: grpc.Channel
    leases: int = 0
    _callables: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def callable(self, shape: str, method: Method[Any, Any]) -> Callable[..., Any]:
        """Return the channel's callable for a method, made at the first use.

        Args:
            shape: Which kind the channel makes, such as "unary_unary".
            method: The method.
        """
        found = self._callables.get(method.path)
        if found is None:
            make = getattr(self.channel, shape)
            found = make(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.answer.FromString,
            )
            self._callables[method.path] = found
        return found


class ForkGuard:
    """Keeps a forked child from using gRPC, which hangs there.

    What the parent had open is kept in the child, never used and never freed: freeing it would
    wait for threads that a fork does not copy.
    """

    def __init__(self) -> None:
        self._used = False
        self._forked = False
        self._kept: list[object] = []
        self._forget: list[Callable[[], object]] = []

    def on_fork(self, forget: Callable[[], object]) -> None:
        """Call this in a forked child; it returns what is to be kept."""
        self._forget.append(forget)

    def opening(self) -> None:
        """Note that a channel is about to be opened.

        Raises:
            TuskPointError: See `check`.
        """
        self.check()
        self._used = True

    def check(self) -> None:
        """Pass if this process may use gRPC.

        Raises:
            TuskPointError: It was forked from one that had opened a channel.
        """
        if self._forked:
            raise TuskPointError(
                "this process was forked after its parent had used TuskPoint, and gRPC does not "
                "work across fork(): start workers with the 'spawn' or 'forkserver' method, or "
                "use TuskPoint only after forking",
                status="FAILED_PRECONDITION",
            )

    def after_in_child(self) -> None:
        """Drop what the parent had open."""
        if self._used:
            self._forked = True
            self._kept.extend(forget() for forget in self._forget)


class Channels:
    """The channels of this process, one per place."""

    def __init__(self, guard: ForkGuard) -> None:
        self._guard = guard
        self._lock = threading.Lock()
        self._opened: dict[Place, Opened] = {}
        guard.on_fork(self._forget)

    def lease(self, place: Place) -> Opened:
        """Return the channel for a place; the first lease opens it.

        Raises:
            TuskPointError: See `ForkGuard.check`.
        """
        self._guard.opening()
        with self._lock:
            opened = self._opened.get(place)
            if opened is None:
                opened = self._opened[place] = Opened(_open(place))
            opened.leases += 1
            return opened

    def release(self, place: Place, opened: Opened) -> None:
        """Release a lease; the last one closes the channel."""
        with self._lock:
            opened.leases -= 1
            if opened.leases or self._opened.get(place) is not opened:
                return
            del self._opened[place]
        opened.channel.close()

    def _forget(self) -> object:
        kept, self._opened, self._lock = self._opened, {}, threading.Lock()
        return kept


GUARD = ForkGuard()
CHANNELS = Channels(GUARD)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=GUARD.after_in_child)
