"""`tuskpoint` at a terminal handles width, colour, questions, progress and completion."""

from __future__ import annotations

import json
import re

import pytest

from tests.integration.cli.command_line.kit import (
    NOBODY,
    PATIENCE_S,
    Terminal,
    environment,
    process,
    run,
)
from tuskpoint import Client
from tuskpoint.cli.exits import Exit

pytestmark = pytest.mark.usefixtures("ctrl_c_counts")


def test_an_ascii_terminal_gets_escapes(target: str) -> None:
    ascii_only = environment(target, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    shown = process(target, "list", "ünï ☃", env=ascii_only)
    out, errors = shown.communicate(timeout=PATIENCE_S)
    assert (shown.returncode, errors) == (0, b"")
    assert rb"Das Ma\xdf ist voll" in out
    state = process(target, "show", "ünï ☃", "--state", env=ascii_only)
    out, _ = state.communicate(timeout=PATIENCE_S)
    assert json.loads(out) == {"größe": "30 m²"}


# --- stdout and stderr --------------------------------------------------------------------


def test_unicode_is_shown_and_controls_are_not_obeyed(target: str) -> None:
    shown = run(target, "threads").out
    assert re.search(r"(?m)^ünï ☃ +wächter +idle", shown)
    assert "Das Maß ist voll 👩‍🚀" in run(target, "list", "ünï ☃").out
    for arguments in (["list", "evil"], ["history", "evil"], ["show", "evil"], ["replay", "evil"]):
        printed = run(target, *arguments, columns=200).out
        assert r"red \x1b[31m and new line \u202e bidi" in printed
        assert "\x1b" not in printed
    assert run(target, "show", "evil", "--json").object["state"] == {"x": "\x1b[31m"}


@pytest.mark.parametrize("columns", [30, 50, 72, 80, 200])
def test_tables_and_trees_keep_to_the_width(target: str, columns: int) -> None:
    for arguments in (["threads"], ["list", "many"], ["history"], ["history", "many"]):
        lines = run(target, *arguments, columns=columns).out.splitlines()
        assert max(map(len, lines)) <= columns
        assert len(lines) > 2
    cut = run(target, "list", "many", columns=columns).out
    assert ("step 40 of forty" in cut) is (columns >= 50)


def test_lists_keep_to_100_columns_where_no_width_is_known(target: str) -> None:
    with Client(target) as client:
        client.save("wordy", {}, summary="word " * 100 + "end", agent_id="agent " * 20)
    for arguments in (["list", "wordy"], ["history", "wordy"], ["threads"]):
        lines = run(target, *arguments, env={"COLUMNS": ""}).out.splitlines()
        assert max(map(len, lines)) == 100
    assert "word end\n" in run(target, "list", "wordy", columns=1000).out
    assert "word end\n" in run(target, "show", "wordy", env={"COLUMNS": ""}).out
    assert run(target, "delete", "wordy", "--yes").code == 0


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_ids_in_lists_can_be_pasted_at_any_width(target: str, columns: int) -> None:
    thread_id = f"customer-0af7651916cd43dd8448eb211c80319c-of-{columns}"
    with Client(target) as client:
        saved = client.save(thread_id, {}, agent_id="a" * 80, label="l" * 80, summary="s" * 200)
        client.fork(thread_id, saved, f"{thread_id}-fork")
        for arguments in (["threads"], ["history"], ["history", "--by", "date"]):
            out = run(target, *arguments, columns=columns).out
            assert re.search(rf"(?m)(^| ){thread_id}( |$)", out), out
        for arguments in (["list", thread_id], ["history", f"{thread_id}-fork"]):
            out = run(target, *arguments, columns=columns).out
            assert f"{saved[:18]} " in out
            assert set(re.findall(r"forked from (\S+)", out)) <= {f"{thread_id}:{saved[:18]}"}
        for name in (thread_id, f"{thread_id}-fork"):
            client.delete(name)


# --- at a terminal ------------------------------------------------------------------------


def test_colour_is_for_terminals_and_can_be_switched_off(target: str) -> None:
    colored = Terminal(target, "list", "many", "-n", "1")
    assert colored.end() == 0
    assert "\x1b[36m" in colored.seen
    for terminal in (
        Terminal(target, "list", "many", "-n", "1", "--no-color"),
        Terminal(target, "list", "many", "-n", "1", NO_COLOR="1"),
    ):
        assert terminal.end() == 0
        assert "step 40 of forty" in terminal.seen
        assert "\x1b" not in terminal.seen


def test_delete_asks(target: str) -> None:
    with Client(target) as client:
        client.save("asked", {})
        terminal = Terminal(target, "delete", "asked")
        terminal.expect("Delete thread 'asked' with 1 checkpoint? [y/N] ")
        terminal.type("n")
        assert terminal.end() == Exit.REFUSED
        assert "error: nothing was changed" in terminal.plain
        assert client.thread("asked").checkpoint_count == 1
        terminal = Terminal(target, "delete", "asked")
        terminal.expect("[y/N] ")
        terminal.type("yes")
        assert terminal.end() == 0
        assert "deleted thread asked: 1 checkpoint" in terminal.plain


def test_restore_shows_the_changes_and_asks(target: str) -> None:
    with Client(target) as client:
        client.save("back", {"n": 1}, label="good")
        client.save("back", {"n": 2})
        terminal = Terminal(target, "restore", "back", "--label", "good")
        terminal.expect("? [y/N] ")
        assert "~ n: 2 -> 1" in terminal.plain
        terminal.type("y")
        assert terminal.end() == 0
        assert client.load("back").state == {"n": 1}


def test_browse_at_a_terminal(target: str) -> None:
    terminal = Terminal(target, "browse", "many")
    terminal.expect("many (a number picks it")
    terminal.type("1")
    terminal.expect("s: state")
    terminal.type("s")
    terminal.expect("n: 40")
    terminal.type("q")
    assert terminal.end() == 0


def test_ctrl_c_at_a_question_ends_it_quietly(target: str) -> None:
    terminal = Terminal(target, "delete", "many")
    terminal.expect("[y/N] ")
    terminal.interrupt()
    assert terminal.end() == Exit.INTERRUPTED
    assert "Traceback" not in terminal.seen


def test_nothing_to_read_at_a_terminal_is_reported(target: str) -> None:
    terminal = Terminal(target, "save", "t")
    assert terminal.end() == Exit.USAGE
    assert "error: the state is missing: name a file, or pipe it in" in terminal.plain


def test_long_work_shows_a_bar_where_it_does_not_disturb(target: str) -> None:
    piped = Terminal(target, "replay", "many", "--json", is_piped=True)
    assert piped.process.stdout is not None
    with piped.process.stdout as stdout:
        lines = stdout.read().splitlines()
    assert piped.end() == 0
    assert len(lines) == 40
    assert re.search(r"replaying ━+ .*40/40.*checkpoints/s", piped.plain)
    together = Terminal(target, "replay", "many", "--json")
    assert together.end() == 0
    assert "replaying" not in together.seen


# --- completion ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("tuskpoint his", "history"),
        ("tuskpoint snapshot cr", "create"),
        ("tuskpoint show ma", "many"),
        ("tuskpoint history --by da", "date"),
        ("tuskpoint list many --li", "--limit"),
    ],
)
def test_the_shell_completes(target: str, words: str, offered: str) -> None:
    complete = {
        "_TUSKPOINT_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    assert run(target, env=complete).out.split() == [offered]


def test_the_shell_is_offered_no_more_than_words(target: str) -> None:
    with Client(target) as client:
        for name in (
            "typed-1",
            "typed;reboot",
            "typed$(reboot)",
            "typed two",
            "typed*",
            "typed\x1b[2J",
        ):
            client.save(name, {}, agent_id='"$(reboot)" `x` and more')
        client.save("--typed", {})
    complete = {"COMP_WORDS": "tuskpoint show ty", "COMP_CWORD": "2"}
    bash = run(target, env={**complete, "_TUSKPOINT_COMPLETE": "complete_bash"})
    assert bash.out.splitlines() == ["typed-1"]
    zsh = {"_TYPER_COMPLETE_ARGS": "tuskpoint show ty", "_TUSKPOINT_COMPLETE": "complete_zsh"}
    assert '"typed-1":"reboot x and more"' in run(target, env=zsh).out


def test_the_shell_completes_checkpoints(target: str) -> None:
    with Client(target) as client:
        saved = client.save("completed", {}, summary="only one")
    complete = {
        "_TUSKPOINT_COMPLETE": "complete_bash",
        "COMP_WORDS": f"tuskpoint show completed {saved[:6]}",
        "COMP_CWORD": "3",
    }
    assert run(target, env=complete).out.split() == [saved]
    assert run(NOBODY, env=complete).out.split() == []
