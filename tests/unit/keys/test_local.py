"""The first key of a file wraps, all keys unwrap, and a changed file is read again."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.keys.local import LocalKeys, key_id, parse_keys

OLD, NEW = bytes([1]) * 32, bytes([2]) * 32
MEMBER = b"m" * 32


def text(*keys: bytes) -> str:
    return "".join(f"{base64.b64encode(key).decode()} # a comment\n" for key in keys)


def write(path: Path, *keys: bytes) -> None:
    part = path.with_name("part")
    part.write_text(text(*keys), encoding="ascii")
    part.chmod(0o600)
    part.replace(path)


async def refusal_of(keys: LocalKeys, tenant: str, wrapped: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await keys.unwrap(tenant, wrapped)
    return caught.value


async def test_what_was_wrapped_is_unwrapped_for_its_tenant_only() -> None:
    keys = LocalKeys([OLD])
    wrapped = await keys.wrap("acme", MEMBER)
    assert await keys.unwrap("acme", wrapped) == MEMBER
    assert MEMBER not in wrapped
    assert wrapped != await keys.wrap("acme", MEMBER)
    assert (await refusal_of(keys, "other", wrapped)).reason is Reason.KEY_WRONG
    for cut in range(8, len(wrapped)):
        assert (await refusal_of(keys, "acme", wrapped[:cut])).reason is Reason.KEY_WRONG


async def test_the_first_key_wraps_and_the_others_unwrap() -> None:
    wrapped = await LocalKeys([OLD]).wrap("acme", MEMBER)
    keys = LocalKeys([NEW, OLD])
    assert await keys.unwrap("acme", wrapped) == MEMBER
    assert not keys.is_current(wrapped)
    assert keys.is_current(await keys.wrap("acme", MEMBER))
    refusal = await refusal_of(LocalKeys([NEW]), "acme", wrapped)
    assert refusal.reason is Reason.KEY_MISSING
    assert key_id(OLD).hex() in refusal.message
    assert key_id(NEW).hex() in refusal.message


async def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    write(file, OLD)
    keys = LocalKeys.of_file(file)
    wrapped = await keys.wrap("acme", MEMBER)
    write(file, NEW, OLD)
    assert not keys.is_current(await LocalKeys([NEW]).wrap("acme", MEMBER))
    renewed = await keys.wrap("acme", MEMBER)
    assert await LocalKeys([NEW]).unwrap("acme", renewed) == MEMBER
    assert await keys.unwrap("acme", wrapped) == MEMBER


@pytest.mark.parametrize("damage", ["gone", "emptied", "malformed", "readable"])
async def test_the_keys_stay_if_the_file_cannot_be_used(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    write(file, OLD)
    keys = LocalKeys.of_file(file)
    if damage == "gone":
        file.unlink()
    elif damage == "readable":
        write(file, NEW)
        file.chmod(0o644)
    else:
        file.write_text("" if damage == "emptied" else "no key", encoding="ascii")
    for _ in range(2):
        wrapped = await keys.wrap("acme", MEMBER)
        assert await keys.unwrap("acme", wrapped) == MEMBER
    assert len([record for record in caplog.records if "remain in use" in record.message]) == 1
    write(file, NEW)
    assert await LocalKeys([NEW]).unwrap("acme", await keys.wrap("acme", MEMBER)) == MEMBER


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("", "it has no key"),
        ("# only a comment", "it has no key"),
        ("!!!!", "key 1 is not base64"),
        (text(OLD) + base64.b64encode(os.urandom(31)).decode(), "key 2 has 31 bytes"),
        (text(OLD, OLD), "a key comes twice"),
    ],
)
def test_malformed_keys_are_refused(given: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_keys(given)


def test_keys_are_separated_by_lines_spaces_or_commas() -> None:
    old, new = (base64.b64encode(key).decode() for key in (OLD, NEW))
    assert parse_keys(f"{new} {old}") == parse_keys(f"{new},{old}") == parse_keys(f"{new}\n{old}")
