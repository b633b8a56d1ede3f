"""The one place that opens and keeps channels.

A process has one channel for each address of a place, shared by all leases. Each call carries its
own token, so clients with different tokens may share a channel; clients that trust different
certificates never do. Channels are those of gRPC's blocking stack, for threads and event loops
alike (see `loops`).

gRPC spreads the calls of a channel over the addresses of a DNS name. It has no channel for a list
of names: those of a list have a channel each, because gRPC then resolves each name again when its
address changes, and checks it against the certificate of its server.
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

    Keepalive finds a server that went away without saying so while a stream is open; it is
    slower than the 5 seconds below which gRPC servers commonly object. Reconnecting starts fast
    and is bounded, so that a restarted server is found within seconds.

    Args:
        address: An address of a target.
        has_others: Whether other servers can answer in place of one that does not.
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
        # A call waits for a server that accepts no connection, but not for long.
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
    """A channel with the callables made on it, and whether its server is gone.

    Attributes:
        channel: The channel.
        reopen: Opens another channel to it, with a connection of its own.
        has_others: Whether the place has other servers.
        is_gone: Whether it has not answered since a call failed, or since the channel was opened.
    """

    channel: grpc.Channel
    reopen: Callable[[], grpc.Channel]
    has_others: bool = False
    is_gone: bool = False
    _is_asked: bool = False
    _callables: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def callable(self, shape: str, method: Method[Any, Any]) -> Callable[..., Any]:
        """Return the channel's callable for a method, made at the first use.

        Args:
            shape: Which kind the channel makes, such as "unary_unary".
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
        """Yield a call that any server answers, also one that has another service.

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
        """Take the failure of a call: after `UNAVAILABLE` the server may be gone."""
        if (
            self.has_others
            and isinstance(error, grpc.RpcError)
            and error.code() is grpc.StatusCode.UNAVAILABLE
        ):
            self.leave_out()

    def leave_out(self) -> None:
        """Count the server as gone until it answers a call that waits for a connection."""
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
            # Any other answer shows that the server is there.
            self._is_asked = self.is_gone = False


class OpenChannels:
    """The channels of a place, one for each address.

    Args:
        place: Where they lead to.
        answered: The targets that answered this process before.

    Attributes:
        leases: Number of its holders.
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
        # Processes that start together begin with different servers.
        self._turns = count(random.randrange(len(targets)))  # noqa: S311 - guards nothing
        for server in self._servers:
            if server.has_others:
                server.leave_out()

    def next(self) -> Server:
        """Return the server whose turn it is; one that is gone has none while others are there."""
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
    """The channels of this process, by their places."""

    def __init__(self, guard: ForkGuard) -> None:
        self._guard = guard
        self._lock = threading.Lock()
        self._opened: dict[Place, OpenChannels] = {}
        self._answered: set[str] = set()
        guard.on_fork(self._forget)

    def lease(self, place: Place) -> OpenChannels:
        """Return the channels of a place; the first lease opens them.

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
        """Release a lease; the last one closes the channels."""
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
