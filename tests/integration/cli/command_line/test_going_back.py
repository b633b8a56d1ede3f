"""Hand-offs, `restore` and `browse` go back to a checkpoint or a snapshot."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.integration.cli.command_line.test_commands import undocumented_inside
from tests.integration.cli.command_line.world import World
from tuskpoint import Client
from tuskpoint.cli.exits import Exit


def test_a_hand_off_is_written_to_a_file_and_adopted_from_stdin(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "d.json"
    made = world.run("handoff", "atlas", "-o", str(file))
    assert (made.code, made.out) == (0, "")
    adopted = world.run("adopt", "--as", "piped", "--json", given=file.read_text()).object
    assert adopted["verified"] is True
    signer = json.loads(file.read_text())["signer"]
    assert adopted["signer"] == signer
    with Client(world.target) as client:
        assert client.info().signers == (signer,)
    refused = world.run("adopt", str(file), "--as", "other", "--require-signer", "ab" * 32)
    assert refused.code == Exit.REFUSED
    assert f"it is signed by {signer}, and another signer is required" in refused.errors
    world.run("adopt", str(file), "--as", "vouched", "--require-signer", signer)
    quick = world.run(
        "adopt", str(file), "--as", "quick", "--durability", "journaled", "--json"
    ).object
    assert quick["blob_id"] == ""


def test_restore_takes_a_snapshot_back(world: World) -> None:
    saved = world.run("save", "moved", "--json", given='{"n": 1}').object["checkpoint_id"]
    snapshot = world.run("snapshot", "create", "moved", "--json").object
    world.run("save", "moved", given='{"n": 2}')
    done = world.run("restore", snapshot["snapshot_id"][:23], "--yes", "--json").object
    assert (done["mode"], done["restored"][0]["thread_id"]) == ("rollback", "moved")
    shown = world.run("show", "moved", "--json").object
    assert shown["state"] == {"n": 1}
    assert shown["lineage"]["rolled_back_from"] == f"moved:{saved}"


def test_a_checkpoint_is_shown_and_restored_by_its_id_alone(world: World) -> None:
    with Client(world.target) as client:
        first = client.save("alone", {"n": 1})
        second = client.save("alone", {"n": 2})
        inner = client.save("alone", {"n": 3}, checkpoint_ns="inner")
        shared = client.fork("alone", second, "alone-forked").checkpoint_id
    for checkpoint_id, state in ((first, 1), (first[:23], 1), (inner, 3)):
        shown = world.run("show", checkpoint_id, "--json").object
        assert (shown["thread_id"], shown["state"]) == ("alone", {"n": state})
    restored = world.run("restore", first[:23], "--yes", "--json").object
    assert restored["rolled_back_from"] == f"alone:{first}"
    assert world.run("show", "alone", "--json").object["state"] == {"n": 1}
    # If several threads have the checkpoint, the command must name the thread.
    for command in (["show"], ["restore", "--yes"]):
        refused = world.run(*command, shared)
        assert refused.code == Exit.USAGE
        named = f"several threads have checkpoint {shared}: 'alone', 'alone-forked': name one"
        assert named in refused.errors
    assert world.run("show", "alone-forked", shared, "--json").object["state"] == {"n": 2}
    with Client(world.target) as client:
        for checkpoint_id in ("my-chosen-1", "my-chosen-2"):
            client.save(checkpoint_id[::-1], {"n": checkpoint_id}, checkpoint_id=checkpoint_id)
    assert world.run("show", "my-chosen-1", "--json").object["state"] == {"n": "my-chosen-1"}
    assert "several checkpoints begin with 'my-chosen-'" in world.run("show", "my-chosen-").errors
    # A thread comes before a checkpoint, and a checkpoint of a subgraph goes back with its root.
    with Client(world.target) as client:
        client.save(first, {"n": "thread"})
    assert world.run("show", first, "--json").object["thread_id"] == first
    absent = world.run("restore", inner, "--yes")
    assert absent.code == Exit.NOT_FOUND
    assert f"no snapshot '{inner}', and no checkpoint of this ID" in absent.errors


def test_a_beginning_of_a_snapshot_and_a_checkpoint_is_ambiguous(world: World) -> None:
    snapshot = world.run("snapshot", "create", "atlas", "--json").object["snapshot_id"]
    with Client(world.target) as client:
        client.save("alike", {}, checkpoint_id=f"{snapshot[:23]}-of-my-own")
    refused = world.run("restore", snapshot[:23], "--yes")
    assert refused.code == Exit.USAGE
    assert "a snapshot and a checkpoint begin with" in refused.errors
    assert world.run("snapshot", "delete", snapshot, "--yes").code == 0


def test_browse_looks_restores_and_forks(world: World) -> None:
    for number in (1, 2):
        world.run("save", "browsed", "-m", f"step {number}", given=f'{{"n": {number}}}')
    keys = ["browsed", "x", "2", "s", "d", "z", "f", "from-browsing", "2", "r", "y", "b", "q"]
    seen = world.run("browse", "--stdin", given="\n".join(keys))
    assert seen.code == 0, seen.errors
    assert "'x' is not one of these" in seen.out
    assert "  n: 1\n" in seen.out
    assert "it has no parent" in seen.out
    assert "forked as thread from-browsing\n" in seen.out
    assert re.search(r"restored: \S{36} is the latest now", seen.out)
    with Client(world.target) as client:
        assert client.load("browsed").state == {"n": 1}
        assert client.load("from-browsing").state == {"n": 1}


def test_browse_reports_its_actions_to_programs(world: World) -> None:
    world.run("save", "browsed-2", given='{"n": 1}')
    keys = "1\nf\nbrowsed-3\nno-such-thread\nb\nno-such-thread\nq\n"
    seen = world.run("browse", "browsed-2", "--stdin", "--json", given=keys)
    assert [action["thread_id"] for action in seen.object["done"]] == ["browsed-3"]
    assert undocumented_inside([seen.object]) == {}
    assert "thread 'no-such-thread'" in seen.errors


def test_browse_pages_through_threads(world: World) -> None:
    seen = world.run("browse", "--stdin", given="n\nn\nn\nn\nn\nq\n")
    assert "that was all" in seen.out
    assert seen.code == 0
