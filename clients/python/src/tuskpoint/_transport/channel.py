"""The only module that opens and keeps channels.

A process has one channel for each address of a place, shared by all leases. Each call carries its
own token, so clients with different tokens may share a channel. Clients that trust different
certificates never share a channel. Channels belong to gRPC's blocking stack, for threads and for
event loops (see `loops`).

gRPC spreads the calls of a channel over the addresses of a DNS name. It has no channel for a list
of names. Each name of a list has its own channel, because gRPC then resolves the name again when
its address changes, and checks the name against the certificate of its server.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import grpc

from ..errors import TuskPointError
from .methods import Method
from .settings.security import Place
from .settings.target import addresses, is_loopback, is_several

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
_USER_AGENT = "tuskpoint-python"
_HEALTH = "/grpc.health.v1.Health/Check"


def channel_options(address: str, *, has_others: bool = False) -> list[tuple[str, int | str]]:
    """Return the gRPC channel arguments for an address.

    Keepalive detects a server that disappeared without closing an open stream. The interval is
    longer than 5 seconds, because gRPC servers commonly refuse shorter intervals. Reconnecting
    starts fast and its delay is bounded, so that a restarted server is found within seconds.

    Args:
        address: An address of a target.
        has_others: Whether other servers can answer in place of a server that does not answer.
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
    if has_others:
        options.append(("grpc.lb_policy_name", "round_robin"))
        # A call waits for a server that accepts no connection, but only a short time.
        options.append(("grpc.min_reconnect_backoff_ms", 5_000))
    if is_loopback(address):
        options.append(("grpc.enable_http_proxy", 0))
    return options


def _open(place: Place, address: str, *, alone: bool = False) -> grpc.Channel:
    options = channel_options(address, has_others=is_several(place.target))
    if alone:
        options.append(("grpc.use_local_subchannel_pool", 1))
    if place.tls is None:
        return grpc.insecure_channel(address, options=options)
    tls = grpc.ssl_channel_credentials(place.tls.roots, place.tls.key, place.tls.certificate)
    return grpc.secure_channel(address, tls, options=options)


@dataclass(slots=True)
class Server:
    """A channel with its callables, and whether its server is gone.

    Attributes:
        channel: The channel.
        reopen: Opens another channel to the server, with a separate connection.
        has_others: Whether the place has other servers.
        is_gone: Whether the server has not answered after the last failed call, or after the
            channel was opened.
    """

    channel: grpc.Channel
    reopen: Callable[[], grpc.Channel]
    has_others: bool = False
    is_gone: bool = False
    _is_asked: bool = False
    _callables: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def callable(self, shape: str, method: Method[Any, Any]) -> Callable[..., Any]:
        """Return the channel's callable for a method. The first use creates the callable.

        Args:
            shape: Kind of the callable, such as "unary_unary".
            method: The method.
        """
        function = self._callables.get(method.path)
        if function is None:
            make = getattr(self.channel, shape)
            function = make(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.answer.FromString,
            )
            self._callables[method.path] = function
        return function

    @contextmanager
    def asking(self, *, reconnects: bool) -> Iterator[Callable[..., Any]]:
        """Yield a call that any server answers, even a server with other services.

        Args:
            reconnects: Whether to connect now. gRPC waits up to 2 seconds before it connects again.
        """
        if not reconnects:
            yield self.channel.unary_unary(_HEALTH)
            return
        channel = self.reopen()
        try:
            yield channel.unary_unary(_HEALTH)
        finally:
            channel.close()

    def failed(self, error: Exception) -> None:
        """Record the failure of a call: after `UNAVAILABLE` the server may be gone."""
        if (
            self.has_others
            and isinstance(error, grpc.RpcError)
            and error.code() is grpc.StatusCode.UNAVAILABLE
        ):
            self.leave_out()

    def leave_out(self) -> None:
        """Treat the server as gone until it answers a call that waits for a connection."""
        if not self._is_asked:
            self._is_asked = self.is_gone = True
            self._ask()

    def _ask(self) -> None:
        health: Any = self.channel.unary_unary(_HEALTH)
        try:
            health.future(b"", wait_for_ready=True).add_done_callback(self._take)
        except ValueError:
            pass  # the channel was closed meanwhile

    def _take(self, call: Any) -> None:
        if call.code() is grpc.StatusCode.UNAVAILABLE:
            self._ask()
        else:
            # Any other answer shows that the server is running.
            self._is_asked = self.is_gone = False


