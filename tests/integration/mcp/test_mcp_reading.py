"""A text that is too long for one result is cut, and the result says how to read on."""

from __future__ import annotations

import json
from uuid import uuid4

from tests.integration.mcp.mcp_kit import Caller
from tuskpoint import Client


def a_thread() -> str:
    return f"thread-{uuid4()}"


async def test_a_long_state_is_cut_at_whole_channels(call: Caller, client: Client) -> None:
    thread, long = a_thread(), "ä" * 30_000
    client.save(thread, {"a": 1, "log": long, "z": {"b": [2]}})
    loaded = await call("checkpoint_resume", thread_id=thread)
    assert loaded["state"] == {"a": 1, "z": {"b": [2]}}
    assert loaded["truncated"]
    assert loaded["omitted"] == [{"channel": "log", "chars": 30_002}]
    whole = await call("checkpoint_load", thread_id=thread, max_chars=50_000)
    assert whole["state"]["log"] == long
    assert not whole["truncated"]
    alone = await call("checkpoint_load", thread_id=thread, channel="z")
    assert (alone["state"], alone["part"]) == ({"z": {"b": [2]}}, None)


async def test_a_long_channel_is_read_in_parts(call: Caller, client: Client) -> None:
    thread, log = a_thread(), [f"line {number}" for number in range(1_000)]
    saved = client.save(thread, {"log": log, "note": "x"})
    client.save(thread, {"log": []})
    where = {"thread_id": thread, "checkpoint_id": saved, "max_chars": 5_000}
    read = ""
    offset: int | None = 0
    while offset is not None:
        part = (await call("checkpoint_load", **where, channel="log", offset=offset))["part"]
        assert part["offset"] == len(read)
        assert len(part["text"]) <= 5_000
        read, offset = read + part["text"], part["next_offset"]
    assert json.loads(read) == log
    assert len(read) == part["total_chars"] > 10_000


async def test_a_state_with_a_value_that_is_too_large_to_be_shown_is_truncated(
    call: Caller, client: Client
) -> None:
    thread = a_thread()
    client.save(thread, {"log": "x" * (4 << 20)})
    loaded = await call("checkpoint_load", thread_id=thread)
    assert loaded["state"]["log"]["$problem"] == "too_large"
    assert loaded["truncated"]
    assert (await call("checkpoint_load", thread_id=thread, channel="log"))["truncated"]


async def test_a_state_of_many_channels_is_read_as_one_text(call: Caller, client: Client) -> None:
    thread, state = a_thread(), {f"channel-{number}": "x" * 50 for number in range(500)}
    client.save(thread, state)
    loaded = await call("checkpoint_load", thread_id=thread)
    assert 0 < len(loaded["state"]) < len(state)
    assert len(loaded["omitted"]) == 100
    rest = await call("checkpoint_load", thread_id=thread, offset=1, max_chars=1_000_000)
    assert json.loads("{" + rest["part"]["text"]) == state


async def test_reading_behind_the_end_is_refused(call: Caller, client: Client) -> None:
    thread = a_thread()
    client.save(thread, {"a": 1})
    said = await call.refused("checkpoint_load", thread_id=thread, channel="b")
    assert "no channel 'b'; it has 'a'" in said
    said = await call.refused("checkpoint_load", thread_id=thread, channel="a", offset=1)
    assert "1 characters" in said


async def test_long_metadata_is_left_out(call: Caller, client: Client) -> None:
    thread = a_thread()
    client.save(thread, {}, metadata={"prompt": "x" * 6_000})
    assert (await call("checkpoint_load", thread_id=thread))["metadata"] is None
    more = await call("checkpoint_load", thread_id=thread, max_chars=100_000)
    assert more["metadata"] == {"prompt": "x" * 6_000}


async def test_metadata_that_no_parser_would_take_is_left_out(call: Caller, client: Client) -> None:
    thread, levels = a_thread(), 400
    client.save(thread, {"n": 1}, metadata={"deep": json.loads("[" * levels + "]" * levels)})
    loaded = await call("checkpoint_load", thread_id=thread, max_chars=100_000)
    assert (loaded["metadata"], loaded["state"]) == (None, {"n": 1})


async def test_many_results_of_a_search_and_steps_of_a_trail_are_cut(
    call: Caller, client: Client
) -> None:
    thread, words = a_thread(), "walrus " * 150
    for number in range(30):
        client.save(thread, {f"n{number}": words}, summary=words[:1_000])
    answer = await call("checkpoint_search", query="walrus", thread_id=thread, limit=100)
    assert answer["truncated"]
    assert 10 < len(answer["results"]) < 30
    client.flush()
    trail = await call("verify_trail", thread_id=thread, limit=20)
    assert (trail["verified"], len(trail["steps"]), trail["truncated"]) == (30, 20, True)


async def test_lists_come_in_pages(call: Caller, client: Client) -> None:
    thread = a_thread()
    saved = [client.save(thread, {"n": n}, summary="x" * 1_000) for n in range(30)]
    checkpoint_ids: list[str] = []
    before: str | None = ""
    while before is not None:
        page = await call("checkpoint_list", thread_id=thread, before=before, limit=25)
        # pages are cut by their length, not by `limit`
        assert page["count"] == len(page["checkpoints"]) < 20
        checkpoint_ids += [checkpoint["checkpoint_id"] for checkpoint in page["checkpoints"]]
        before = page["next_before"]
    assert checkpoint_ids == saved[::-1]


async def test_threads_come_in_pages(call: Caller, client: Client) -> None:
    agent, names = a_thread(), [a_thread() for _ in range(5)]
    for name in names:
        client.save(name, {}, agent_id=agent)
    thread_ids: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await call("thread_list", agent_id=agent, limit=2, after=after)
        thread_ids += [thread["thread_id"] for thread in page["threads"]]
        after = page["next_after"]
    assert thread_ids == sorted(names)


async def test_a_long_difference_is_cut(call: Caller, client: Client) -> None:
    thread = a_thread()
    first = client.save(thread, {"log": []})
    second = client.save(thread, {"log": ["x" * 1_000] * 100, "text": "y" * 10_000})
    differs = await call("checkpoint_diff", thread_id=thread, id_a=first, id_b=second)
    assert differs["truncated"]
    assert 0 < len(differs["added"]) < 100
    assert len(json.dumps(differs)) < 30_000


async def test_the_history_is_read_on_from_a_cursor(call: Caller, client: Client) -> None:
    thread = a_thread()
    first = client.save(thread, {"n": 1}, summary="began")
    client.set_label(thread, "good")
    client.rollback(thread, first)
    page = await call("thread_history", thread_id=thread, limit=2)
    assert [event["kind"] for event in page["events"]] == ["checkpoint_saved", "label_set"]
    assert (page["events"][0]["checkpoint_id"], page["events"][0]["summary"]) == (first, "began")
    assert page["more"]
    rest = await call("thread_history", thread_id=thread, cursor=page["cursor"])
    assert [event["kind"] for event in rest["events"]] == ["checkpoint_saved"]
    assert not rest["more"]
    client.save(thread, {"n": 2})
    later = await call("thread_history", thread_id=thread, cursor=rest["cursor"])
    assert later["count"] == 1
