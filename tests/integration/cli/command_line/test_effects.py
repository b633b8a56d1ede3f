"""`effects` lists the effects of a thread, and decides the unknown ones."""

from __future__ import annotations

import shlex

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
