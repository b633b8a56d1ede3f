"""Every gRPC option in the code exists in gRPC's library, which ignores unknown options."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tools.stubs import ROOT
from tuskpoint._transport.channel import channel_options
from tuskpoint_server.api.server.server import OPTIONS

OPTION = re.compile(r"\(\s*\"(grpc\.[A-Za-z0-9_.]+)\",")
"""An option as Python code passes it: the first item of a pair."""

CODE = ("server/src", "clients/python/src", "bench", "emulators", "examples", "tests", "tools")
MINIMUM = "grpc.http2.min_ping_interval_without_data_ms"


@cache
def library() -> bytes:
    spec = importlib.util.find_spec("grpc._cython.cygrpc")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_bytes()


def is_known(option: str) -> bool:
    """Return whether gRPC's library contains exactly this text."""
    place = library().find(option.encode() + b"\0")
    return place > 0 and library()[place - 1 : place] not in b"._abcdefghijklmnopqrstuvwxyz"


def written() -> Iterator[tuple[str, str]]:
    """Yield each option in the code with its file."""
    for folder in CODE:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for option in OPTION.findall(file.read_text(encoding="utf-8")):
                yield option, str(file.relative_to(ROOT))


@pytest.mark.parametrize(
    "option", ["grpc.http2.min_recv_ping_interval_without_data_ms", "ping_strikes"]
)
def test_a_name_that_is_none_is_found_out(option: str) -> None:
    assert not is_known(option)


def test_every_option_is_one_of_the_library() -> None:
    options = dict(written())
    passed = {name for name, _ in OPTIONS}
    for address, has_others in (("localhost:1", False), ("dns:///agents.example:1", True)):
        passed |= {name for name, _ in channel_options(address, has_others=has_others)}
    assert passed <= options.keys(), "the pattern misses an option"
    unknown = {option: file for option, file in options.items() if not is_known(option)}
    assert not unknown


def test_clients_ping_less_often_than_the_server_allows() -> None:
    """Clients in TypeScript and Go set their options in fields that their compilers check."""
    typescript = ROOT / "clients" / "typescript" / "src" / "transport" / "sessions.ts"
    ping = re.search(r"pingIntervalMs: ([\d_]+)", typescript.read_text(encoding="utf-8"))
    go = ROOT / "clients" / "go" / "options.go"
    time = re.search(r"ClientParameters\{Time: (\d+) \* time\.Second", go.read_text("utf-8"))
    assert ping is not None
    assert time is not None
    every_ms = {
        "python": dict(channel_options("localhost:1"))["grpc.keepalive_time_ms"],
        "typescript": int(ping[1]),
        "go": int(time[1]) * 1000,
    }
    allowed = dict(OPTIONS)[MINIMUM]
    assert {name: ms for name, ms in every_ms.items() if int(ms) < 2 * allowed} == {}
