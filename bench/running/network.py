"""A network with a delay between agents and what they call: netem, or a relay in its place."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.running.servers import running_relay

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET, unshare(2)
_SECONDS = 30


class NoDelayError(Exception):
    """This machine cannot delay packets; the message says why."""


Through = Callable[[str], str]
"""Returns the address that leads to an address over the network."""


@contextmanager
def delayed_loopback(seconds: float) -> Iterator[None]:
    """Give the calling thread, and all processes that it starts, a loopback with a delay.

    A new network namespace, with netem as the queue, delays each packet by the
    seconds, so a round trip takes twice as long.

    Raises:
        NoDelayError: The rights or the kernel do not allow it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    except OSError as error:
        raise NoDelayError(f"no network namespaces: {error.strerror}") from None
    try:
        if libc.unshare(_NEW_NETWORK):
            raise NoDelayError(f"no new network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            _run("ip", "link", "set", "lo", "up")
            _run(
                "tc",
                "qdisc",
                "add",
                "dev",
                "lo",
                "root",
                "netem",
                "delay",
                f"{seconds * 1e6:.0f}us",
            )
            yield
        finally:
            if libc.setns(before, _NEW_NETWORK):
                raise OSError(ctypes.get_errno(), "the network namespace could not be left")
    finally:
        os.close(before)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except FileNotFoundError:
        raise NoDelayError(f"`{command[0]}` is not installed") from None
    if done.returncode:
        raise NoDelayError(f"`{' '.join(command)}`: {done.stderr.strip()}")


@contextmanager
def delayed(seconds: float, folder: Path) -> Iterator[tuple[str, Through]]:
    """Delay the traffic between agents and servers that the caller starts inside the context.

    Yields:
        The method of the delay, in words, and a function from address to delayed address.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(delayed_loopback(seconds))
        except NoDelayError as reason:
            print(f"netem is left out, a relay takes its place: {reason}", flush=True)
            how = (
                "by a TCP relay, which takes processor time of the same cores; netem is missing "
                f"here: {reason}"
            )

            def relayed(address: str) -> str:
                return stack.enter_context(running_relay(folder, address, seconds))

            yield how, relayed
        else:
            yield "by netem, on the loopback of a network namespace", lambda address: address
