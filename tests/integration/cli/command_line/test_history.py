"""`history`, `replay` and `watch` show the tree of a thread, days, and events after a cursor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.cli.command_line.world import WHEN, World
from tuskpoint import CheckpointRecord, Client


def test_history_of_a_thread_shows_branches(world: World) -> None:
    first = world.run("save", "tree", "-m", "one", "--json", given='{"n": 1}').object
    world.run("save", "tree", "-m", "two", given='{"n": 2}')
    world.run("save", "tree", "-m", "other two", "--parent", first["checkpoint_id"], given="{}")
    shown = world.run("history", "tree").out.splitlines()
    assert [re.sub(rf"\S{{18}}  {WHEN}", "ID", line.rstrip()) for line in shown] == [
        "tree  3 checkpoints",
        "├── ID  latest  other two",
        "└── ID  one",
        "    └── branch of 1 checkpoint",
        "        └── ID  two",
    ]


def test_history_of_a_thread_of_thousands_is_flat(world: World) -> None:
    with Client(world.target) as client:
        for number in range(1, 61):
            client.save("long", {"n": number}, summary=f"step {number}")
    shown = world.run("history", "long").out.splitlines()
    assert len(shown) == 51  # the title and the latest 50 checkpoints
    assert {line[:4] for line in shown[1:]} == {"├── ", "└── "}
    assert len(world.run("history", "long", "--json").lines) == 60
    assert len(world.run("list", "long", "--limit", "60").out.splitlines()) == 61


def test_history_by_date_names_threads_and_agents(world: World) -> None:
    shown = world.run("history", "--by", "date", "--limit", "500").out
    assert re.search(r"(?m)^[├└]── \d{4}-\d\d-\d\d$", shown)
    assert re.search(rf"atlas  \(planner\)  \S{{18}}  {WHEN}", shown)


def test_history_by_date_is_by_the_time_of_saving(world: World) -> None:
    oldest = "00000000-0000-6000-8000-000000000001"
    world.run("save", "late", "--id", oldest, "-m", "saved last", given="{}")
    shown = world.run("history", "--by", "date", "--limit", "1").out
    assert "saved last" in shown


def test_history_reads_no_more_than_it_shows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(world.target) as client:
        for thread in ("quiet", "busy"):
            for number in range(20):
                client.save(thread, {"n": number}, summary=f"{thread} {number}")
    read: list[str] = []

    def listed(self: Client, *arguments: Any, **options: Any) -> Iterator[CheckpointRecord]:
        for record in whole(self, *arguments, **options):
            read.append(record.thread_id)
            yield record

    whole = Client.list
    monkeypatch.setattr(Client, "list", listed)
    for arranged in ("agent", "date"):
        read.clear()
        shown = world.run("history", "--by", arranged, "--limit", "5", "--json").lines
        assert [line["summary"] for line in shown] == [f"busy {n}" for n in range(19, 14, -1)]
        assert read == ["busy"] * 6
    read.clear()
    world.run("history", "busy", "--by", "date", "--limit", "5")
    assert read == ["busy"] * 6


def test_history_for_programs_has_the_order_of_the_tree(world: World) -> None:
    with Client(world.target) as client:
        for thread, agent in (("one", "x"), ("two", "y"), ("three", "x"), ("one", "x")):
            client.save(thread, {}, agent_id=agent)
        client.save("two", {}, checkpoint_id="00000000-0000-6000-8000-000000000002")

    def order(*arguments: str) -> list[str]:
        lines = world.run("history", "--json", *arguments).lines
        return [line["thread_id"] for line in lines]

    assert order("--by", "date", "--limit", "5") == ["two", "one", "three", "two", "one"]
    assert order("--by", "date")[:5] == ["two", "one", "three", "two", "one"]
    assert order("--by", "agent", "--limit", "5") == ["two", "two", "one", "one", "three"]
    assert order("--limit", "5") == order("--by", "agent", "--limit", "5")
    shown = world.run("history", "--limit", "5").out
    assert [shown.index(f" {thread}\n") for thread in ("two", "one", "three")] == sorted(
        shown.index(f" {thread}\n") for thread in ("two", "one", "three")
    )
    saved = world.run("history", "two", "--by", "date", "--json").lines
    assert saved[0]["checkpoint_id"] == "00000000-0000-6000-8000-000000000002"


def test_replay_of_a_part(world: World) -> None:
    part = world.run(
        "replay", "atlas", "--from", world.ids[1], "--to", world.ids[2], "--json"
    ).lines
    assert [line["checkpoint_id"] for line in part] == list(world.ids[1:])
    assert [line["state"]["step"] for line in part] == [2, 3]
    entries = world.run("replay", "atlas", "--view", "entry", "--json").lines
    assert "state" not in entries[0]


def test_watch_goes_on_after_a_cursor(world: World) -> None:
    first = world.run("watch", "atlas", "-n", "1", "--json").lines[0]
    second = world.run("watch", "atlas", "-n", "1", "--cursor", first["cursor"], "--json").lines[0]
    assert second["seq"] == first["seq"] + 1
    kinds = world.run("watch", "atlas", "-n", "2", "--kind", "label_set", "--json", "--help")
    assert kinds.code == 0
    with_state = world.run("watch", "atlas", "-n", "1", "--view", "json", "--json").lines[0]
    assert with_state["checkpoint"]["state"]["step"] == 1
