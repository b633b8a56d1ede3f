"""Evicted values and writes come back into the journal byte for byte."""

from __future__ import annotations

from functools import partial

from sqlalchemy import Connection

from tests.contract.values.kit import BASE, written
from tests.kit.drafts import TENANT, as_loaded, digest, key, value, write
from tests.kit.values import Home, text
from tuskpoint_server.archive.rows import restore_values
from tuskpoint_server.archive.rows.stored import stored_value
from tuskpoint_server.core.values import Encoding
from tuskpoint_server.journal.database.thread_rows import ThreadRow, find_thread


async def test_evicted_values_are_put_back_whole(home: Home) -> None:
    for number in range(3):
        data = BASE + b"%d" % number if number else BASE
        await home.save(f"{number}", {"x": data}, parent=f"{number - 1}")
    await home.save("3", {"x": b"other"}, parent="2")
    await home.certify()
    assert (await home.evict()).values == 3
    assert await home.read_back("1") == 1
    assert await home.here("1") == {"x"}
    assert await home.read_back("1") == 0
    await home.check_groups()
    [row] = [row for row in await home.rows() if row["digest"] == digest(BASE + b"1")]
    assert (row["encoding"], row["patches"], row["segment"]) == (Encoding.ZSTD, 0, None)
    assert (await home.evict()).values == 1


async def test_evicted_writes_are_put_back_unless_they_were_replaced(home: Home) -> None:
    first, second = write("x", b"one", idx=-1), write("x", text(1, 500), idx=1)
    await home.save("a", {}, writes=(first, second))
    await home.save("b", {}, parent="a")
    await home.certify()
    await home.evict()
    packed = {
        write.digest: stored_value(write.digest, write.value) for write in as_loaded(first, second)
    }

    def find(connection: Connection) -> tuple[ThreadRow, list[restore_values.AffectedCheckpoint]]:
        user = find_thread(connection, TENANT, "t")
        assert user is not None
        checkpoints, _ = restore_values.find_affected(connection, user, home.segments)
        return user, [checkpoint for checkpoint in checkpoints if checkpoint.place == ("", "a")]

    for replaced in (False, True):
        user, [checkpoint] = await home.database.query(find)
        assert {written.digest for written in checkpoint.evicted_writes} == packed.keys()
        if replaced:
            late = write("x", b"two", idx=-1)
            await home.checkpoints.save_writes(TENANT, key("a"), (late,))
        again = partial(restore_values.store_again, user=user, chosen=[(checkpoint, packed)])
        assert await home.database.transact(again) == 1
        expected = b"two" if replaced else b"one"
        assert await written(home, "a") == [value(expected), value(text(1, 500))]
        await home.certify()
        await home.evict()


async def test_only_evicted_values_of_the_family_are_put_back(home: Home) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("a", {"x": b"1"}, thread="other")
    await home.save("b", {}, parent="a")
    await home.save("b", {}, parent="a", thread="other")
    await home.certify()
    await home.certify("other")
    assert (await home.evict()).values == (await home.evict("other")).values == 1
    assert await home.read_back("a") == 1
    assert await home.here("a", "other") == set()
