"""The checker of the crash tests finds every kind of loss that it must find."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.checks.checker import Checker
from tests.crash.writers.content import (
    LABEL,
    Line,
    checkpoint_fingerprint,
    slot,
    task_writes,
    write_fingerprint,
)
from tests.crash.writers.ledger import Key, Ledger, Record
from tuskpoint.v1.checkpoint_pb2 import DURABILITY_JOURNALED, Checkpoint, Lineage
from tuskpoint.v1.value_pb2 import PendingWrite

KEY: Key = ("thread", "", "id-1")
ORIGIN_FIELDS = {"rollback": "rolled_back_from", "restoration": "forked_from"}


class Story:
    """A ledger written by hand, and a checker that reads it."""

    def __init__(self, path: Path) -> None:
        self._ledger = Ledger(path)
        self.record = Record(path)
        self.checker = Checker(self.record, "127.0.0.1:1")
        source = random.Random(1)
        line = Line("thread", "", source)
        self.first = line.checkpoint("id-1")
        self.second = line.checkpoint("id-1")
        self.writes = task_writes(source, "task", 2)

    def save(
        self, state: Checkpoint | None, writes: list[PendingWrite], *, acknowledged: bool
    ) -> None:
        """Record a save."""
        fingerprint = None if state is None else checkpoint_fingerprint(state)
        prints = {slot(write): write_fingerprint(write) for write in writes}
        number = self._ledger.intend(KEY, fingerprint, prints)
        if acknowledged:
            self._ledger.acknowledge(number, DURABILITY_JOURNALED)

    def label(self, label: str) -> None:
        """Record an acknowledged label."""
        number = self._ledger.intend(KEY, None, {LABEL: label})
        self._ledger.acknowledge(number, DURABILITY_JOURNALED)

    def delete(self, *, acknowledged: bool) -> None:
        """Record a deletion of the thread."""
        number = self._ledger.intend(("thread", "", ""), None, {}, deletes=True)
        if acknowledged:
            self._ledger.acknowledge(number, DURABILITY_JOURNALED)

    def shown(self, state: Checkpoint | None, *writes: PendingWrite) -> tuple[int, int]:
        """Return the numbers of lost and of half-visible findings if the server shows this
        state."""
        self.checker.read()
        floor = {request.number for request in self.record.requests[KEY] if request.durability}
        loaded = None
        if state is not None:
            loaded = Checkpoint()
            loaded.CopyFrom(state)
            loaded.writes.extend(writes)
        self.checker.judge(KEY, floor, loaded)
        findings = self.checker.findings
        return len(findings.lost), len(findings.half_visible)


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path / "ledger")


def test_an_acknowledged_save_must_be_there(story: Story) -> None:
    story.save(story.first, story.writes, acknowledged=True)
    assert story.shown(story.first, *story.writes) == (0, 0)
    assert story.shown(None) == (1, 0)


def test_an_unacknowledged_save_may_be_there_or_not(story: Story) -> None:
    story.save(story.first, story.writes, acknowledged=False)
    assert story.shown(story.first, *story.writes) == (0, 0)
    assert story.shown(None) == (0, 0)


def test_an_unacknowledged_save_must_not_be_there_in_part(story: Story) -> None:
    story.save(story.first, story.writes, acknowledged=False)
    assert story.shown(story.first, story.writes[0]) == (0, 1)


def test_an_acknowledged_write_must_be_there(story: Story) -> None:
    story.save(story.first, [], acknowledged=True)
    story.save(None, story.writes, acknowledged=True)
    assert story.shown(story.first, story.writes[0]) == (1, 1)


def test_a_replaced_state_must_not_come_back(story: Story) -> None:
    story.save(story.first, [], acknowledged=True)
    story.save(story.second, [], acknowledged=True)
    assert story.shown(story.second) == (0, 0)
    assert story.shown(story.first)[0] == 1


def test_a_replacement_under_way_may_show_or_not(story: Story) -> None:
    story.save(story.first, [], acknowledged=True)
    story.save(story.second, [], acknowledged=False)
    assert story.shown(story.first) == (0, 0)
    assert story.shown(story.second) == (0, 0)


def test_a_deleted_thread_must_stay_deleted(story: Story) -> None:
    story.save(story.first, [], acknowledged=True)
    story.delete(acknowledged=True)
    assert story.shown(None) == (0, 0)
    assert story.shown(story.first)[0] == 1


def test_a_deletion_under_way_may_show_or_not(story: Story) -> None:
    story.save(story.first, [], acknowledged=True)
    story.delete(acknowledged=False)
    assert story.shown(None) == (0, 0)
    assert story.shown(story.first) == (0, 0)


def change_value(checkpoint: Checkpoint) -> None:
    checkpoint.state.channels[0].value.data += b"!"


def change_version_kind(checkpoint: Checkpoint) -> None:
    checkpoint.state.channels[0].version.integer = 1


def change_order(checkpoint: Checkpoint) -> None:
    channels = checkpoint.state.channels
    first = channels.pop(0)
    channels.append(first)


def change_metadata(checkpoint: Checkpoint) -> None:
    checkpoint.metadata_json = checkpoint.metadata_json.replace(b"  ", b" ")


def change_parent(checkpoint: Checkpoint) -> None:
    checkpoint.parent_checkpoint_id = "id-0"


@pytest.mark.parametrize(
    "change", [change_value, change_version_kind, change_order, change_metadata, change_parent]
)
def test_any_other_byte_is_found(story: Story, change: Callable[[Checkpoint], None]) -> None:
    story.save(story.first, [], acknowledged=True)
    other = Checkpoint()
    other.CopyFrom(story.first)
    change(other)
    assert story.shown(other)[0] == 1


def test_fields_that_the_server_adds_are_not_compared(story: Story) -> None:
    story.save(story.first, [], acknowledged=True)
    loaded = Checkpoint()
    loaded.CopyFrom(story.first)
    loaded.seq = 7
    loaded.state.channels[0].digest = b"digest"
    loaded.state.channels[0].size_bytes = 700
    assert story.shown(loaded) == (0, 0)


@pytest.mark.parametrize(
    ("shown", "acknowledged", "findings"),
    [
        ([], False, 0),
        ([], True, 1),
        (["made"], False, 0),
        (["made"], True, 0),
        (["other"], True, 1),
        (["made", "other"], False, 1),
        (["made", "other"], True, 1),
    ],
)
@pytest.mark.parametrize("how", ["rollback", "restoration"])
def test_a_result_that_was_made_twice_is_found(
    tmp_path: Path, how: str, shown: list[str], acknowledged: bool, findings: int
) -> None:
    ledger, record = Ledger(tmp_path / "ledger"), Record(tmp_path / "ledger")
    number = ledger.intend_making(how, "thread:id-1", ["content"])
    if acknowledged:
        ledger.acknowledge(number, DURABILITY_JOURNALED, [("thread", "", "made")])
    checker = Checker(record, "127.0.0.1:1")
    checker.read()
    lineage = Lineage(**{ORIGIN_FIELDS[how]: "thread:id-1"})
    checker.judge_all({("thread", "", checkpoint_id): lineage for checkpoint_id in shown})
    assert len(checker.findings.half_visible) == findings


@pytest.mark.parametrize(("shown", "findings"), [([], 0), (["made"], 0), (["made", "twice"], 1)])
def test_a_save_without_an_id_that_was_sent_twice_is_found(
    tmp_path: Path, shown: list[str], findings: int
) -> None:
    Ledger(tmp_path / "ledger").intend_making("minting", "thread", ["content"])
    checker = Checker(Record(tmp_path / "ledger"), "127.0.0.1:1")
    checker.read()
    checker.judge_all({("thread", "", checkpoint_id): Lineage() for checkpoint_id in shown})
    assert len(checker.findings.half_visible) == findings


def test_checkpoints_that_nobody_saved_are_found(story: Story) -> None:
    story.save(story.first, [], acknowledged=True)
    story.checker.read()
    phantoms = {
        ("thread", "", "id-9"): Lineage(),
        ("thread", "", "id-8"): Lineage(rolled_back_from="thread:id-1"),
        ("fork", "", "id-1"): Lineage(forked_from="thread:id-1"),
    }
    story.checker.judge_all({KEY: Lineage(), **phantoms})
    assert len(story.checker.findings.half_visible) == len(phantoms)


@pytest.mark.parametrize(
    ("replayed", "findings"),
    [
        (["id-1", "id-2", "made"], 0),
        (["id-2", "id-1", "made"], 1),
        (["made", "id-1", "id-2"], 1),
        (["id-1", "made"], 1),
        (["id-1", "id-2", "id-2", "made"], 1),
        (["id-1", "id-3", "id-2", "made"], 1),
    ],
)
def test_a_replay_in_another_order_is_found(
    tmp_path: Path, replayed: list[str], findings: int
) -> None:
    ledger, record = Ledger(tmp_path / "ledger"), Record(tmp_path / "ledger")
    for saved in ("id-1", "id-2"):
        ledger.intend(("thread", "", saved), "state", {})
    number = ledger.intend_making("rollback", "thread:id-1", ["content"])
    ledger.acknowledge(number, DURABILITY_JOURNALED, [("thread", "", "made")])
    checker = Checker(record, "127.0.0.1:1")
    checker.read()
    listed = {("thread", "", checkpoint_id) for checkpoint_id in ("id-1", "id-2", "made")}
    checker.judge_order(
        listed, [("thread", "", checkpoint_id) for checkpoint_id in replayed], record.places()
    )
    assert len(checker.findings.half_visible) == findings


@pytest.mark.parametrize(("shown", "lost"), [("named", 0), ("", 1), ("other", 1)])
def test_a_label_must_be_there(story: Story, shown: str, lost: int) -> None:
    story.save(story.first, [], acknowledged=True)
    story.label("named")
    labelled = Checkpoint()
    labelled.CopyFrom(story.first)
    labelled.label = shown
    assert story.shown(labelled) == (lost, 0)


def test_what_went_wrong_for_the_agents_is_read(tmp_path: Path) -> None:
    ledger, record = Ledger(tmp_path / "ledger"), Record(tmp_path / "ledger")
    ledger.fail("INTERNAL", "loads: internal error")
    ledger.differ("thread lists nothing")
    record.read()
    assert record.refusals == ["INTERNAL: loads: internal error"]
    assert record.differences == ["thread lists nothing"]


def test_a_line_cut_short_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    Ledger(path).intend(KEY, "state", {})
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    record = Record(path)
    assert record.read() == set()
    path.write_bytes(whole)
    assert record.read() == {KEY}
