"""`tuskpoint` ends with the right exit code, one line for an error, and quietly on Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.cli.command_line.kit import NOBODY, PATIENCE_S, environment, process, run
from tests.kit.blobs.member_file import MemberFile
from tuskpoint import Client
from tuskpoint.cli.commands import server as server_commands
from tuskpoint.cli.exits import MEANINGS, Exit
from tuskpoint.v1.checkpoint_pb2 import Checkpoint, CheckpointRef, CheckpointState
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest
from tuskpoint.v1.value_pb2 import Channel, Value, Version

pytestmark = pytest.mark.usefixtures("ctrl_c_counts")


# --- exit codes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["threads"], Exit.OK, ""),
        (
            ["show", "nope"],
            Exit.NOT_FOUND,
            "thread 'nope' not found, or it has no checkpoint: `tuskpoint ",
        ),
        (
            ["show", "00000000-0000-0000-0000-000000000000"],
            Exit.NOT_FOUND,
            "no thread and no checkpoint '00000000-0000-0000-0000-000000000000': `tuskpoint ",
        ),
        (["list", "nope"], Exit.NOT_FOUND, "nope"),
        (["history", "nope"], Exit.NOT_FOUND, "nope"),
        (["replay", "nope"], Exit.NOT_FOUND, "nope"),
        (["watch", "nope"], Exit.NOT_FOUND, "nope"),
        (["verify", "nope"], Exit.NOT_FOUND, "nope"),
        (["delete", "nope", "--yes"], Exit.NOT_FOUND, "nope"),
        (["fork", "nope"], Exit.NOT_FOUND, "thread 'nope' not found, or it has no checkpoint: "),
        (["handoff", "nope"], Exit.NOT_FOUND, "thread 'nope' not found, or it has no checkpoint: "),
        (["browse", "nope", "--stdin"], Exit.NOT_FOUND, "nope"),
        (["answer", "nope", "yes"], Exit.NOT_FOUND, "nope"),
        (["show", "many", "ffff"], Exit.NOT_FOUND, "thread 'many' has no checkpoint 'ffff': "),
        (["show", "many", "--ns", "sub"], Exit.NOT_FOUND, "in namespace 'sub': "),
        (["restore", "many", "--label", "x"], Exit.NOT_FOUND, "no checkpoint labelled 'x'"),
        (["snapshot", "show", "nope"], Exit.NOT_FOUND, "no snapshot 'nope'"),
        (
            ["snapshot", "show", "latest"],
            Exit.NOT_FOUND,
            "no snapshot 'latest': `tuskpoint snapshot",
        ),
        (["show", "many", "1"], Exit.USAGE, "more than 3 checkpoints of thread 'many' begin with"),
        (["shw"], Exit.USAGE, "Did you mean 'show'"),
        (["show"], Exit.USAGE, "Missing argument 'THREAD|CHECKPOINT': see `tuskpoint show --help`"),
        (["list", "many", "--limit", "0"], Exit.USAGE, "--limit"),
        (["list", "many", "--metadata", "[]"], Exit.USAGE, "--metadata is not a JSON object"),
        (
            ["history", "--by", "parent"],
            Exit.USAGE,
            "--by parent needs a thread: name the thread",
        ),
        (["watch", "many", "--cursor", "?"], Exit.USAGE, "--cursor is not what"),
        (["--target", "http://x", "threads"], Exit.USAGE, "is not a target"),
        (
            ["threads", "--since", "2w"],
            Exit.USAGE,
            "--since: '2w' is not a time such as 12h, 7d or",
        ),
        (["--timeout", "0", "threads"], Exit.USAGE, "--timeout is a number of seconds above 0"),
        (["--timeout", "nan", "threads"], Exit.USAGE, "--timeout is a number of seconds above 0"),
        (["show", "--dashed"], Exit.USAGE, "put -- before a name that begins with a dash"),
        (["--ca-file", "/nope", "threads"], Exit.USAGE, "'/nope' cannot be read"),
        (["save", "t", "/nope"], Exit.USAGE, "'/nope' cannot be read: No such file"),
        (["save", "t"], Exit.USAGE, "the state is not JSON"),
        (["adopt"], Exit.USAGE, "descriptor"),
        (["answer", "many", "null"], Exit.USAGE, "null is not an answer: --text sends it"),
        (["handoff", "many", "-o", "/nope/d"], Exit.USAGE, "'/nope/d' cannot be written"),
        (["delete", "many"], Exit.USAGE, "stdin is not a terminal: give --yes"),
        (["browse"], Exit.USAGE, "stdin is not a terminal: use `list`"),
        (
            ["answer", "many", "yes"],
            Exit.REFUSED,
            "waits for no answer: `tuskpoint threads --state",
        ),
        (["fork", "many", "--as", "many"], Exit.REFUSED, "name another thread with --as"),
        (["show", "many", "--blob"], Exit.REFUSED, "`tuskpoint flush` certifies it"),
        (["verify", "many"], Exit.REFUSED, "nothing of thread 'many' is certified yet: `tuskpoint"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_exit_code_and_one_line(
    target: str, arguments: list[str], code: Exit, says: str
) -> None:
    people = run(target, *arguments)
    assert people.code == code, people.errors
    if code is Exit.OK:
        return
    (line,) = people.errors.splitlines()
    assert line.startswith("error: ")
    assert says in line
    program = run(target, *arguments, "--json")
    assert (program.code, program.error["exit_code"]) == (code, code)
    assert program.error["kind"] == code.name.lower()
    assert set(program.error) == {
        *("kind", "exit_code", "message", "hint", "status", "reason"),
        *("metadata", "violations", "retry_after_s"),
    }


def test_no_server() -> None:
    people = run(NOBODY, "threads")
    assert people.code == Exit.UNREACHABLE
    assert people.errors.startswith("error: no TuskPoint server answers at 127.0.0.1:1: start one")
    assert len(people.errors.splitlines()) == 1
    assert run(NOBODY, "threads", "--json").error["status"] == "UNAVAILABLE"


def test_a_server_without_tls_is_reported_in_one_line(target: str) -> None:
    """A new interpreter is needed: gRPC, once it is loaded, writes to the process's stderr."""
    command = [sys.executable, "-m", "tuskpoint.cli", "threads", "--tls", "--json"]
    done = subprocess.run(command, capture_output=True, check=False, env=environment(target))
    (line,) = done.stderr.decode().splitlines()
    assert (done.returncode, json.loads(line)["error"]["kind"]) == (5, "unreachable")