class OpenChannels:
    """The channels of a place, one for each address.

    Args:
        place: Target and TLS settings of the channels.
        answered: Targets that have answered this process.

    Attributes:
        leases: Number of leases of these channels.
        has_answered: Whether a server of the target ever answered this process.
    """

    def __init__(self, place: Place, answered: set[str]) -> None:
        self.leases = 0
        self.has_answered = place.target in answered
        self._target, self._answered = place.target, answered
        targets = addresses(place.target)
        self._servers = [
            Server(
                _open(place, target),
                partial(_open, place, target, alone=True),
                has_others=len(targets) > 1,
            )
            for target in targets
        ]
        # Processes that start together start with different servers.
        self._turns = count(random.randrange(len(targets)))  # noqa: S311 - guards nothing
        for server in self._servers:
            if server.has_others:
                server.leave_out()

    def next(self) -> Server:
        """Return the next server in turn. Skip servers that are gone while others are available."""
        servers = [server for server in self._servers if not server.is_gone] or self._servers
        return servers[next(self._turns) % len(servers)]

    def note_answer(self) -> None:
        """Note that a server of the target answered."""
        self.has_answered = True
        self._answered.add(self._target)

    def close(self) -> None:
        """Close the channels."""
        for server in self._servers:
            server.channel.close()


class ForkGuard:
    """Prevents the use of gRPC in a forked child, where gRPC hangs.

    The child keeps the open objects of the parent, never uses them and never frees them: freeing
    them would wait for threads that a fork does not copy.
    """

    def __init__(self) -> None:
        self._used = False
        self._forked = False
        self._kept: list[object] = []
        self._forget: list[Callable[[], object]] = []

    def on_fork(self, forget: Callable[[], object]) -> None:
        """Function to call in a forked child. It returns the objects to keep."""
        self._forget.append(forget)

    def opening(self) -> None:
        """Note that a channel is about to be opened.

        Raises:
            TuskPointError: See `check`.
        """
        self.check()
        self._used = True

    def check(self) -> None:
        """Raise if this process must not use gRPC.

        Raises:
            TuskPointError: The process was forked from a process that had opened a channel.
        """
        if self._forked:
            raise TuskPointError(
                "this process was forked after its parent had used TuskPoint, and gRPC does not "
                "work across fork(): start workers with the 'spawn' or 'forkserver' method, or "
                "use TuskPoint only after forking",
                status="FAILED_PRECONDITION",
            )

    def after_in_child(self) -> None:
        """Forget the channels that the parent had open."""
        if self._used:
            self._forked = True
            self._kept.extend(forget() for forget in self._forget)


class Channels:
    """Channels of this process, by place."""

    def __init__(self, guard: ForkGuard) -> None:
        self._guard = guard
        self._lock = threading.Lock()
        self._opened: dict[Place, OpenChannels] = {}
        self._answered: set[str] = set()
        guard.on_fork(self._forget)

    def lease(self, place: Place) -> OpenChannels:
        """Return the channels of a place. The first lease opens the channels.

        Raises:
            TuskPointError: See `ForkGuard.check`.
        """
        self._guard.opening()
        with self._lock:
            opened = self._opened.get(place)
            if opened is None:
                opened = self._opened[place] = OpenChannels(place, self._answered)
            opened.leases += 1
            return opened

    def release(self, place: Place, opened: OpenChannels) -> None:
        """Release a lease. The release of the last lease closes the channels."""
        with self._lock:
            opened.leases -= 1
            if opened.leases or self._opened.get(place) is not opened:
                return
            del self._opened[place]
        opened.close()

    def _forget(self) -> object:
        channels, self._opened, self._lock = self._opened, {}, threading.Lock()
        return channels


GUARD = ForkGuard()
CHANNELS = Channels(GUARD)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=GUARD.after_in_child)
