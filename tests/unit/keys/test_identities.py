"""A tenant's age identities open what is sealed to the tenant, and no other identity does."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pyrage
import pytest

from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.config.composition import open_identities
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.process import ConfigError
from tuskpoint_server.keys.identities import (
    Identities,
    new_identity,
    parse_identities,
    sealing_to,
)

# Made by age-keygen and age 1.1.1, which are written in Go.
FILE = """\
# created: 2026-11-25T19:18:37Z
# public key: age12x0z6rxehdy5zxz38a36nyzln63ttr0r7s4xfdv3cdedmsthw5yqnugr22
AGE-SECRET-KEY-1PJ7ZWZ8SLHD8M4K6GC7WF4SKEPJQQFEXC6FEXKJ45CRRRQLRWGPQAVDX8W
"""
PUBLIC = "age12x0z6rxehdy5zxz38a36nyzln63ttr0r7s4xfdv3cdedmsthw5yqnugr22"
SEALED = (
    "YWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IFgyNTUxOSBma1B6Q2dJcUJZa3pzSlBEaUZCRGd4azNzdWZTYTNzT091L2p4"
    "MTNqd2dnCjhaSmpCK3dRd003NmE1SUxVbDlVL01DODlHcFZOSzBBbktPcks1emhKd1kKLS0tIG9ybTZIRUdWTkZPWEsw"
    "bEdmWHFoL01xU09IUWQyZHdVSzA5V1N3SHBZbWsK0Igif1X8WaRpu+4RUAiI3AiIS/amIQgQfjTkoh4RDNAnfHglmNsI"
    "03GDeXS+BuIqd3ISV/GOHBAtfBGDWpl8AMm3cOjlA+LB193hJJYA/I4P5sGzHAKcOkoyBiWan1GT"
)
KEY = b"\xcc" * 32
OURS = Identities(parse_identities(FILE))


def refused(identities: Identities, tenant: str, sealed_key: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        identities.open(tenant, sealed_key, "the-blob")
    return caught.value


def test_what_age_encrypts_is_opened() -> None:
    assert OURS.recipients("default") == (PUBLIC,)
    assert OURS.open("default", SEALED, "the-blob") == KEY


def test_what_is_sealed_can_be_decrypted_by_age_with_the_file_alone() -> None:
    sealed = base64.b64decode(sealing_to(PUBLIC)(KEY))
    mine = pyrage.x25519.Identity.from_str(FILE.splitlines()[2])
    assert pyrage.decrypt(sealed, [mine]) == KEY.hex().encode()


@pytest.mark.parametrize("tenant", ["default", "acme", "z-9_"])
def test_each_tenant_opens_its_own_and_only_that(tenant: str) -> None:
    [public] = OURS.recipients(tenant)
    sealed = sealing_to(public)(KEY)
    assert OURS.open(tenant, sealed, "the-blob") == KEY
    refusal = refused(OURS, "another", sealed)
    assert refusal.reason is Reason.KEY_MISSING
    assert public not in refusal.message
    assert OURS.recipients("another")[0] in refusal.message


def test_the_identities_of_a_tenant_stay_the_same() -> None:
    """A change would lock every hand-off that was sealed earlier."""
    [acme] = OURS.recipients("acme")
    assert acme == "age1jadeg940q3n4gxye9x36v0xw0vrv3unudsf8a5dtr9cstjdrtq3s4jaeca"


def test_older_identities_still_open_what_was_sealed_to_them() -> None:
    secret, public = new_identity()
    both = Identities(parse_identities(f"{secret}\n\n  # before:\n{FILE}"))
    assert both.recipients("default") == (public, PUBLIC)
    assert both.open("default", SEALED, "the-blob") == KEY


def test_a_server_without_an_identity_says_so() -> None:
    assert Identities().recipients("default") == ()
    refusal = refused(Identities(), "default", SEALED)
    assert refusal.reason is Reason.KEY_MISSING
    assert "bundle the-blob is sealed, and this server has no identity" in refusal.message


def test_a_changed_sealed_key_is_refused_wherever_it_was_changed() -> None:
    sealed = base64.b64decode(SEALED)
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        refusal = refused(OURS, "default", base64.b64encode(changed).decode())
        assert refusal.reason is Reason.KEY_MISSING, place
    assert refused(OURS, "default", SEALED[:-40]).reason is Reason.KEY_MISSING
    assert refused(OURS, "default", "AAAA").reason is Reason.KEY_MISSING


@pytest.mark.parametrize("content", [b"", b"cc", KEY, KEY.hex().upper().encode(), b"c" * 65])
def test_what_is_no_key_is_not_taken_for_one(content: bytes) -> None:
    public = pyrage.x25519.Recipient.from_str(PUBLIC)
    sealed = base64.b64encode(pyrage.encrypt(content, [public])).decode()
    assert refused(OURS, "default", sealed).reason is Reason.KEY_WRONG


def test_a_recipient_with_a_typo_is_refused() -> None:
    with pytest.raises(Refusal, match="recipient: is not an X25519 public key of age"):
        sealing_to(PUBLIC[:-1] + "3")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it has no identity"),
        ("# AGE-SECRET-KEY-1\n", "it has no identity"),
        (FILE + "AGE-SECRET-KEY-1PJ7\n", "identity 2 is not an X25519 secret key"),
        (PUBLIC, "identity 1 is not an X25519 secret key"),
    ],
)
def test_a_file_that_has_no_identities_is_named_with_what_is_wrong(
    text: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "identity"
    file.write_text(text, "ascii")
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=f"--identity {file} cannot be used: {said}") as caught:
        open_identities(Config(identity=file))
    assert "AGE-SECRET" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be used: No such file"):
        open_identities(Config(identity=tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "binary").chmod(0o600)
    with pytest.raises(ConfigError, match="cannot be used: it is not text"):
        open_identities(Config(identity=tmp_path / "binary"))


def test_without_the_package_its_name_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyrage", None)
    (tmp_path / "identity").write_text(FILE, "ascii")
    (tmp_path / "identity").chmod(0o600)
    with pytest.raises(ConfigError, match="--identity needs pyrage; pip install"):
        open_identities(Config(identity=tmp_path / "identity"))
    with pytest.raises(Refusal, match="this server lacks pyrage") as caught:
        sealing_to(PUBLIC)
    assert caught.value.reason is Reason.SEALING_UNAVAILABLE
    assert tuskpoint_server(["keys", "identity", str(tmp_path / "new")]) != 0
    assert "an identity needs pyrage" in capsys.readouterr().err
    assert open_identities(Config()).recipients("default") == ()


def test_the_command_makes_a_file_and_puts_later_identities_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "identity"
    assert tuskpoint_server(["keys", "identity", str(file)]) == 0
    first = capsys.readouterr().out.strip()
    assert Identities.of_file(file).recipients("default") == (first,)
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_text("ascii")
    assert tuskpoint_server(["keys", "identity", str(file)]) == 0
    second = capsys.readouterr().out.strip()
    assert Identities.of_file(file).recipients("default") == (second, first)
    assert file.read_text("ascii").endswith(before)
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("no identity", "ascii")
    assert tuskpoint_server(["keys", "identity", str(file)]) != 0
    assert "identity 1 is not an X25519 secret key" in capsys.readouterr().err
    assert file.read_text("ascii") == "no identity"