def test_a_state_that_is_not_json_is_shown_and_not_printed_alone(target: str) -> None:
    value = Value(type="msgpack", data=b"\x92\x01\xc0")
    state = CheckpointState(
        schema_version=4,
        ts="2026-03-01T09:30:00+00:00",
        channels=[Channel(name="messages", version=Version(integer=1), value=value)],
    )
    with Client(target) as client:
        ref = CheckpointRef(thread_id="framework")
        client._calls.save_checkpoint(
            SaveCheckpointRequest(checkpoint=Checkpoint(ref=ref, state=state))
        )
    assert "  messages: [1, null]\n" in run(target, "show", "framework").out
    alone = run(target, "show", "framework", "--state")
    assert (alone.code, alone.errors) == (
        Exit.REFUSED,
        "error: channel 'messages' is of type 'msgpack', which is not JSON: without --state it is "
        "shown in the JSON view\n",
    )


def test_a_file_that_is_not_text(target: str) -> None:
    saved = run(target, "save", "t", given=b'{"a": "\xff"}')
    assert (saved.code, saved.errors) == (
        Exit.USAGE,
        "error: the state is not UTF-8: byte 8 cannot be read: convert it, such as with "
        "`iconv -t UTF-8`\n",
    )


def test_damage_is_reported_by_its_own_exit_code(target: str, directory: Path) -> None:
    with Client(target) as client:
        saved = client.save("harmed", {"n": 1}, durability="certified")
        descriptor = client.handoff("harmed").as_dict()
        place = client.load("harmed", saved).location
        assert place is not None
        MemberFile.at(directory / "data" / "blobs", place).write_bytes(b"another thing")
        people = run(target, "verify", "harmed")
        assert people.code == Exit.INTEGRITY
        assert re.search(r"(?m)^fail +\S{18} ", people.out)
        assert people.errors.startswith(
            "error: 1 checkpoint of thread 'harmed' failed: do not continue"
        )
        program = run(target, "verify", "harmed", "--json")
        assert program.lines[-1]["ok"] is False
        assert program.error["kind"] == "integrity"
        read = run(target, "show", "harmed", "--blob", "--json")
        assert (read.code, read.error["reason"]) == (Exit.INTEGRITY, "BLOB_HASH_MISMATCH")
        unsigned = {key: descriptor[key] for key in descriptor if not key.startswith("sign")}
        lying = json.dumps({**unsigned, "blob_sha256": "0" * 64})
        adopted = run(target, "adopt", "--json", given=lying)
        assert (adopted.code, adopted.error["reason"]) == (Exit.INTEGRITY, "BLOB_HASH_MISMATCH")


def label_behind_its_back(directory: Path, thread_id: str, label: str) -> None:
    """Change the label of a thread's checkpoints in the database of a running server."""
    with closing(sqlite3.connect(directory / "data" / "journal.db")) as journal, journal:
        journal.execute(
            "UPDATE checkpoints SET label = ? WHERE thread ="
            " (SELECT number FROM threads WHERE thread_id = ?)",
            (label, thread_id),
        )


