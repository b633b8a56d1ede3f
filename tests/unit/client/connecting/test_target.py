"""Targets are parsed as people write them; a malformed target is refused with an example."""

from __future__ import annotations

from typing import Any

import pytest

from tuskpoint import AsyncClient, Client, InvalidRequest
from tuskpoint._transport.settings.options import Options
from tuskpoint._transport.settings.target import host_and_port, is_loopback, normalize_target


@pytest.mark.parametrize(
    "target",
    [
        "127.0.0.1:7390",
        "localhost:1",
        "agents.example.com:65535",
        "[::1]:7390",
        "dns:///agents.example.com:7390",
        "dns:agents.example.com:7390",
        "unix:/run/tuskpoint.sock",
        "ipv4:10.0.0.1:7390",
        "one.example:7390,[::1]:7391",
    ],
)
def test_a_target_stays_as_it_is(target: str) -> None:
    assert normalize_target(target) == target
    assert normalize_target(f" {target}\n") == target


@pytest.mark.parametrize("target", ["10.0.0.1:1, 10.0.0.2:2", "ipv4:10.0.0.1:1,10.0.0.2:2"])
def test_a_list_is_read_without_spaces_and_scheme(target: str) -> None:
    assert normalize_target(target) == "10.0.0.1:1,10.0.0.2:2"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:7390", "https://h:1/", "grpc://h:1", "HTTP://h:1"]
)
def test_a_url_is_refused_with_the_target_it_means(url: str) -> None:
    with pytest.raises(InvalidRequest, match="try '") as caught:
        normalize_target(url)
    assert url.split("//")[1].rstrip("/") in caught.value.message


@pytest.mark.parametrize(
    "text",
    ["", "localhost", "localhost:", ":7390", "h:0", "h:65536", "h:port", "::1:7390", "a b:1",
     "h:1/path", "u@h:1", "dns:", "dns:///", "ftp://h:1", "\x00:1\n:2",
     "h:1,,g:2", "h:1,", "h:1,g", "dns:///h:1,g:2", "h:1,dns:///g:2",
     "ipv4:1.1.1.1:1,ipv6:[::1]:2"],
)  # fmt: skip
def test_an_invalid_target_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"127\.0\.0\.1:7390") as caught:
        normalize_target(text)
    assert caught.value.reason == "INVALID_FIELD"


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize("target", ["http://127.0.0.1:7390", 7390, b"127.0.0.1:7390"])
def test_a_bad_target_is_refused_at_construction(
    client: type[Client] | type[AsyncClient], target: Any
) -> None:
    with pytest.raises(InvalidRequest, match="is not a target"):
        client(target)


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "3"])
def test_no_time_at_all_is_refused_at_construction(
    client: type[Client] | type[AsyncClient], seconds: Any
) -> None:
    with pytest.raises(InvalidRequest, match="timeout_s"):
        client("127.0.0.1:7390", timeout_s=seconds)


def test_the_target_comes_from_the_argument_then_the_environment_then_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TUSKPOINT_TARGET", "h:1")
    assert Options.of("g:2").target == "g:2"
    assert Options.of().target == "h:1"
    assert Client().target == AsyncClient().target == "h:1"
    monkeypatch.setenv("TUSKPOINT_TARGET", "")
    assert Options.of().target == "127.0.0.1:7390"
    with pytest.raises(InvalidRequest):
        Options.of("")


@pytest.mark.parametrize(
    ("target", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("LOCALHOST:1", True),
        ("[::1]:1", True),
        ("unix:/x", True),
        ("dns:///localhost:1", True),
        ("dns:localhost:1", True),
        ("ipv4:127.0.0.1:1", True),
        ("unix:/x,y", True),
        ("127.0.0.1:1,localhost:2", True),
        ("127.0.0.1:1,h:2", False),
        ("10.0.0.1:1", False),
        ("localhost.example.com:1", False),
        ("dns:///h:1", False),
    ],
)
def test_loopback_is_known(target: str, loopback: bool) -> None:
    assert is_loopback(target) == loopback


def test_telemetry_gets_host_and_port() -> None:
    assert host_and_port("[::1]:7390") == ("::1", 7390)
    assert host_and_port("dns:///h:1") == host_and_port("dns:h:1") == ("h", 1)
    assert host_and_port("unix:/run/x.sock") == ("unix:/run/x.sock", None)
    assert host_and_port("h:1,g:2") == ("h:1,g:2", None)
