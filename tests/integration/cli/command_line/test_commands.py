"""Every command of `tuskpoint` works for people and for programs, as its page says."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.command_line.kit import run
from tests.integration.cli.command_line.world import WHEN, World
from tools.command_line_page import REFERENCE, interrupt
from tuskpoint import Client
from tuskpoint.cli.commands.coordination.effects import EFFECTS
from tuskpoint.cli.commands.coordination.leases import LEASES
from tuskpoint.cli.commands.items import ITEMS
from tuskpoint.cli.commands.lineage.snapshots import SNAPSHOTS
from tuskpoint.cli.commands.retention import RETENTION
from tuskpoint.cli.commands.webhooks import WEBHOOKS
from tuskpoint.cli.exits import MEANINGS, Exit
from tuskpoint.cli.program import PROGRAM
from tuskpoint.cli.session import Settings


@dataclass(frozen=True)
class Case:
    """A command, its output for people, and whether programs get many objects.

    In the arguments `NAME` is "people" or "json", `FIRST` and `SECOND` are checkpoints of the
    thread "atlas", `SNAPSHOT`, `DESCRIPTOR` and `EXPORTED` are a snapshot, a descriptor and an
    export of this thread, and `FOLDER` is a directory.
    """

    name: str
    arguments: str
    says: str
    is_stream: bool = False
    given: str | None = None


CASES = [
    Case("threads", "threads", rf"(?m)^atlas +planner +idle +\S{{18}} +{WHEN}", is_stream=True),
    Case(
        "list",
        "list atlas",
        rf"(?m)^\S{{18}} +{WHEN} +certified +half +plan, step +finished",
        is_stream=True,
    ),
    Case("show", "show atlas FIRST", r'plan: \["read", "write"\]'),
    Case("save", "save saved-NAME -m three", r"^saved \S{36} in thread saved-", given='{"n": 3}'),
    Case("label", "label labelled-NAME best", r"^checkpoint \S{36} .* is labelled 'best'"),
    Case("history", "history", r"(?m)^│? +[├└]── atlas$", is_stream=True),
    Case("replay", "replay atlas", r"(?s)^\S{36}  finished step 1\n.*step 3", is_stream=True),
    Case("watch", "watch atlas -n 2", r"checkpoint_saved +\S{18}  finished step 1", is_stream=True),
    Case("diff", "diff atlas FIRST SECOND", r"(?m)^~ step: 1 -> 2$"),
    Case("fork", "fork atlas FIRST --as forked-NAME", r"^forked atlas:\S{36} as thread forked-"),
    Case("rollback", "rollback atlas SECOND", r"^thread atlas is back at \S{36}: \S{36} is its"),
    Case("restore", "restore restored-NAME --label first --yes", r"^thread restored-\w+ is back"),
    Case("delete", "delete gone-NAME --yes", r"^deleted thread gone-\w+: 2 checkpoints", True),
    Case("copy", "copy atlas --as copy-of-NAME", r"^copied thread atlas as copy-of-\w+: \d check"),
    Case("lineage", "lineage atlas", r"(?m)^fork +\S{18} +forked-\w+:\S{18} +just now"),
    Case("prune", "prune pruned-NAME --yes", r"^pruned thread pruned-\w+: 1 checkpoint", True),
    Case("delete-runs", "delete-runs run-NAME --yes", r"^deleted 1 checkpoint of 1 run$"),
    Case("retention show", "retention show", r"^$"),
    Case(
        "retention show THREAD",
        "retention show kept-NAME",
        r"^thread kept-\w+ is deleted 90 d after its last change: \d{4}-.* \(in 89 d\)",
        is_stream=True,
    ),
    Case(
        "retention set", "retention set set-NAME never", r"^thread set-\w+ is kept, unless a rule"
    ),
    Case(
        "retention preview",
        "retention preview -",
        r"(?s)^rule: every thread.*\nwould delete 0 threads and in all \d+ checkpoints: ",
        given='[[retention]]\ntenant = "*"\nkeep_last = 1\n',
    ),
    Case("lease show", "lease show atlas", r"^nobody has the lease of thread atlas$"),
    Case(
        "lease release", "lease release held-NAME --yes", r"^released thread held-\w+, which ada "
    ),
    Case("items namespaces", "items namespaces users", r"(?m)^users\.ada$", is_stream=True),
    Case(
        "items search",
        "items search users.ada",
        rf"(?m)^users.ada +food +{WHEN} +\{{",
        is_stream=True,
    ),
    Case("items get", "items get users.ada food", r'(?s)^namespace  users.ada\n.*\{"likes": "rye"'),
    Case("items put", "items put notes NAME", r"^put \w+ in notes \(journaled\)", given="{}"),
    Case("items delete", "items delete users.bob NAME --yes", r"^deleted 1 item in users.bob$"),
    Case(
        "manifest", "manifest atlas", r"(?m)^\S{18}  \S{43}  \d+ B +finished step 1", is_stream=True
    ),
    Case("manifest --store", "manifest atlas --store", r"^stored the manifest of thread atlas: "),
    Case("erase", "erase erased-NAME --yes", r'^\{"content": "\{\\"kind\\":\\"tuskpoint', True),
    Case("handoff", "handoff atlas FIRST --to writer", r'"to_agent": "writer"'),
    Case("adopt", "adopt DESCRIPTOR --as adopted-NAME", r"^adopted atlas:\S{36} as thread adopted"),
    Case("import", "import EXPORTED --prefix NAME-", r"^imported 1 thread, 3 ch.*, equal to", True),
    Case("export", "export FOLDER/NAME --thread atlas", r"^exported 1 thread, \d checkpoints to /"),
    Case("verify", "verify atlas --all", r"(?m)^pass +\S{18} +\d+ B +[0-9a-f]{16}", is_stream=True),
    Case("search", 'search "finished step" -n 3', r"(?m)^\S+ +\S{18} +-?\d\.\d{3} +finished step"),
    Case("snapshot create", "snapshot create atlas", r"^captured 1 thread as snapshot \S{36}"),
    Case("snapshot list", "snapshot list --session monday", rf"{WHEN} +1 +monday", is_stream=True),
    Case("snapshot show", "snapshot show SNAPSHOT", r"(?m)^atlas +\S{36}"),
    Case("snapshot restore", "snapshot restore SNAPSHOT", r"^thread atlas continues as "),
    Case("snapshot delete", "snapshot delete DROP --yes", r"^deleted snapshot \S{36}"),
    Case("answer", "answer asks-NAME yes", r"^answered checkpoint \S{36} of thread asks-"),
    Case("status", "status", r"(?s)^server .*\nhealth +ok\nbacklog .*\ncatalog +\S{43}\n"),
    Case("accept-clock", "accept-clock", r"^the clock has not moved; nothing to accept\n$"),
    Case("flush", "flush", r"^certified \d+ checkpoints?\n$"),
    Case("trail", "trail --thread atlas", r"(?m) SaveCheckpoint +atlas +OK +\d", is_stream=True),
    Case(
        "effects list",
        "effects set-NAME",
        rf"(?m)^charge:1 +unknown +1 +{WHEN} +shop +no answer$",
        is_stream=True,
    ),
    Case("effects show", "effects show set-NAME charge", r"(?m)^error +no answer$"),
    Case(
        "effects resolve",
        "effects resolve set-NAME charge --not-done",
        r"^effect charge:1 of thread set-\w+ is not done, and may be tried again$",
    ),
    Case(
        "webhooks list",
        "webhooks list",
        r"(?m)^gone +http://127.0.0.1:\d+ +thread.waiting +\d .* it answered 410$",
        is_stream=True,
    ),
    Case(
        "webhooks events",
        "webhooks events gone",
        r"(?m)^\d+ +thread.waiting +asks-people .* +(parked|waiting)",
        is_stream=True,
    ),
    Case("webhooks retry", "webhooks retry gone", r"^\d parked events? posted again\n$"),
    Case("webhooks test", "webhooks test accepts", r"^webhook accepts answered 204 in 0\.\d\d s"),
    Case("browse", "browse atlas --stdin", r"^atlas  \d checkpoints\n├── 1  ", given="q\n"),
]


def arguments_of(world: World, case: Case, name: str) -> list[str]:
    with Client(world.target) as client:
        dropped = next(client.list_snapshots(session_id=f"drop-{name}"), None)
    places = {
        "NAME": name,
        "FIRST": world.ids[0],
        "SECOND": world.ids[1],
        "SNAPSHOT": world.snapshot,
        "DESCRIPTOR": str(world.descriptor),
        "EXPORTED": str(world.descriptor.with_name("exported")),
        "FOLDER": str(world.descriptor.parent),
        "DROP": dropped.snapshot_id if dropped else "",
    }
    text = case.arguments
    for place, value in places.items():
        text = re.sub(rf"\b{place}\b|(?<=-){place}\b", value, text)
    return re.findall(r'"[^"]*"|\S+', text)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_command_for_people_and_for_programs(world: World, case: Case) -> None:
    people = world.run(*arguments_of(world, case, "people"), given=case.given)
    assert (people.code, people.errors.count("error")) == (0, 0), people.errors
    assert re.search(case.says, people.out), people.out
    program = world.run(*arguments_of(world, case, "json"), "--json", given=case.given)
    assert program.code == 0, program.errors
    shapes = program.lines if case.is_stream else [program.object]
    assert len(shapes) >= 1
    reported = documented_keys()
    assert (
        case.name == "handoff" or {key for shape in shapes for key in shape} == reported[case.name]
    )
    assert undocumented_inside(shapes) == {}


# objects with free keys, or described elsewhere
FREE = {"metadata", "state", "heads", "answer", "checkpoint", "value"}


def undocumented_inside(shapes: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Return the nested objects whose keys differ from the page."""
    page = REFERENCE.read_text(encoding="utf-8").partition("| inside | keys |")[2]
    rows = re.findall(r"(?m)^\| (`[^|]*) \| ([^|]*) \|$", page.partition("\n\n")[0])
    reported = {
        name: set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", keys)))
        for names, keys in rows
        for name in re.findall(r"`(\w+)`", names)
    }
    assert len(reported) > 10
    differ = {}
    for shape in shapes:
        for key, value in shape.items():
            inner = value if isinstance(value, list) else [value]
            keys = {name for item in inner if isinstance(item, dict) for name in item}
            if keys and key not in FREE and keys != reported.get(key):
                differ[key] = keys
    return differ


