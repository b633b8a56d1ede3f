"""The key of a journal opens only its own values, and no statement bypasses the seal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy import Table, create_engine, insert, select

from tuskpoint_server.core.values import DamagedValueError, UnopenedBytes
from tuskpoint_server.journal.sql.schema import SEALED, contents, metadata
from tuskpoint_server.journal.sql.sealing import (
    BY_PLACE,
    BY_VALUE,
    KEY_BYTES,
    MOVING,
    PREFIX,
    Seal,
    SealedColumn,
    place_of,
)

KEY = os.urandom(KEY_BYTES)
HEAD = len(PREFIX)
NONCE = slice(HEAD + 16, HEAD + 24)
TEXT = b"what an agent remembers"
LABEL = b"contents.data"
PLACE = ("tenant", 12, b"digest")


def sealed_in(seal: Seal, data: bytes = TEXT) -> bytes:
    return seal.seal(LABEL, PLACE, data)


def opened(seal: Seal, data: bytes, label: bytes = LABEL, place: Sequence[Any] = PLACE) -> bytes:
    content = seal.open(label, place, data)
    if isinstance(content, UnopenedBytes):
        assert content.stored == data
        raise DamagedValueError(content.problem)
    return content


@pytest.mark.parametrize("data", [b"", b"\0", TEXT, os.urandom(1 << 16)], ids=len)
def test_another_server_with_the_key_opens_what_one_sealed(data: bytes) -> None:
    sealed = sealed_in(Seal(KEY), data)
    assert len(sealed) == len(data) + 44
    assert opened(Seal(KEY), sealed) == data


def test_every_changed_bit_is_refused() -> None:
    seal = Seal(KEY)
    sealed = sealed_in(seal)
    for place in range(8 * len(sealed)):
        changed = bytearray(sealed)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(DamagedValueError):
            opened(seal, bytes(changed))


@pytest.mark.parametrize("size", range(len(PREFIX) + 40))
def test_what_is_cut_off_is_refused(size: int) -> None:
    seal = Seal(KEY)
    with pytest.raises(DamagedValueError):
        opened(seal, sealed_in(seal)[:size])


@pytest.mark.parametrize("data", [b"", TEXT, bytes(40), TEXT * 9, PREFIX, PREFIX + TEXT * 9])
def test_bytes_that_are_not_sealed_are_refused(data: bytes) -> None:
    with pytest.raises(DamagedValueError, match="changed, moved, or not sealed"):
        opened(Seal(KEY), data)


@pytest.mark.parametrize(
    ("label", "place"),
    [
        (b"writes.data", PLACE),
        (LABEL, ("other", 12, b"digest")),
        (LABEL, ("tenant", 13, b"digest")),
        (LABEL, ("tenant", 12, b"other")),
        (LABEL, ("tenant", 12)),
        (LABEL, ("tenant", 12, b"digest", b"")),
        (LABEL, ("tenant", 1, b"2:digest")),
        (LABEL, (None, 12, b"digest")),
    ],
)
def test_another_place_opens_nothing(label: bytes, place: Sequence[Any]) -> None:
    seal = Seal(KEY)
    with pytest.raises(DamagedValueError):
        opened(seal, sealed_in(seal), label, place)


def test_another_key_opens_nothing() -> None:
    with pytest.raises(DamagedValueError):
        opened(Seal(os.urandom(KEY_BYTES)), sealed_in(Seal(KEY)))


def test_each_tenant_has_a_key_of_its_own() -> None:
    """Bytes of one tenant do not open under the key of another tenant, at whatever place."""
    seal = Seal(KEY)
    sealed = sealed_in(seal)
    salt, number, content = sealed[HEAD : HEAD + 16], sealed[NONCE], sealed[HEAD + 24 :]
    place = b"contents.data\x006:tenant\x002:12\x006:digest"

    def decrypted(tenant: str) -> bytes:
        purpose = b"tuskpoint journal, tenant " + tenant.encode()
        key = HKDF(SHA256(), KEY_BYTES, salt, purpose).derive(KEY)
        return AESGCM(key).decrypt(bytes(4) + number, content, place)

    assert decrypted("tenant") == TEXT
    with pytest.raises(InvalidTag):
        decrypted("other")


def test_the_former_format_is_read_only_until_all_is_bound() -> None:
    former = sealed_in(Seal(KEY, BY_VALUE))
    assert len(former) == len(TEXT) + 40
    for state in (BY_VALUE, MOVING):
        seal = Seal(KEY, state)
        assert opened(seal, former) == opened(seal, sealed_in(Seal(KEY))) == TEXT
        assert sealed_in(seal).startswith(PREFIX) == (state == MOVING)
    with pytest.raises(DamagedValueError):
        opened(Seal(KEY, BY_PLACE), former)


def test_what_does_not_open_never_opens_once_it_is_stored_again() -> None:
    seal = Seal(KEY, MOVING)
    unopened = seal.open(LABEL, PLACE, TEXT)
    stored = seal.seal(LABEL, PLACE, unopened)
    assert stored == PREFIX + TEXT
    with pytest.raises(DamagedValueError):
        opened(seal, stored)
    assert seal.seal(LABEL, PLACE, seal.open(LABEL, PLACE, stored)) == stored


def test_no_nonce_comes_twice_with_one_derived_key() -> None:
    first, second = Seal(KEY), Seal(KEY)
    assert sealed_in(first)[HEAD : HEAD + 16] != sealed_in(second)[HEAD : HEAD + 16]
    with ThreadPoolExecutor(8) as threads:
        sealed = list(threads.map(lambda data: sealed_in(first, data), [TEXT] * 2000))
    assert len({data[NONCE] for data in sealed}) == 2000


@pytest.mark.parametrize("table", metadata.sorted_tables, ids=lambda table: str(table.name))
def test_every_sealed_column_is_bound_to_a_place(table: Table) -> None:
    sealed = [column for column in table.columns if isinstance(column.type, SealedColumn)]
    assert (table in SEALED) == bool(sealed)
    if sealed:
        _, place = place_of(table)
        assert set(place.names) <= set(table.columns.keys()) - {sealed[0].name}


def test_sqlalchemys_own_execution_is_refused() -> None:
    engine = create_engine("sqlite://")
    metadata.create_all(engine, [contents])
    row = {"family": 1, "digest": b"d", "type": "t", "size": 1, "encoding": 0}
    row |= {"patches": 0, "patch_bytes": 0, "thread": 1, "seq": 1}
    with engine.connect() as connection:
        with pytest.raises(Exception, match="use a Statement"):
            connection.execute(insert(contents).values({**row, "data": b"x"}))
        connection.execute(insert(contents).values({**row, "data": None}))
        connection.exec_driver_sql("UPDATE contents SET data = x'00'")
        with pytest.raises(TypeError, match="use a Statement"):
            connection.execute(select(contents.c.data)).all()
    engine.dispose()
