"""Closures: what is needed to go on from a checkpoint, and no more."""

from __future__ import annotations

import pytest

from tests.contract.journal_drafts import (
    TENANT,
    channel,
    data_of,
    draft,
    key,
    refused,
    write,
    written,
)
from tests.contract.lineage_kit import chain, members, save, under
from tuskpoint_server.domain import bundle
from tuskpoint_server.domain.errors import Reason
from tuskpoint_server.domain.lineage import Closure
from tuskpoint_server.domain.model import Checkpoint, PruneStrategy, View
from tuskpoint_server.journal import reads
from tuskpoint_server.journal.journal import SqlJournal
from tuskpoint_server.journal.lineage_calls import Lineage


@pytest.fixture
def lineage(journal: SqlJournal) -> Lineage:
    return Lineage(journal)


async def parts(lineage: Lineage, checkpoint_id: str, ns: str = "") -> list[tuple[str, str, bool]]:
    return members(await lineage.closure(TENANT, key(checkpoint_id, "t", ns)))


def member(closure: Closure | None, checkpoint_id: str, ns: str = "") -> Checkpoint:
    assert closure is not None
    (found,) = (
        one.checkpoint
        for one in closure.members
        if one.checkpoint.entry.key == key(checkpoint_id, "t", ns)
    )
    return found


async def test_a_checkpoint_alone_is_its_closure(journal: SqlJournal, lineage: Lineage) -> None:
    await save(
        journal,
        draft("01", "", {"x": b"1"}),
        draft("02", "01", {"x": b"2"}, label="l", writes=(write("x", b"w"),)),
        draft("03", "02", {"x": b"3"}),
    )
    found = await lineage.closure(TENANT, key("02"))
    assert found is not None
    assert found.key == key("02")
    assert members(found) == [("", "02", False)]
    assert member(found, "02") == await journal.load(TENANT, key("02"), View.FULL)
    assert await parts(lineage, "") == [("", "03", False)]


async def test_what_does_not_exist_has_no_closure(journal: SqlJournal, lineage: Lineage) -> None:
    await chain(journal, ["01", "02", "03"], seeds=["01"])
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    for absent in (key("02"), key("04"), key("", "never was"), key("", "t", "no namespace")):
        assert await lineage.closure(TENANT, absent) is None
    assert await lineage.closure("another tenant", key("03")) is None


