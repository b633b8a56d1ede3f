"""The settings of the Walrus store have bounds and hide secrets, and its tokens differ."""

from __future__ import annotations

from typing import Any

import jwt
import pytest

from tuskpoint_server.blobs.walrus.client import RecentBlobs
from tuskpoint_server.blobs.walrus.settings import WalrusSettings, secret_bytes

URL = "https://walrus.example"
SECRET = bytes(range(64))


def settings(**changed: Any) -> WalrusSettings:
    return WalrusSettings(**{"aggregators": (URL,), "publishers": (URL,), **changed})


def test_defaults_and_bounds() -> None:
    settings()
    settings(epochs=2, publishers=())
    settings(epochs=53, send_object_to="0xA" + "0" * 63, jwt_secret=SECRET, jwt_algorithm="HS512")


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"aggregators": ()}, "at least one aggregator"),
        ({"aggregators": (URL, "walrus.example")}, "URL 2 of the aggregators must begin"),
        ({"publishers": ("ftp://walrus.example",)}, "URL 1 of the publishers must begin"),
        ({"publishers": ("http://",)}, "names no host"),
        ({"publishers": ("http://a:99999",)}, "cannot be read"),
        ({"publishers": ("http://[::1",)}, "cannot be read"),
        ({"publishers": (URL + "?epochs=1",)}, "neither a query"),
        ({"publishers": (URL + "#x",)}, "neither a query"),
        ({"send_object_to": "ab"}, "Sui address"),
        ({"send_object_to": "0x" + "0" * 65}, "Sui address"),
        ({"jwt_secret": SECRET, "publishers": ("http://u:p4ss@h",)}, "not both"),
    ],
)
def test_refused_settings(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refused:
        settings(**changed)
    assert "p4ss" not in str(refused.value)


def test_settings_show_no_secrets() -> None:
    shown = repr(settings(publishers=("http://u:p4ss@h",)))
    assert "p4ss" not in shown
    assert repr(SECRET) not in repr(settings(jwt_secret=SECRET))


def test_token() -> None:
    token = settings(jwt_secret=SECRET, jwt_lifetime_s=30, epochs=9).token(1000.9, 12345)
    assert jwt.get_unverified_header(token)["alg"] == "HS256"
    claims = jwt.decode(token, SECRET, algorithms=["HS256"], options={"verify_exp": False})
    assert claims.pop("jti")
    assert claims == {"iat": 1000, "exp": 1030, "epochs": 9, "max_size": 12345}


def test_no_secret_no_token() -> None:
    assert settings().token(1000.0, 1) == ""


def test_every_token_differs() -> None:
    signing = settings(jwt_secret=SECRET)
    assert len({signing.token(1000.0, 1) for _ in range(100)}) == 100


def test_a_short_secret_works_and_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    signing = settings(jwt_secret=b"hush")
    assert signing.token(1000.0, 1)
    assert signing.token(1000.0, 1)
    [reported] = caplog.messages
    assert "HS256 asks for 32" in reported
    assert "hush" not in reported


def test_secret_is_text_or_hex() -> None:
    assert secret_bytes("geheim é") == "geheim é".encode()
    assert secret_bytes("0x00fF") == b"\x00\xff"
    assert secret_bytes("") == b""
    with pytest.raises(ValueError, match="must continue in hex digits") as refused:
        secret_bytes("0xgeheim")
    assert "geheim" not in str(refused.value)


def test_recent_blobs_are_forgotten() -> None:
    now = 0.0
    recent = RecentBlobs(lambda: now)
    recent.add("a")
    now = 599.0
    recent.add("b")
    assert "a" in recent
    now = 600.0
    assert "a" not in recent
    assert "b" in recent
    assert "c" not in recent
    for number in range(10_000):
        recent.add(str(number))
    assert "b" not in recent
    assert "0" in recent
