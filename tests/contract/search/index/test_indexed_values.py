"""The right values of a checkpoint are indexed, up to the right length."""

from __future__ import annotations

import json

from sqlalchemy import update

from tests.contract.search.kit import (
    drain,
    due,
    look,
    results_of,
    save,
)
from tests.kit.drafts import TENANT, draft, key, value, write
from tests.kit.journal import Journal
from tuskpoint_server.core.limits import KIB
from tuskpoint_server.core.model import Value
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.core.values import value_digest
from tuskpoint_server.journal.sql.schema import contents
from tuskpoint_server.search.searched_values import MAX_VALUES, MAX_VALUES_BYTES


def as_json(thing: object) -> Value:
    return Value("json", json.dumps(thing).encode())


def data_of_json(checkpoint: object) -> str:
    return " ".join(value.data.decode() for _, value in checkpoint.channels)  # type: ignore[attr-defined]


async def test_the_plan_is_indexed_first_then_new_values(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("01", "", {"a": b"same", "z": b"old"}))
    channels = {"a": b"same", "b": b"added", "current_plan": b"same plan", "z": b"new"}
    await journal.save_checkpoint(TENANT, draft("02", "01", channels))
    await journal.save_checkpoint(TENANT, draft("03", "02", {**channels, "a": b"next"}))
    by_id = {checkpoint.key.checkpoint_id: checkpoint.channels for checkpoint in await due(journal)}
    assert by_id["01"] == (("a", Value("msgpack", b"same")), ("z", Value("msgpack", b"old")))
    assert [name for name, _ in by_id["02"]] == ["current_plan", "b", "z"]
    assert [name for name, _ in by_id["03"]] == ["current_plan", "a"]


async def test_only_the_new_part_of_a_grown_value_is_indexed(journal: Journal) -> None:
    for number in range(1, 40):
        said = [f"message{at} " + "word " * 100 for at in range(number)]
        before = f"{number - 1:02d}" if number > 1 else ""
        made = draft(f"{number:02d}", before, {"log": as_json(said), "note": as_json("noted")})
        await journal.save_checkpoint(TENANT, made)
    by_id = {
        checkpoint.key.checkpoint_id: dict(checkpoint.channels) for checkpoint in await due(journal)
    }
    assert sorted(by_id["01"]) == ["log", "note"]
    assert list(by_id["39"]) == ["log"]
    assert json.loads(by_id["39"]["log"].data)[0].startswith("message38 ")
    await drain(journal)
    for at in (0, 7, 38):
        assert await look(journal, f"message{at}") == [key(f"{at + 1:02d}")]
    assert await look(journal, "noted") == [key("01")]
    assert (await journal.finding.status(TENANT)).truncated == 0


async def test_text_of_a_pruned_checkpoint_is_found_in_the_one_that_kept_it(
    journal: Journal,
) -> None:
    log = ["walrus"]
    await journal.save_checkpoint(TENANT, draft("01", "", {"log": as_json(log)}))
    for number, word in enumerate(("seal", "otter"), 2):
        log.append(word)
        made = draft(f"0{number}", f"0{number - 1}", {"log": as_json(log)})
        await journal.save_checkpoint(TENANT, made)
    await drain(journal)
    assert await look(journal, "walrus") == [key("01")]
    await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await drain(journal)
    for word in log:
        assert await look(journal, word) == [key("03")]