async def test_what_no_bundle_can_hold_is_not_read(
    journal: SqlJournal, lineage: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chain(journal, ["01", "02", "03"], seeds=["01"])

    def fail(*_: object) -> None:
        pytest.fail("content was read")

    read = reads.load_hidden
    monkeypatch.setattr(reads, "load_hidden", fail)
    # Of the hidden ones only the writes of "log" count: "w01", "w02".
    least = sum(map(len, (b"03", b"w03", b"v03", b"w02", b"w01")))
    monkeypatch.setattr(bundle, "MAX_BUNDLE_BYTES", least - 1)
    await refused(lineage.closure(TENANT, key("03")), Reason.LIMIT_EXCEEDED)
    monkeypatch.setattr(bundle, "MAX_BUNDLE_BYTES", least)
    monkeypatch.setattr(reads, "load_hidden", read)
    assert len(await parts(lineage, "03")) == 3


# --- subgraphs -----------------------------------------------------------------------------


async def test_names_tell_which_subgraphs_keep_a_state_of_their_own(
    journal: SqlJournal, lineage: Lineage
) -> None:
    stateful = ["!", "a", "node", "node;", "node|inner", "nodes", "\U0010ffff", "é|b"]
    calls = ["node:1", "node:2|inner", "node:\U0010ffff", "node|inner:3", ":"]
    await save(journal, draft("01"), draft("02", ns="own"))
    for ns in (*stateful, *calls):
        await save(journal, draft("03", ns=ns, metadata=under("01")))
    await save(journal, draft("04", "01"))
    found = await parts(lineage, "04")
    assert found == sorted([("", "04", False), *((ns, "03", False) for ns in stateful)])


async def test_calls_of_subgraphs_belong_to_the_root_they_ran_under(
    journal: SqlJournal, lineage: Lineage
) -> None:
    await save(
        journal,
        draft("01"),
        draft("02", ns="node:u1", metadata=under("01")),
        draft("03", "02", ns="node:u1", metadata=under("01")),
        draft("04", ns="node:u1|deep:v1", metadata={"parents": {"": "01", "node:u1": "03"}}),
        draft("05", ns="node:u2", metadata=under("01")),
        draft("06", "01"),
        draft("07", ns="node:u3", metadata=under("06")),
        draft("08", ns="node:u4", metadata={"parents": "not a mapping"}),
        draft("09", ns="node:u5"),
    )
    assert await parts(lineage, "01") == [
        ("", "01", False),
        ("node:u1", "03", False),
        ("node:u1|deep:v1", "04", False),
        ("node:u2", "05", False),
    ]
    assert await parts(lineage, "06") == [("", "06", False), ("node:u3", "07", False)]


async def test_stateful_subgraphs_stand_where_the_last_run_on_the_path_left_them(
    journal: SqlJournal, lineage: Lineage
) -> None:
    await save(
        journal,
        draft("01"),
        draft("02", "01"),
        draft("03", ns="keeper", metadata=under("02")),
        draft("04", "03", ns="keeper", metadata=under("02")),
        draft("05", "02"),
        draft("06", "05"),
        draft("07", "02"),  # abandons 05 and 06
        draft("08", "04", ns="keeper", metadata=under("06")),
        draft("09", "04", ns="keeper", metadata=under("07")),
        draft("0a", "07"),
    )
    assert await parts(lineage, "01") == [("", "01", False)]
    assert await parts(lineage, "05") == [("", "05", False), ("keeper", "04", False)]
    assert await parts(lineage, "0a") == [("", "0a", False), ("keeper", "09", False)]


async def test_a_stateful_subgraph_is_needed_as_it_was_before_its_run_too(
    journal: SqlJournal, lineage: Lineage
) -> None:
    await save(
        journal,
        draft("01"),
        draft("02", ns="keeper", metadata=under("01")),
        draft("03", "01"),
        draft("04", "02", ns="keeper", metadata=under("03")),
        draft("05", "04", ns="keeper", metadata=under("03")),
    )
    assert await parts(lineage, "01") == [("", "01", False), ("keeper", "02", False)]
    assert await parts(lineage, "03") == [
        ("", "03", False),
        ("keeper", "02", False),
        ("keeper", "05", False),
    ]


async def test_a_namespace_of_its_own_is_no_subgraph(journal: SqlJournal, lineage: Lineage) -> None:
    await save(journal, draft("01"), draft("02", ns="notes"), draft("03", "01"))
    assert await parts(lineage, "03") == [("", "03", False)]


async def test_runs_whose_root_is_gone_count_where_the_path_is_not_known(
    journal: SqlJournal, lineage: Lineage
) -> None:
    await save(
        journal,
        draft("01"),
        draft("02", ns="keeper", metadata=under("01")),
        draft("03", "01"),
        draft("04", "03"),
    )
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert await parts(lineage, "04") == [("", "04", False), ("keeper", "02", False)]
    await save(journal, draft("05", "04"), draft("06", ns="keeper", metadata=under("99")))
    assert await parts(lineage, "05") == [("", "05", False), ("keeper", "02", False)]
    await save(journal, draft("07"))
    assert await parts(lineage, "07") == [("", "07", False)]


async def test_a_subgraphs_own_closure(journal: SqlJournal, lineage: Lineage) -> None:
    await save(
        journal,
        draft("01"),
        draft("02", ns="a:u", metadata=under("01")),
        draft("03", "02", ns="a:u", metadata=under("01")),
        draft("04", ns="a:u|b:v", metadata={"parents": {"": "01", "a:u": "03"}}),
        draft("05", "04", ns="a:u|b:v", metadata={"parents": {"": "01", "a:u": "03"}}),
        draft("06", ns="a:u|b:w", metadata={"parents": {"": "01", "a:u": "02"}}),
        draft("07", ns="a:uu|b:v", metadata={"parents": {"": "01", "a:u": "03"}}),
        draft("08", ns="a:u}", metadata={"parents": {"": "01", "a:u": "03"}}),
    )
    assert await parts(lineage, "03", "a:u") == [("a:u", "03", False), ("a:u|b:v", "05", False)]
    assert await parts(lineage, "02", "a:u") == [("a:u", "02", False), ("a:u|b:w", "06", False)]
    assert await parts(lineage, "", "a:u|b:v") == [("a:u|b:v", "05", False)]


# --- delta channels ------------------------------------------------------------------------


async def test_delta_channels_bring_their_ancestors_trimmed(
    journal: SqlJournal, lineage: Lineage
) -> None:
    await chain(journal, ["01", "02", "03", "04", "05"], seeds=["02"])
    found = await lineage.closure(TENANT, key("04"))
    assert members(found) == [("", "02", True), ("", "03", True), ("", "04", False)]
    seed, between = member(found, "02"), member(found, "03")
    assert data_of(seed) == {"log": b"seed 02"}
    assert data_of(between) == {}
    for one, parent_id in ((seed, "01"), (between, "02")):
        assert one.entry.parent_id == parent_id
        assert (one.entry.metadata, one.entry.label, one.entry.summary) == (b"{}", "", "")
        assert [name for *_, name, _ in written(one)] == ["log"]
    assert data_of(member(found, "04")) == {"x": b"04"}


async def test_each_delta_channel_is_followed_to_its_own_seed(
    journal: SqlJournal, lineage: Lineage
) -> None:
    both = (write("far", b"f"), write("near", b"n", idx=1))
    await save(
        journal,
        draft("01", "", {"far": b"F", "near": b"too old"}, delta=("far", "near"), writes=both),
        draft("02", "01", {"near": b"N"}, delta=("far", "near"), writes=both),
        draft("03", "02", delta=("far", "near"), writes=both),
    )
    found = await lineage.closure(TENANT, key("03"))
    assert data_of(member(found, "01")) == {"far": b"F"}
    assert [name for *_, name, _ in written(member(found, "01"))] == ["far"]
    assert data_of(member(found, "02")) == {"near": b"N"}
    assert [name for *_, name, _ in written(member(found, "02"))] == ["far", "near"]


async def test_a_channel_that_is_stored_needs_no_ancestor(
    journal: SqlJournal, lineage: Lineage
) -> None:
    await chain(journal, ["01", "02", "03"], seeds=["01", "03"])
    assert await parts(lineage, "03") == [("", "03", False)]


async def test_ancestors_of_subgraphs_come_along(journal: SqlJournal, lineage: Lineage) -> None:
    await save(journal, draft("01"))
    await chain(journal, ["02", "03", "04"], ns="a:u", seeds=["02"], metadata=under("01"))
    assert await parts(lineage, "01") == [
        ("", "01", False),
        ("a:u", "02", True),
        ("a:u", "03", True),
        ("a:u", "04", False),
    ]


async def test_an_ancestor_that_is_a_member_itself_is_whole(
    journal: SqlJournal, lineage: Lineage
) -> None:
    await save(journal, draft("01"))
    await chain(journal, ["02"], ns="keeper", seeds=["02"], metadata=under("01"))
    await save(journal, draft("03", "01"))
    await chain(journal, ["04"], parent_id="02", ns="keeper", metadata=under("03"))
    found = await lineage.closure(TENANT, key("03"))
    assert members(found) == [("", "03", False), ("keeper", "02", False), ("keeper", "04", False)]
    whole = await journal.load(TENANT, key("02", "t", "keeper"), View.FULL)
    assert member(found, "02", "keeper") == whole


async def test_hidden_ancestors_stay_in_closures(journal: SqlJournal, lineage: Lineage) -> None:
    await chain(journal, ["01", "02", "03", "04"], seeds=["02"])
    before = await lineage.closure(TENANT, key("04"))
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    after = await lineage.closure(TENANT, key("04"))
    assert members(after) == members(before)
    assert data_of(member(after, "02")) == {"log": b"seed 02"}


async def test_a_missing_parent_and_a_loop_end_the_ancestry(
    journal: SqlJournal, lineage: Lineage
) -> None:
    await chain(journal, ["02", "03"], parent_id="01, which never came")
    assert await parts(lineage, "03") == [("", "02", True), ("", "03", False)]
    await save(
        journal,
        draft("04", "06", delta=("log",)),
        draft("05", "04", (channel("y", b"y"),), delta=("log",)),
        draft("06", "05", delta=("log",)),
    )
    await save(journal, draft("07", ns="keeper", metadata=under("99")))
    assert await parts(lineage, "06") == [("", "04", True), ("", "05", True), ("", "06", False)]
