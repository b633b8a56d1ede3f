"""The seal of a journal: what it opens, and that nothing goes past it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import create_engine, insert, select

from tuskpoint_server.domain.values import DamagedValueError
from tuskpoint_server.journal.database.schema import contents, metadata
from tuskpoint_server.journal.database.sealing import KEY_BYTES, Seal

KEY = os.urandom(KEY_BYTES)
NONCE = slice(16, 24)
TEXT = b"what an agent remembers"


@pytest.mark.parametrize("data", [b"", b"\0", TEXT, os.urandom(1 << 16)], ids=len)
def test_another_server_with_the_key_opens_what_one_sealed(data: bytes) -> None:
    sealed = Seal(KEY).seal(data)
    assert len(sealed) == len(data) + 40
    assert Seal(KEY).open(sealed) == data


def test_every_changed_bit_is_refused() -> None:
    seal = Seal(KEY)
    sealed = seal.seal(TEXT)
    for place in range(8 * len(sealed)):
        changed = bytearray(sealed)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(DamagedValueError):
            seal.open(bytes(changed))


@pytest.mark.parametrize("data", [b"", TEXT, bytes(40), TEXT * 9])
def test_bytes_that_are_not_sealed_are_refused(data: bytes) -> None:
    with pytest.raises(DamagedValueError, match="changed, or is not sealed"):
        Seal(KEY).open(data)


def test_another_key_opens_nothing() -> None:
    with pytest.raises(DamagedValueError):
        Seal(os.urandom(KEY_BYTES)).open(Seal(KEY).seal(TEXT))


def test_no_nonce_comes_twice_with_one_derived_key() -> None:
    one, other = Seal(KEY), Seal(KEY)
    assert one.seal(TEXT)[:16] != other.seal(TEXT)[:16]
    with ThreadPoolExecutor(8) as threads:
        sealed = list(threads.map(one.seal, [TEXT] * 2000))
    assert len({data[NONCE] for data in sealed}) == 2000


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
