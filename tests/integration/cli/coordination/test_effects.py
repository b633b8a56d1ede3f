"""`effects` lists the effects of a thread, and decides the unknown ones."""

from __future__ import annotations

import hashlib
import importlib
import shlex
from pathlib import Path

import pytest

from tests.integration.cli.command_line.kit import run
from tuskpoint import Client
from tuskpoint.cli.exits import Exit

THREAD = "show"  # also the name of a command


@pytest.fixture(scope="module", autouse=True)
def effects(target: str) -> None:
    with Client(target) as client:
        with client.effect(THREAD, "charge:1", name="charge", owner="me") as effect:
            effect.complete({"paid": 9})
        for key in ("mail:a", "mail:b"):
            with pytest.raises(TimeoutError), client.effect(THREAD, key, owner="me"):
                raise TimeoutError("no answer")


def test_an_unknown_effect_is_listed_and_decided(target: str) -> None:
    listed = run(target, "effects", "list", THREAD)
    assert [line.split()[:3] for line in listed.out.splitlines()] == [
        ["EFFECT", "STATE", "ATTEMPT"],
        ["mail:b", "unknown", "1"],
        ["mail:a", "unknown", "1"],
        ["charge:1", "done", "1"],
    ]
    hint = listed.errors.partition("then decide: ")[2].strip()
    assert hint == f"tuskpoint effects resolve {THREAD} mail:b --done|--not-done"
    words = shlex.split(hint.partition(" --done")[0])[1:]
    assert run(target, *words).code == Exit.USAGE
    decided = run(target, *words, "--not-done", "--by", "eve")
    assert decided.out == f"effect mail:b of thread {THREAD} is not done, and may be tried again\n"
    assert run(target, *words, "--done").code == Exit.REFUSED
    options = ("--done", "--result", '"x"', "--by", "eve", "--json")
    done = run(target, "effects", "resolve", THREAD, "mail:a", *options).object
    assert (done["state"], done["resolved_by"]) == ("done", "eve")
    lines = run(target, "effects", "list", THREAD, "--json").lines
    assert {line["key"]: line["state"] for line in lines} == {
        "mail:a": "done",
        "mail:b": "failed",
        "charge:1": "done",
    }
    only = run(target, "effects", "list", THREAD, "--state", "failed")
    assert only.out.splitlines()[1].split()[:3] == ["mail:b", "not", "done"]


def test_an_effect_is_shown_by_the_start_of_its_key(target: str) -> None:
    shown = run(target, "effects", "show", THREAD, "charge")
    assert 'result           {"paid": 9}' in shown.out
    assert run(target, "effects", "show", THREAD, "charge", "--json").object["result"] == {
        "paid": 9
    }
    assert run(target, "effects", "show", THREAD, "mail").code == Exit.USAGE
    assert run(target, "effects", "show", THREAD, "nope").code == Exit.NOT_FOUND
    with Client(target) as client:
        client.save("empty", {})
    assert run(target, "effects", "empty").errors == "no effects\n"
    assert run(target, "effects", "nobody").code == Exit.NOT_FOUND
    malformed = run(target, "effects", "resolve", THREAD, "mail:a", "--done", "--result", "x")
    assert malformed.code == Exit.USAGE
    assert "--result is not JSON" in malformed.errors


GRAPH = """
from typing import TypedDict
from langgraph.graph import START, StateGraph
from tuskpoint import TuskPointSaver

class State(TypedDict, total=False):
    paid: str
    note: str

saver = TuskPointSaver("TARGET")

def pay(state, config):
    with saver.effect(config, "charge", input={}) as effect:
        if effect.pending:
            effect.complete("receipt 1")
    return {"paid": effect.result, "note": "NOTE"}

graph = StateGraph(State).add_node(pay).add_edge(START, "pay").compile(checkpointer=saver)
"""


def test_changed_code_runs_against_recorded_effects(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, note in (("agent_before", "old"), ("agent_after", "new")):
        text = GRAPH.replace("TARGET", target).replace("NOTE", note)
        Path(f"{name}.py").write_text(text, encoding="utf-8")
    renamed = Path("agent_after.py").read_text(encoding="utf-8").replace('"charge"', '"pay"')
    Path("agent_renamed.py").write_text(renamed, encoding="utf-8")
    before = importlib.import_module("agent_before")
    config = {"configurable": {"thread_id": "replayed"}}
    assert before.graph.invoke({}, config)["paid"] == "receipt 1"
    ran = run(target, "replay-with", "agent_after:graph", "replayed")
    assert ran.code == 0, ran.errors
    assert ran.out.splitlines()[1:] == ['~ note: "old" -> "new"']
    unrecorded = run(target, "replay-with", "agent_renamed:graph", "replayed")
    assert unrecorded.code == Exit.REFUSED
    assert "only answers recorded effects" in unrecorded.errors
    assert run(target, "replay-with", "agent_before:State", "replayed").code == Exit.USAGE
    assert run(target, "replay-with", "nowhere:graph", "replayed").code == Exit.USAGE
    with Client(target) as client:
        assert len([*client.list_effects("replayed")]) == 1


def test_a_verification_names_effects_and_threads_without_checkpoints(target: str) -> None:
    shown = run(target, "verify", "--all", THREAD)
    name = f"effect {hashlib.sha256(b'charge:1').hexdigest()[:16]}"
    assert name in shown.out
    verdicts = run(target, "verify", THREAD, "--json").lines[:-1]
    assert {verdict["is_effect"] for verdict in verdicts} == {True}
    with Client(target) as client:
        client.acquire_lease("leased", owner="me")
    empty = run(target, "verify", "leased")
    assert (empty.code, "has no checkpoints to verify" in empty.errors) == (Exit.REFUSED, True)
