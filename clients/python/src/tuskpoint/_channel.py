"""The one place that opens channels, and keeps them.

A process has one sync channel per place, shared by all who lease it: the token is shown by each
call, so that callers with different ones may share a channel, and those who trust different
certificates never do. Async callers have one channel per running event loop, because a grpc.aio
channel belongs to the loop it was made in.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import grpc

from ._methods import Method
from ._security import Place, Tls
from ._target import is_loopback
from .errors import TuskPointError

ChannelT = TypeVar("ChannelT")

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


def _open_sync(place: Place) -> grpc.Channel:
    options = channel_options(place.target)
    if place.tls is None:
        return grpc.insecure_channel(place.target, options=options)
    return grpc.secure_channel(place.target, _credentials(place.tls), options=options)


def _open_aio(place: Place) -> grpc.aio.Channel:
    options = channel_options(place.target)
    if place.tls is None:
        return grpc.aio.insecure_channel(place.target, options=options)
    return grpc.aio.secure_channel(place.target, _credentials(place.tls), options=options)


@dataclass(slots=True)
class Opened(Generic[ChannelT]):
    """A channel with the callables made on it.

    Attributes:
        channel: The channel.
        leases: How many hold it.
    """

    channel: ChannelT
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


class SyncChannels:
    """The sync channels of this process, one per place."""

    def __init__(self, guard: ForkGuard) -> None:
        self._guard = guard
        self._lock = threading.Lock()
        self._opened: dict[Place, Opened[grpc.Channel]] = {}
        guard.on_fork(self._forget)

    def lease(self, place: Place) -> Opened[grpc.Channel]:
        """Return the channel for a place, opening it for the first lease.

        Raises:
            TuskPointError: See `ForkGuard.check`.
        """
        self._guard.opening()
        with self._lock:
            opened = self._opened.get(place)
            if opened is None:
                opened = self._opened[place] = Opened(_open_sync(place))
            opened.leases += 1
            return opened

    def release(self, place: Place, opened: Opened[grpc.Channel]) -> None:
        """Give a lease back; the last one closes the channel."""
        with self._lock:
            opened.leases -= 1
            if opened.leases or self._opened.get(place) is not opened:
                return
            del self._opened[place]
        opened.channel.close()

    def _forget(self) -> object:
        kept, self._opened, self._lock = self._opened, {}, threading.Lock()
        return kept


class AioChannels:
    """The channels of one async caller, one per running event loop."""

    def __init__(self, place: Place, guard: ForkGuard) -> None:
        self._place = place
        self._guard = guard
        self._lock = threading.Lock()
        self._opened: dict[asyncio.AbstractEventLoop, Opened[grpc.aio.Channel]] = {}

    def here(self) -> Opened[grpc.aio.Channel]:
        """Return the channel of the running loop, opening it at the first use.

        Channels of loops that were closed meanwhile are let go of.

        Raises:
            RuntimeError: No event loop is running.
            TuskPointError: See `ForkGuard.check`.
        """
        self._guard.check()
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        if opened is not None:
            return opened
        self._guard.opening()
        opened = Opened(_open_aio(self._place))
        with self._lock:
            alive = {one: kept for one, kept in self._opened.items() if not one.is_closed()}
            alive[loop] = opened
            self._opened = alive
        return opened

    async def aclose(self) -> None:
        """Close the channel of the running loop and let go of the others.

        Calls under way on other loops keep their channels until they end.
        """
        with self._lock:
            opened, self._opened = self._opened, {}
        here = opened.get(asyncio.get_running_loop())
        if here is not None:
            await here.channel.close()


GUARD = ForkGuard()
SYNC_CHANNELS = SyncChannels(GUARD)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=GUARD.after_in_child)
