"""Values are stored as differences, and read byte for byte."""

from __future__ import annotations

from sqlalchemy import update

from tests.contract.values.kit import BASE
from tests.kit.drafts import digest, value
from tests.kit.values import Home, text
from tuskpoint_server.core.model import EVICTED
from tuskpoint_server.core.state import damages
from tuskpoint_server.core.values import Encoding
from tuskpoint_server.journal.sql.schema import contents
from tuskpoint_server.journal.values import contents as values


def grown(steps: int) -> bytes:
    return BASE + b"".join(b"step %d;" % number for number in range(steps))


async def test_a_value_that_grew_is_stored_as_its_growth(home: Home) -> None:
    for number in range(5):
        await home.save(f"{number}", {"x": grown(number)}, parent=f"{number - 1}" if number else "")
    rows = await home.rows()
    assert [row["encoding"] for row in rows] == [Encoding.ZSTD] + [Encoding.PATCH] * 4
    assert [row["patches"] for row in rows] == [0, 0, 1, 2, 3]
    assert {row["keyframe"] for row in rows[1:]} == {digest(BASE)}
    assert all(len(row["data"]) < 100 for row in rows[1:])
    sizes = [len(row["data"]) for row in rows[1:]]
    assert [row["patch_bytes"] for row in rows[1:]] == [sum(sizes[: i + 1]) for i in range(4)]
    for number in range(5):
        assert await home.data(f"{number}") == {"x": grown(number)}


async def test_a_patch_without_its_keyframe_is_never_stored(home: Home) -> None:
    """The keyframe was saved in a checkpoint that was refused, so the next value is whole."""
    await home.save("a", {"x": b"small"})
    keyframes = home.checkpoints.keyframes
    keyframes.prepare("default", "t", "", "x", grown(0), digest(grown(0)))
    await home.save("b", {"x": grown(1)}, parent="a")
    await home.save("c", {"x": grown(2)}, parent="b")
    await home.save("d", {"x": grown(3)}, parent="c")
    await home.check_groups()
    rows = {row["digest"]: row["encoding"] for row in await home.rows()}
    assert rows[digest(grown(1))] == Encoding.ZSTD
    assert rows[digest(grown(3))] == Encoding.PATCH


async def test_a_patch_is_never_based_on_a_patch(home: Home) -> None:
    """A digest that is a patch in one channel starts a group in another channel."""
    await home.save("a", {"x": grown(0)})
    await home.save("b", {"x": grown(1)}, parent="a")
    await home.save("c", {"x": grown(1), "y": grown(1)}, parent="b")
    await home.save("d", {"x": grown(1), "y": grown(2)}, parent="c")
    await home.check_groups()
    rows = {row["digest"]: row["encoding"] for row in await home.rows()}
    assert rows[digest(grown(1))] == Encoding.PATCH
    assert rows[digest(grown(2))] == Encoding.ZSTD
    assert await home.data("d") == {"x": grown(1), "y": grown(2)}


async def test_equal_values_are_stored_once_per_family(home: Home) -> None:
    await home.save("a", {"x": grown(0), "y": grown(0)})
    await home.save("a", {"x": grown(0)}, thread="other")
    await home.fork("t", "a", "forked")
    assert len(await home.rows()) == len(await home.rows("other")) == 1
    assert await home.family("forked") == await home.family()
    assert await home.family("other") != await home.family()
    assert await home.data("a", "forked") == {"x": grown(0), "y": grown(0)}


async def test_a_fork_goes_on_with_patches_on_the_same_keyframe(home: Home) -> None:
    await home.save("a", {"x": grown(0)})
    await home.fork("t", "a", "forked")
    home.checkpoints.keyframes.share("default", "t", "forked")
    await home.save("b", {"x": grown(1)}, parent="a", thread="forked")
    await home.save("b", {"x": grown(2)}, parent="a")
    rows = await home.rows()
    assert [row["keyframe"] for row in rows] == [None, digest(grown(0)), digest(grown(0))]
    assert await home.data("b", "forked") == {"x": grown(1)}


async def test_present_evicted_and_unknown_values_are_distinguished(home: Home) -> None:
    await home.save("a", {"x": grown(0)})
    await home.save("b", {"x": grown(1)}, parent="a")
    await home.save("c", {"x": grown(2)}, parent="b")
    await home.certify()
    await home.evict()
    family = await home.family()
    known = [digest(grown(number)) for number in range(4)]
    present = await home.database.query(lambda c: values.present_digests(c, family, known))
    assert present == {known[0], known[2]}
    contents = await home.database.query(lambda c: values.read(c, family, known))
    assert contents == {known[0]: value(grown(0)), known[1]: EVICTED, known[2]: value(grown(2))}


async def test_many_values_are_read_in_few_statements(home: Home) -> None:
    many = {f"c{number}": b"value %d" % number for number in range(700)}
    await home.save("a", many)
    family = await home.family()
    wanted = [digest(data) for data in many.values()]
    read = await home.database.query(lambda c: values.read(c, family, wanted + wanted))
    assert {value.data for value in read.values()} == set(many.values())
    assert await home.database.query(lambda c: values.read(c, family, [])) == {}


async def test_a_damaged_patch_is_found_out(home: Home) -> None:
    await home.save("a", {"x": grown(0), "y": text(2, 8_000)})
    await home.save("b", {"x": grown(1), "y": text(2, 8_000) + b"more"}, parent="a")
    patched = contents.c.keyframe == digest(grown(0))
    await home.database.transact(
        lambda batch: batch.connection.execute(
            update(contents).where(patched).values(keyframe=digest(text(2, 8_000)))
        )
    )
    [damage] = damages(await home.load("b"))
    assert damage.digest == digest(grown(1)) != damage.actual
    assert await home.data("a") == {"x": grown(0), "y": text(2, 8_000)}
    await home.database.transact(
        lambda batch: batch.connection.execute(
            update(contents).where(contents.c.keyframe.is_not(None)).values(keyframe=b"gone")
        )
    )
    problems = {damage.problem for damage in damages(await home.load("b"))}
    assert problems == {"a patch without its keyframe"}