async def test_channels_of_langgraphs_own_take_no_room(journal: Journal) -> None:
    large = b"l" * (MAX_VALUES_BYTES // 2 + 1)
    internal = {"__pregel_tasks": large, "__start__": large + b"!", "branch:to:a": large + b"?"}
    by_id = {"__root__": b"root", "answer": large + b"."}
    await journal.save_checkpoint(TENANT, draft("01", "", {**internal, **by_id}))
    [checkpoint] = await due(journal)
    assert [name for name, _ in checkpoint.channels] == ["__root__", "answer"]
    assert not checkpoint.truncated
    many = {f"branch:to:{number}": b"%d" % number for number in range(MAX_VALUES)}
    await journal.save_checkpoint(TENANT, draft("02", "", {**many, "x": b"told"}))
    checkpoint = (await due(journal))[1]
    assert checkpoint.channels == (("x", Value("msgpack", b"told")),)


async def test_values_that_were_evicted_are_left_out(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("01", "", {"a": b"gone", "b": b"here"}))
    await journal.database.transact(
        lambda batch: batch.connection.execute(
            update(contents)
            .where(contents.c.digest == value_digest(Value("msgpack", b"gone")))
            .values(data=None)
        )
    )
    [checkpoint] = await due(journal)
    assert [name for name, _ in checkpoint.channels] == ["b"]


async def test_a_value_of_more_than_32_kib_is_found_by_its_latest_part(journal: Journal) -> None:
    messages = [f"message {number} {'word ' * 200}" for number in range(100)]
    long = {"messages": as_json([*messages, "the last of them all"])}
    assert len(long["messages"].data) > 32 * KIB
    await journal.save_checkpoint(TENANT, draft("01", "", long, summary="long"))
    await journal.save_checkpoint(TENANT, draft("02", "", {"a": as_json("short")}, summary="short"))
    first, second = await due(journal)
    assert (first.truncated, second.truncated) == (True, False)
    assert 16 * KIB < len(first.channels[0][1].data) <= MAX_VALUES_BYTES
    await drain(journal, body=data_of_json)
    [result] = await results_of(journal, '"the last of them all"')
    assert (result.key, result.truncated) == (key("01"), True)
    assert await look(journal, '"message 99"') == [key("01")]
    assert await look(journal, '"message 1"') == []
    [other] = await results_of(journal, "short")
    assert not other.truncated
    assert (await journal.finding.status(TENANT)).truncated == 1
    await save(journal, "01", "long no more")
    await drain(journal)
    assert (await journal.finding.status(TENANT)).truncated == 0


async def test_a_long_channel_leaves_room_for_the_others(journal: Journal) -> None:
    large = as_json(["word"] * 50_000)
    channels = {"a": large, "b": as_json(["other"] * 50_000), "c": as_json("small")}
    await journal.save_checkpoint(TENANT, draft("01", "", channels))
    [checkpoint] = await due(journal)
    by_id = dict(checkpoint.channels)
    assert by_id["c"] == as_json("small")
    assert sum(len(value.data) for value in by_id.values()) <= MAX_VALUES_BYTES
    assert min(len(by_id["a"].data), len(by_id["b"].data)) > MAX_VALUES_BYTES // 3
    assert checkpoint.truncated


async def test_no_more_channels_are_read_than_a_bound(journal: Journal) -> None:
    many = {f"{number:04d}": b"%d" % number for number in range(MAX_VALUES + 1)}
    await journal.save_checkpoint(TENANT, draft("01", "", many))
    [checkpoint] = await due(journal)
    assert len(checkpoint.channels) == MAX_VALUES
    assert checkpoint.truncated


async def test_of_a_delta_channel_the_new_writes_are_indexed(journal: Journal) -> None:
    seed, step = value(b"\x91\xa4seed"), b"\x91\xa4step"
    await journal.save_checkpoint(TENANT, draft("01", "", {"log": seed}, delta=("log",)))
    await journal.save_writes(TENANT, key("01"), [write("log", step)])
    await journal.save_checkpoint(TENANT, draft("02", "01", {}, delta=("log",)))
    await journal.save_writes(TENANT, key("02"), [write("log", b"\x91\xa4next")])
    await journal.save_checkpoint(TENANT, draft("03", "02", {}, delta=("log",)))
    by_id = {checkpoint.key.checkpoint_id: checkpoint for checkpoint in await due(journal)}
    assert dict(by_id["01"].channels) == {"log": seed}
    assert by_id["02"].channels[0][1].data.endswith(b"\x00\x00\x01\x91\xa4step")
    assert by_id["03"].channels[0][1].data.endswith(b"\x00\x00\x01\x91\xa4next")
    assert not any(checkpoint.truncated for checkpoint in by_id.values())
    await drain(journal)
    assert await look(journal, "step") == [key("02")]
    assert await look(journal, "next") == [key("03")]
    await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await drain(journal)
    assert [await look(journal, word) for word in ("seed", "step", "next")] == [[key("03")]] * 3
