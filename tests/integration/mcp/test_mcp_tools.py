"""Every tool does what it says over both transports, and its results match their schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.mcp.mcp_kit import Caller, calling, over_stdio
from tests.kit.servers.processes import ServerProcess
from tuskpoint import Client

# Parameters of tuskpoint-mcp 0.1.2, and whether each is required.
OLDER = {
    "checkpoint_save": ("thread_id", "state_json"),
    "checkpoint_load": ("thread_id", "checkpoint_id?"),
    "checkpoint_list": ("thread_id",),
    "checkpoint_resume": ("thread_id",),
    "checkpoint_diff": ("thread_id", "id_a", "id_b"),
    "checkpoint_search": ("query",),
    "checkpoint_fork": ("source_thread_id", "source_checkpoint_id", "new_thread_id"),
    "checkpoint_rollback": ("thread_id", "checkpoint_id"),
    "handoff_checkpoint": ("thread_id", "checkpoint_id", "to_agent?", "recipient?"),
    "adopt_checkpoint": ("handoff_json", "new_thread_id"),
    "verify_trail": ("thread_id",),
    "tuskpoint_info": (),
}
ACTED_ON = {"checkpoint_rollback", "thread_answer"}
CHANGES = {
    "checkpoint_save", "checkpoint_fork", "handoff_checkpoint", "adopt_checkpoint", *ACTED_ON,
}  # fmt: skip


def a_thread() -> str:
    return f"thread-{uuid4()}"


@pytest.mark.parametrize(
    ("transport", "mode"), [("stdio", "legacy"), ("http", "legacy"), ("http", "auto")]
)
async def test_prompts_for_the_older_server_work(
    target: str, url: str, client: Client, transport: str, mode: str
) -> None:
    async with calling(over_stdio(target) if transport == "stdio" else url, mode) as call:
        thread = a_thread()
        first = await call(
            "checkpoint_save", thread_id=thread, state_json='{"plan": ["a"], "n": 1}'
        )
        saved = await call("checkpoint_save", thread_id=thread, state_json='{"plan": [], "x": {}}')
        a, b = first["checkpoint_id"], saved["checkpoint_id"]
        loaded = await call("checkpoint_load", thread_id=thread, checkpoint_id=a)
        assert loaded["state"] == {"plan": ["a"], "n": 1}
        resumed = await call("checkpoint_resume", thread_id=thread)
        assert (resumed["checkpoint_id"], resumed["state"]) == (b, {"plan": [], "x": {}})
        listed = await call("checkpoint_list", thread_id=thread)
        assert [checkpoint["checkpoint_id"] for checkpoint in listed["checkpoints"]] == [b, a]
        assert listed["checkpoints"][0]["parent_checkpoint_id"] == a
        differs = await call("checkpoint_diff", thread_id=thread, id_a=a, id_b=b)
        assert differs["removed"] == {"plan/0": "a", "n": 1}
        assert differs["added"] == {"x": {}}
        forked = await call(
            "checkpoint_fork",
            source_thread_id=thread,
            source_checkpoint_id=a,
            new_thread_id=f"{thread}-fork",
        )
        assert (forked["source"], forked["checkpoint_id"]) == (f"{thread}:{a}", a)
        back = await call("checkpoint_rollback", thread_id=thread, checkpoint_id=a)
        assert back["restored_from"] == a
        assert (await call("checkpoint_resume", thread_id=thread))["state"] == loaded["state"]
        handoff = await call("handoff_checkpoint", thread_id=thread, checkpoint_id=b, to_agent="ed")
        assert "sealed_key" not in handoff
        for form, descriptor in (("text", json.dumps(handoff)), ("object", handoff)):
            adopted = await call(
                "adopt_checkpoint", handoff_json=descriptor, new_thread_id=f"{thread}-{form}"
            )
            assert adopted["verified"]
            assert adopted["adopted_from"] == f"{thread}:{b}"
        answer = await call("checkpoint_search", query="plan")
        assert answer["mode"] == "lexical"
        assert answer["results"][0]["thread_id"]
        client.flush()
        trail = await call("verify_trail", thread_id=thread)
        assert (trail["ok"], trail["checkpoint_count"], trail["verified"]) == (True, 3, 3)
        assert {step["status"] for step in trail["steps"]} == {"PASS"}
        info = await call("tuskpoint_info")
        assert info["transport"] == ("stdio" if transport == "stdio" else "streamable-http")
        assert info["server"]["blob_backend"] == "directory"
        assert {tool["name"] for tool in info["tools"]} == set(call.tools)


async def test_the_tools_announce_parameters_schemas_and_what_they_change(call: Caller) -> None:
    for name, parameters in OLDER.items():
        schema = call.tools[name].input_schema
        assert schema.get("required", []) == [
            parameter for parameter in parameters if "?" not in parameter
        ]
        assert {parameter.rstrip("?") for parameter in parameters} <= set(schema["properties"])
    beyond = {
        "effect_list",
        "handoff_list",
        "thread_list",
        "thread_waiting",
        "thread_answer",
        "thread_history",
    }
    assert set(call.tools) == set(OLDER) | beyond
    for name, tool in call.tools.items():
        assert tool.output_schema is not None
        assert tool.title
        assert tool.description
        assert "\n " not in tool.description
        hints = tool.annotations
        assert hints is not None
        assert hints.read_only_hint is (name not in CHANGES)
        assert hints.destructive_hint is (name in ACTED_ON)


async def test_a_certified_save_names_its_blob(call: Caller) -> None:
    thread = a_thread()
    saved = await call(
        "checkpoint_save",
        thread_id=thread,
        state_json='{"report": "about walruses"}',
        summary="Wrote about walruses.",
        label="done",
        agent_id="writer",
        durability="certified",
    )
    assert saved["blob_id"]
    loaded = await call("checkpoint_load", thread_id=thread)
    assert (loaded["blob_id"], loaded["label"]) == (saved["blob_id"], "done")
    assert loaded["metadata"] == {"source": "mcp"}
    answer = await call("checkpoint_search", query="walruses", thread_id=thread)
    assert [result["checkpoint_id"] for result in answer["results"]] == [saved["checkpoint_id"]]
    assert answer["results"][0]["summary"] == "Wrote about walruses."


async def test_a_save_with_an_outdated_head_says_what_to_do(call: Caller) -> None:
    thread = a_thread()
    first = await call("checkpoint_save", thread_id=thread, state_json="{}", expected_head="")
    await call("checkpoint_save", thread_id=thread, state_json='{"n": 1}')
    said = await call.refused(
        "checkpoint_save",
        thread_id=thread,
        state_json='{"n": 2}',
        expected_head=first["checkpoint_id"],
    )
    assert "HEAD_MOVED" in said
    assert "checkpoint_resume" in said


async def test_a_changed_blob_fails_the_trail(
    call: Caller, client: Client, server: ServerProcess
) -> None:
    thread = a_thread()
    saved = client.save(thread, {"n": 1}, durability="certified")
    location = client.load(thread, saved).location
    assert location is not None
    _tamper(server.data_dir, location.blob_id)
    trail = await call("verify_trail", thread_id=thread)
    assert (trail["ok"], trail["tampered_count"]) == (False, 1)
    [step] = trail["steps"]
    assert (step["checkpoint_id"], step["status"]) == (saved, "FAIL")
    assert step["stored_hash"] != step["recomputed_hash"]


def _tamper(data_dir: Path, blob_id: str) -> None:
    [blob] = data_dir.rglob(f"*{blob_id}*")
    changed = blob.read_bytes().replace(b"\0", b"\1")
    blob.chmod(0o600)
    blob.write_bytes(changed)


SMALL = {"thread_id": "t", "state_json": "{}"}
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("checkpoint_save", {"thread_id": "t", "state_json": "{"}, "state_json is not JSON"),
    ("checkpoint_save", {"thread_id": "t", "state_json": "[1]"}, "is not a JSON object"),
    ("checkpoint_save", {"thread_id": "t", "state_json": '{"n": NaN}'}, "NaN is not JSON"),
    ("checkpoint_save", {"thread_id": "", "state_json": "{}"}, "thread_id"),
    ("checkpoint_save", {"thread_id": "t"}, "state_json"),
    ("checkpoint_save", {**SMALL, "durability": "very"}, "durability"),
    ("checkpoint_load", {"thread_id": "no such"}, "thread_list the threads"),
    ("checkpoint_load", {"thread_id": "no such", "checkpoint_id": "x"}, "CHECKPOINT_NOT_FOUND"),
    ("checkpoint_load", {"thread_id": "t", "max_chars": 1}, "max_chars"),
    ("checkpoint_list", {"thread_id": "no such"}, "THREAD_NOT_FOUND"),
    ("checkpoint_list", {"thread_id": "t", "limit": 0}, "limit"),
    ("checkpoint_diff", {"thread_id": "no such", "id_a": "a", "id_b": "b"}, "NOT_FOUND"),
    ("checkpoint_search", {"query": ""}, "must not be empty"),
    ("checkpoint_rollback", {"thread_id": "no such", "checkpoint_id": "x"}, "NOT_FOUND"),
    ("adopt_checkpoint", {"handoff_json": "{", "new_thread_id": "n"}, "not JSON"),
    ("adopt_checkpoint", {"handoff_json": "{}", "new_thread_id": "n"}, "lacks source"),
    ("adopt_checkpoint", {"handoff_json": {"source": 1}, "new_thread_id": "n"}, "lacks"),
    ("verify_trail", {"thread_id": "no such"}, "THREAD_NOT_FOUND"),
    ("thread_list", {"state": "asleep"}, "state"),
    ("thread_answer", {"thread_id": "no such", "answer_json": "yes"}, "in double quotes"),
    ("thread_answer", {"thread_id": "no such", "answer_json": "true"}, "NOT_FOUND"),
    ("thread_history", {"thread_id": "t", "cursor": "?"}, "cursor is not from"),
    ("thread_history", {"thread_id": "no such"}, "THREAD_NOT_FOUND"),
    ("checkpoint_forget", {}, "checkpoint_forget"),
]


async def test_bad_input_is_refused_in_words(call: Caller) -> None:
    for name, arguments, words in BAD:
        assert words in await call.refused(name, **arguments), (name, arguments)


async def test_names_that_are_taken_are_refused(call: Caller) -> None:
    thread = a_thread()
    saved = await call("checkpoint_save", thread_id=thread, state_json="{}")
    said = await call.refused(
        "checkpoint_fork",
        source_thread_id=thread,
        source_checkpoint_id=saved["checkpoint_id"],
        new_thread_id=thread,
    )
    assert "choose another new_thread_id" in said


async def test_a_recipient_is_passed_on(call: Caller) -> None:
    thread = a_thread()
    saved = await call("checkpoint_save", thread_id=thread, state_json="{}")
    said = await call.refused(
        "handoff_checkpoint",
        thread_id=thread,
        checkpoint_id=saved["checkpoint_id"],
        recipient="age12x0z6rxehdy5zxz38a36nyzln63ttr0r7s4xfdv3cdedmsthw5yqnugr22",
    )
    assert "SEALING_UNAVAILABLE" in said


async def test_an_offer_is_found_and_adopted_once(call: Caller, client: Client) -> None:
    thread, agent = a_thread(), f"agent-{uuid4()}"
    saved = await call("checkpoint_save", thread_id=thread, state_json="{}", summary="s" * 600)
    handed = {"thread_id": thread, "checkpoint_id": saved["checkpoint_id"], "to_agent": agent}
    await call("handoff_checkpoint", **handed, expires_in_s=3600)
    await call("handoff_checkpoint", **handed)
    listed = await call("handoff_list", to_agent=agent, limit=1)
    assert listed["truncated"]
    (offer,) = listed["offers"]
    assert offer["source"] == f"{thread}:{saved['checkpoint_id']}"
    assert (len(offer["summary"]), offer["adopted_thread_id"]) == (500, None)
    assert offer["expires"] > offer["created"]
    new = f"{thread}-taken"
    adopted = await call("adopt_checkpoint", handoff_json=offer["handoff_id"], new_thread_id=new)
    assert (adopted["adopted_from"], adopted["new_thread_id"]) == (offer["source"], new)
    again = {"handoff_json": offer, "new_thread_id": f"{thread}-late"}
    said = await call.refused("adopt_checkpoint", **again)
    assert "adopt another offer of handoff_list" in said
    (other,) = (await call("handoff_list", to_agent=agent))["offers"]
    assert other["expires"] is None
    (taken,) = (await call("handoff_list", to_agent=agent, state="adopted"))["offers"]
    assert taken["adopted_thread_id"] == new
    client.withdraw_handoff(other["handoff_id"])
    assert (await call("handoff_list", to_agent=agent))["offers"] == []
    unknown = {"handoff_json": str(uuid4()), "new_thread_id": "n"}
    assert "handoff_list lists the offers" in await call.refused("adopt_checkpoint", **unknown)
    client.handoff(thread, to_agent=agent)
    (entry,) = (await call("handoff_list", to_agent=agent))["offers"]
    new = f"{thread}-entry"
    adopted = await call("adopt_checkpoint", handoff_json=entry, new_thread_id=new)
    assert (adopted["adopted_from"], adopted["new_thread_id"]) == (entry["source"], new)


async def test_effects_are_listed(call: Caller, client: Client) -> None:
    thread = a_thread()
    with client.effect(thread, "charge:1", name="charge") as effect:
        effect.complete("paid")
    client.begin_effect(thread, "mail", owner="me")
    listed = await call("effect_list", thread_id=thread)
    assert [(entry["key"], entry["state"]) for entry in listed["effects"]] == [
        ("mail", "running"),
        ("charge:1", "done"),
    ]
    only = await call("effect_list", thread_id=thread, state="done", limit=1)
    assert only["effects"][0]["idempotency_key"] == effect.idempotency_key
    assert not only["truncated"]
