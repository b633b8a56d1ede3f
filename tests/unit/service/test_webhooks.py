"""Addresses that webhooks must not have, secrets, and the pauses between attempts."""

from __future__ import annotations

import base64
import socket

import httpx
import pytest

from tuskpoint_server.core.webhooks import Webhook
from tuskpoint_server.features.webhooks import addresses, sending, signing

PRIVATE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1%eth0",
    "fd00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::a00:1",
    "2002:a00:1::",
    "2001:0:53aa:64c::1",
    "::127.0.0.1",
    "::ffff:0:7f00:1",
    "fec0::1",
    "5f00::1",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_refused_unless_allowed(address: str) -> None:
    assert not addresses.is_public(address)
    with pytest.raises(addresses.AddressRefusedError, match="not a public address"):
        addresses.choose(["93.184.216.34", address], "hook.example.com", allow_private=False)
    assert addresses.choose([address], "hook.example.com", allow_private=True) == address


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"])
def test_public_addresses_are_accepted(address: str) -> None:
    assert addresses.choose([address], "hook.example.com", allow_private=False) == address


HOSTS = [
    "2130706433",
    "0177.0.0.1",
    "0x7f.1",
    "127.1",
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "[::ffff:127.0.0.1]",
    "0",
]


@pytest.mark.parametrize("host", HOSTS)
async def test_no_spelling_of_a_private_address_is_called(host: str) -> None:
    webhook = Webhook("ops", f"https://{host}/", frozenset(), "*", (), ())
    attempt = await sending.Sender("test").post(webhook, "msg_1", b"{}")
    assert "which is not a public address" in attempt.problem


async def test_a_name_is_looked_up_and_refused() -> None:
    with pytest.raises(addresses.AddressRefusedError, match=r"leads to (127|::1)"):
        await addresses.resolve("http://localhost/hook", allow_private=False)
    with pytest.raises(addresses.AddressRefusedError, match="has no address"):
        await addresses.resolve("https://nothing.invalid/", allow_private=False)


def secret(prefix: str, size: int) -> str:
    return prefix + base64.b64encode(bytes(size)).decode()


BAD_SECRETS = [
    ("", "it has no secret"),
    ("letmein", "begins with whsec_ or whsk_"),
    ("whsec_!", "is not base64"),
    (secret("whsec_", 23), "has 23 bytes instead of 24 to 64"),
    (secret("whsec_", 65), "has 65 bytes instead of 24 to 64"),
    (secret("whsk_", 64), "has 64 bytes instead of 32"),
    (secret("whpk_", 32), "begins with whsec_ or whsk_"),
]


@pytest.mark.parametrize(("text", "problem"), BAD_SECRETS)
def test_secrets_that_cannot_sign_are_refused_without_being_shown(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refused:
        signing.parse_secrets(text)
    assert not text or text not in str(refused.value)


def test_secrets_are_not_shown() -> None:
    [parsed] = signing.parse_secrets(secret("whsec_", 24))
    assert repr(parsed) == "SigningSecret(v1)"


RETRY_AFTER = [
    ("120", 120.0),
    ("999999", 3600.0),
    ("Wed, 21 Oct 2015 07:28:30 GMT", 30.0),
    ("Wed, 21 Oct 2015 07:27:30 GMT", 0.0),
    ("soon", 0.0),
    ("-5", 0.0),
    ("", 0.0),
]


@pytest.mark.parametrize(("header", "seconds"), RETRY_AFTER)
def test_a_webhook_may_ask_for_a_pause_of_an_hour(header: str, seconds: float) -> None:
    answer = httpx.Response(503, headers={"retry-after": header})
    now_s = 1445412480.0  # 2015-10-21T07:28:00Z
    assert sending.attempt_of(answer, b"", now_s).retry_after_s == seconds


async def test_a_refused_connection_is_told_as_the_operating_system_tells_it() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nothing listens there
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/secret"
        webhook = Webhook("ops", url, frozenset(), "*", (), (), allow_private=True)
        attempt = await sending.Sender("test").post(webhook, "msg_1", b"{}")
    assert attempt.problem == "it cannot be reached: Connection refused"


def test_the_answer_is_shown_as_one_short_printable_line() -> None:
    answer = sending.attempt_of(httpx.Response(500), b"no\n\x1b[31m" + b"x" * 5000, 0)
    assert answer.problem.startswith("it answered 500: no ?[31mxxx")
    assert len(answer.problem) < 250


def test_the_path_of_an_address_is_not_shown() -> None:
    hook = Webhook("ops", "https://hooks.example.com:8443/T0/secret?k=1", frozenset(), "*", (), ())
    assert hook.origin == "https://hooks.example.com:8443"
    assert "secret" not in repr(hook).replace("secrets", "")