def test_a_damaged_journal_fails_a_verification(target: str, directory: Path) -> None:
    with Client(target) as client:
        client.save("edited", {"n": 1}, durability="certified")
    label_behind_its_back(directory, "edited", "another")
    people = run(target, "verify", "edited")
    assert people.code == Exit.INTEGRITY
    assert re.search(r"(?m)^journal: checkpoint '\S+' in namespace '': its row was ", people.out)
    assert people.errors.startswith(
        "error: the journal of the server is damaged where it has thread 'edited': "
    )
    total = run(target, "verify", "edited", "--json").lines[-1]
    assert (total["ok"], len(total["journal_details"])) == (False, 1)
    label_behind_its_back(directory, "edited", "")
    assert run(target, "verify", "edited").code == Exit.OK


def test_a_defect_is_reported_in_one_line(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("nobody thought of it")

    monkeypatch.setattr(server_commands, "judge", fail)
    reported = run(target, "status")
    assert reported.code == Exit.DEFECT
    assert reported.errors == (
        "error: a bug in this program: ZeroDivisionError: nobody thought of it: run it with "
        "TUSKPOINT_TRACEBACK=1, and report what it prints\n"
    )
    traced = run(target, "status", env={"TUSKPOINT_TRACEBACK": "1"})
    assert "Traceback (most recent call last)" in traced.errors


def test_the_version_and_help_need_no_server() -> None:
    assert re.fullmatch(r"tuskpoint \d+\.\d+\.\d+\n", run(NOBODY, "--version").out)
    for arguments in (["--help"], ["show", "--help"], ["snapshot", "-h"]):
        shown = run(NOBODY, *arguments)
        assert (shown.code, shown.errors) == (0, "")
        assert "--json" in shown.out or "snapshot" in shown.out
    assert run(NOBODY).code == Exit.USAGE


def test_only_the_help_of_the_program_describes_the_connection() -> None:
    shown = run(NOBODY, "--help", columns=200).out
    options = ["--target", "--token-file", "--ca-file", "--cert-file", "--key-file", "--no-tls"]
    options += ["--timeout", "--no-color"]
    assert [option for option in options if f"{option} " not in shown] == []
    meanings = {f"{int(code)} = {meaning}" for code, meaning in MEANINGS.items()}
    words = " ".join(shown.split())
    assert [meaning for meaning in meanings if meaning not in words] == []
    for arguments in (["show"], ["delete"], ["snapshot", "list"], ["status"]):
        shown = run(NOBODY, *arguments, "--help", columns=200).out
        assert [option for option in options if option in shown] == []
        assert "--json" in shown
        assert "`tuskpoint --help` lists the options of the connection" in shown


def test_without_the_extra_it_names_the_package_to_install() -> None:
    program = """
        import sys

        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "typer":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, Absent())
        from tuskpoint.cli import main
        sys.exit(main(["threads"]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == Exit.USAGE
    assert done.stderr == (
        "error: the command line needs typer, which is not installed: pip install "
        "'tuskpoint[cli]'\n"
    )


# --- processes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [["replay", "many", "--json"], ["list", "many"], ["--help"], ["list", "--help"], ["--version"]],
    ids=" ".join,
)
def test_a_reader_that_goes_away_ends_it_quietly(target: str, arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = process(target, *arguments, stdout=write)
    os.close(write)
    _, errors = done.communicate(timeout=PATIENCE_S)
    assert (done.returncode, errors) == (Exit.CLOSED_PIPE, b"")


def test_a_reader_of_errors_that_goes_away_ends_it(target: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = process(target, "show", "nothing", stdout=write, stderr=write)
    os.close(write)
    done.communicate(timeout=PATIENCE_S)
    assert done.returncode == Exit.CLOSED_PIPE


def test_ctrl_c_ends_a_watch_quietly(target: str) -> None:
    watching = process(target, "watch", "many", "--json")
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline())["kind"] == "checkpoint_saved"
    watching.send_signal(signal.SIGINT)
    _, errors = watching.communicate(timeout=PATIENCE_S)
    assert (watching.returncode, errors) == (Exit.INTERRUPTED, b"")


def test_a_watch_prints_each_event_as_it_happens(target: str) -> None:
    with Client(target) as client:
        client.save("live", {})
        watching = process(target, "watch", "live", "--kind", "label_set", "-n", "1")
        client.set_label("live", "now")
    out, _ = watching.communicate(timeout=PATIENCE_S)
    assert re.search(rb"label_set +\S{18}  now\n", out)


def test_a_full_disk(target: str) -> None:
    with Path("/dev/full").open("wb") as full:
        listed = process(target, "list", "many", "--json", stdout=full.fileno())
        _, errors = listed.communicate(timeout=PATIENCE_S)
    (line,) = errors.decode().splitlines()
    assert listed.returncode == Exit.USAGE
    assert json.loads(line)["error"]["message"].startswith("the output cannot be written: ")


def test_a_home_that_cannot_be_used(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise typer looks for a shell among the parents of this process, which may have none.
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: ("bash", "/bin/bash"))
    home = tmp_path / "home"
    home.write_text("a file")
    reported = run(target, "--install-completion", env={"HOME": str(home)})
    assert reported.code == Exit.USAGE
    assert reported.errors.startswith(f"error: '{home}")
    assert "cannot be used: " in reported.errors