def documented_keys() -> dict[str, set[str]]:
    """Return the keys of each command on the page."""
    page = REFERENCE.read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| (`[^|]*) \| (?:an object|lines) \| ([^|]*) \|$", page)
    return {
        name: set(re.findall(r"`(\w+)`", keys))
        for names, keys in rows
        for name in re.findall(r"`([\w -]+)`", names)
    }


def test_every_command_has_a_case_and_its_keys_on_the_page() -> None:
    commands = {command.name for command in PROGRAM.registered_commands if command.name}
    groups = {
        "effects": EFFECTS,
        "snapshot": SNAPSHOTS,
        "retention": RETENTION,
        "items": ITEMS,
        "lease": LEASES,
        "webhooks": WEBHOOKS,
    }
    for name, group in groups.items():
        commands |= {f"{name} {command.name}" for command in group.registered_commands}
    commands -= {"mcp"}  # a server, whose tests are in tests/integration/mcp
    commands -= {"replay-with"}  # its test, which needs a graph, is in test_effects.py
    commands -= {"lease run"}  # prints only what its command prints; see test_leases.py
    commands |= {"retention show THREAD", "manifest --store"}  # variants with other output
    assert {case.name for case in CASES} == commands
    assert set(documented_keys()) == commands - {"handoff"}


def test_the_page_has_the_exit_codes() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| (\d+) \| `(\w+)` \| (.*) \|$", page)
    assert rows == [(str(int(code)), code.name.lower(), said) for code, said in MEANINGS.items()]
    assert set(MEANINGS) == set(Exit)


def test_the_page_has_the_options_of_all_commands_and_their_environment() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    names = [field.name for field in fields(Settings)]
    reported = {"is_json": "--json", "tls": "--no-tls"}
    options = [reported.get(name, f"--{name.replace('_', '-')}") for name in names]
    assert [option for option in options if f"`{option}" not in page] == []
    helped = set(re.findall(r"TUSKPOINT_\w+|NO_COLOR", run("", "--help", columns=200).out))
    assert len(helped) > 6
    assert [name for name in helped if f"`{name}`" not in page] == []


def test_options_come_before_or_after_the_command(world: World) -> None:
    before = run("127.0.0.1:1", "--json", "--target", world.target, "threads", "atlas")
    after = run("127.0.0.1:1", "threads", "atlas", "--target", world.target, "--json")
    assert before.lines == after.lines
    assert before.lines[0]["checkpoint_count"] >= 3


def test_threads_are_filtered_and_described(world: World) -> None:
    with Client(world.target) as client:
        interrupt(client, "waits", client.save("waits", {}), "continue?")
    waiting = world.run("threads", "--state", "interrupted", "--json").lines
    assert "waits" in [thread["thread_id"] for thread in waiting]
    assert {thread["state"] for thread in waiting} == {"interrupted"}
    half = world.run("threads", "--label", "half", "--agent", "planner", "--json").lines
    assert "atlas" in [thread["thread_id"] for thread in half]
    latest = world.run("threads", "--latest", "--json").lines
    times = [(datetime.fromisoformat(thread["updated"]), thread["thread_id"]) for thread in latest]
    assert [thread_id for _, thread_id in times] != sorted(thread_id for _, thread_id in times)
    assert times == sorted(times, key=lambda row: (-row[0].timestamp(), row[1]))
    newest = [thread["thread_id"] for thread in latest if thread["updated"] == latest[0]["updated"]]
    since = world.run("threads", "--latest", "--since", latest[0]["updated"], "--json").lines
    assert [thread["thread_id"] for thread in since] == newest
    assert world.run("threads", "--since", "1d", "--latest", "--json").lines == latest
    assert not world.run("threads", "--since", "9999-12-31T23:59:59Z", "--json").lines
    described = world.run("threads", "atlas").out
    assert re.search(r"(?m)^checkpoints  \d, \d of them certified$", described)


def test_save_takes_the_state_that_show_prints(world: World) -> None:
    state = world.run("show", "atlas", world.ids[0], "--state")
    saved = world.run("save", "again", "--json", given=state.out)
    assert saved.code == 0, saved.errors
    with Client(world.target) as client:
        assert client.load("again").state == {"step": 1, "plan": ["read", "write"]}


def test_a_checkpoint_can_be_read_from_the_blob_store(world: World) -> None:
    shown = world.run("show", "atlas", world.ids[0], "--blob", "--json").object
    assert shown["location"]["sha256"]
    assert shown["state"]["step"] == 1


def test_save_with_everything(world: World, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text('{"größe": "30 m²"}', encoding="utf-8")
    first = world.run("save", "full", str(file), "--json").object["checkpoint_id"]
    options = ["--expected-head", first[:14], "--label", "l", "--metadata", '{"a": 1}']
    saved = world.run(
        "save", "full", str(file), *options, "--durability", "certified", "--json"
    ).object
    assert saved["durability"] == "certified"
    shown = world.run("show", "full", "--json").object
    assert (shown["parent_checkpoint_id"], shown["label"]) == (first, "l")
    assert (shown["metadata"], shown["state"]) == ({"a": 1}, {"größe": "30 m²"})
    moved = world.run("save", "full", str(file), "--expected-head", first, "--json")
    assert (moved.code, moved.error["reason"]) == (Exit.REFUSED, "HEAD_MOVED")


def test_an_answer_is_json_or_text(world: World) -> None:
    with Client(world.target) as client:
        for number, (said, options, value) in enumerate(
            [
                ('{"go": true}', (), {"go": True}),
                ("7", (), 7),
                ("7", ("--text",), "7"),
                ("ja", (), "ja"),
            ]
        ):
            thread = f"answered-{number}"
            interrupt(client, thread, client.save(thread, {}), "continue?")
            reported = world.run("answer", thread, said, *options, "--json").object
            assert reported["answer"] == value
            (write,) = [
                write for write in client.load(thread).writes if write.channel == "__resume__"
            ]
            assert write.value == value
            piped = world.run("answer", thread, "-", given=f"{said}\n")
            assert piped.code == 0


def test_open_interrupts_are_shown(world: World) -> None:
    with Client(world.target) as client:
        interrupt(client, "asking", client.save("asking", {}), {"question": "continue?"})
    shown = world.run("show", "asking").out
    assert "state\n  empty\n" in shown
    assert 'waits for an answer to\n  9f3c1a7e5b2d4860: {"question": "continue?"}' in shown


def test_after_an_answer_show_and_threads_agree(world: World) -> None:
    def said_by_both() -> tuple[str, bool, bool]:
        shown = world.run("show", "agreeing").out
        [listed] = [
            line for line in world.run("threads", "--json").lines if line["thread_id"] == "agreeing"
        ]
        return listed["state"], "waits for an answer" in shown, "\nanswered, for" in shown

    with Client(world.target) as client:
        saved = client.save("agreeing", {})
        interrupt(client, "agreeing", saved, "continue?")
        assert said_by_both() == ("interrupted", True, False)
        world.run("answer", "agreeing", "yes")
        assert said_by_both() == ("idle", False, True)
        interrupt(client, "agreeing", saved, "and now?")
        assert said_by_both() == ("interrupted", True, False)


def test_label_is_cleared_by_an_empty_one(world: World) -> None:
    saved = world.run("save", "named", "--label", "x", "--json", given="{}").object
    cleared = world.run("label", "named", "", saved["checkpoint_id"][:20], "--json").object
    assert (cleared["checkpoint_id"], cleared["label"]) == (saved["checkpoint_id"], "")


def test_sums_up_a_backlog(world: World) -> None:
    world.run("flush")
    world.run("save", "unflushed", given="{}")
    status = world.run("status", "--json").object
    assert status["backlog"]["checkpoints"] in (1, 2), "its own, and perhaps a batch of the trail"
    assert status["backlog"]["oldest"] is not None
    assert status["health"] == {"state": "ok", "problems": []}
    assert status["catalog_blob_id"] == status["catalog"]["blob_id"]
    assert re.search(
        r"(?m)^backlog +[12] checkpoints?, [\d.]+ K?i?B, the oldest", world.run("status").out
    )


def test_json_keeps_every_json_value(world: World) -> None:
    state = {"big": 2**60, "text": 'quotes " and é and \u2028', "null": None, "deep": [[1]]}
    world.run("save", "odd", given=json.dumps(state))
    assert world.run("show", "odd", "--state").object == state
