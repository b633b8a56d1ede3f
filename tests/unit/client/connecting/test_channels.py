"""Channels are shared, counted, and dropped in a forked child."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading

import grpc
import pytest

from tuskpoint._transport.channel import Channels, ForkGuard, channel_options
from tuskpoint._transport.settings.security import Place, Tls
from tuskpoint.errors import TuskPointError

A, B = Place("a:1"), Place("b:1")


class FakeChannel:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[FakeChannel]:
    made: list[FakeChannel] = []

    def open_channel(*arguments: object, options: object) -> FakeChannel:
        made.append(FakeChannel())
        return made[-1]

    monkeypatch.setattr(grpc, "insecure_channel", open_channel)
    monkeypatch.setattr(grpc, "secure_channel", open_channel)
    return made


def test_a_target_has_one_channel_until_its_last_lease_ends(opened: list[FakeChannel]) -> None:
    channels = Channels(ForkGuard())
    first, second, other = channels.lease(A), channels.lease(A), channels.lease(B)
    assert first is second is not other
    channels.release(A, first)
    assert [channel.closed for channel in opened] == [0, 0]
    channels.release(A, second)
    assert [channel.closed for channel in opened] == [1, 0]
    assert channels.lease(A) is not first
    assert len(opened) == 3


def test_only_clients_with_the_same_certificates_share_a_channel(
    opened: list[FakeChannel],
) -> None:
    channels = Channels(ForkGuard())
    kinds = [None, Tls(), Tls(b"one ca"), Tls(b"another ca"), Tls(b"one ca", b"cert", b"key")]
    leased = {id(channels.lease(Place("a:1", tls))) for tls in kinds for _ in range(2)}
    assert len(leased) == len(opened) == len(kinds)


def test_threads_that_race_for_a_channel_get_the_same(opened: list[FakeChannel]) -> None:
    channels = Channels(ForkGuard())
    start = threading.Barrier(16)
    leased = []

    def lease() -> None:
        start.wait()
        leased.append(channels.lease(A))

    threads = [threading.Thread(target=lease) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 1
    assert leased[0].leases == 16


def test_a_child_forked_before_the_first_use_may_open_channels(opened: list[FakeChannel]) -> None:
    guard = ForkGuard()
    channels = Channels(guard)
    guard.after_in_child()
    assert channels.lease(A).leases == 1


def test_a_child_forked_later_gets_an_error_and_frees_nothing(opened: list[FakeChannel]) -> None:
    guard = ForkGuard()
    channels = Channels(guard)
    channels.lease(A)
    guard.after_in_child()
    with pytest.raises(TuskPointError, match="forked"):
        channels.lease(A)
    assert [channel.closed for channel in opened] == [0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_an_error_instead_of_hanging() -> None:
    program = """
        import os, sys
        from tuskpoint import Client, TuskPointError
        used = Client("127.0.0.1:1", timeout_s=0.2)
        try:
            used.info()
        except TuskPointError:
            pass
        child = os.fork()
        if child:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        reported = 0
        for client in (used, Client("127.0.0.1:1", timeout_s=0.2)):
            try:
                client.info()
            except TuskPointError as error:
                reported += "spawn" in error.message
        sys.exit(42 if reported == 2 else 1)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], timeout=60, capture_output=True
    )
    assert done.returncode == 42, done.stderr.decode()


def test_only_loopback_goes_around_the_proxy() -> None:
    proxy = ("grpc.enable_http_proxy", 0)
    assert proxy in channel_options("localhost:1")
    assert proxy not in channel_options("agents.example.com:1")
