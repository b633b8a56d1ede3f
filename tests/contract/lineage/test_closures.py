"""A closure contains what is needed to continue from a checkpoint, and no more."""

from __future__ import annotations

import pytest

from tests.contract.lineage.kit import (
    Member,
    Place,
    certify,
    chain,
    evict,
    members_of,
    places,
    seen,
    under,
)
from tests.kit.drafts import TENANT, channel, draft, key, refused, write
from tests.kit.journal import Journal, save
from tuskpoint_server.archive.formats import bundles
from tuskpoint_server.archive.formats.bundles import Closure
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.features.checkpoints.missing_values import ValuesEvictedError
from tuskpoint_server.features.lineage.lineage import LineageRows
from tuskpoint_server.journal.values import contents


async def parts(lineage: LineageRows, checkpoint_id: str, ns: str = "") -> list[Place]:
    return places(await lineage.closure(TENANT, key(checkpoint_id, "t", ns)))


def member(closure: Closure | None, checkpoint_id: str, ns: str = "") -> Member:
    return members_of(closure)[ns, checkpoint_id]


async def test_a_checkpoint_alone_is_its_closure(journal: Journal, lineage: LineageRows) -> None:
    await save(
        journal,
        draft("01", "", {"x": b"1"}),
        draft("02", "01", {"x": b"2"}, label="l", writes=(write("x", b"w"),)),
        draft("03", "02", {"x": b"3"}),
    )
    closure = await lineage.closure(TENANT, key("02"))
    assert closure is not None
    assert (closure.key, closure.seq) == (key("02"), 3)
    assert places(closure) == [("", "02")]
    assert member(closure, "02") == Member((await seen(journal))["", "02"], {})
    assert await parts(lineage, "") == [("", "03")]


async def test_a_missing_checkpoint_has_no_closure(journal: Journal, lineage: LineageRows) -> None:
    await chain(journal, ["01", "02", "03"], seeds=["01"])
    await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    for absent in (key("02"), key("04"), key("", "never was"), key("", "t", "no namespace")):
        assert await lineage.closure(TENANT, absent) is None
    assert await lineage.closure("another tenant", key("03")) is None


async def test_a_closure_larger_than_a_bundle_is_not_read(
    journal: Journal, lineage: LineageRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chain(journal, ["01", "02", "03"], seeds=["01"])

    def fail(*_: object) -> None:
        pytest.fail("content was read")

    read = contents.read
    monkeypatch.setattr(contents, "read", fail)
    # Of the ancestors, only the values that rebuild "log" count.
    least = sum(map(len, (b"03", b"w03", b"v03", b"seed 01", b"w02", b"w01")))
    monkeypatch.setattr(bundles, "MAX_BUNDLE_BYTES", least - 1)
    await refused(lineage.closure(TENANT, key("03")), Reason.LIMIT_EXCEEDED)
    monkeypatch.setattr(bundles, "MAX_BUNDLE_BYTES", least)
    monkeypatch.setattr(contents, "read", read)
    assert await parts(lineage, "03") == [("", "03")]


# --- subgraphs -----------------------------------------------------------------------------


async def test_namespaces_of_calls_and_of_stateful_subgraphs_are_distinguished(
    journal: Journal, lineage: LineageRows
) -> None:
    stateful = ["!", "a", "node", "node;", "node|inner", "nodes", "\U0010ffff", "é|b"]
    calls = ["node:1", "node:2|inner", "node:\U0010ffff", "node|inner:3", ":"]
    await save(journal, draft("01"), draft("02", ns="own"))
    for ns in (*stateful, *calls):
        await save(journal, draft("03", ns=ns, metadata=under("01")))
    await save(journal, draft("04", "01"))
    members = await parts(lineage, "04")
    assert members == sorted([("", "04"), *((ns, "03") for ns in stateful)])


async def test_calls_of_subgraphs_belong_to_the_root_they_ran_under(
    journal: Journal, lineage: LineageRows
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
        ("", "01"),
        ("node:u1", "03"),
        ("node:u1|deep:v1", "04"),
        ("node:u2", "05"),
    ]
    assert await parts(lineage, "06") == [("", "06"), ("node:u3", "07")]


async def test_stateful_subgraphs_have_the_state_of_the_last_run_on_the_path(
    journal: Journal, lineage: LineageRows
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
    assert await parts(lineage, "01") == [("", "01")]
    assert await parts(lineage, "05") == [("", "05"), ("keeper", "04")]
    assert await parts(lineage, "0a") == [("", "0a"), ("keeper", "09")]


async def test_a_stateful_subgraph_is_needed_as_it_was_before_its_run_too(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(
        journal,
        draft("01"),
        draft("02", ns="keeper", metadata=under("01")),
        draft("03", "01"),
        draft("04", "02", ns="keeper", metadata=under("03")),
        draft("05", "04", ns="keeper", metadata=under("03")),
    )
    assert await parts(lineage, "01") == [("", "01"), ("keeper", "02")]
    assert await parts(lineage, "03") == [
        ("", "03"),
        ("keeper", "02"),
        ("keeper", "05"),
    ]


async def test_a_namespace_of_its_own_is_no_subgraph(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("01"), draft("02", ns="notes"), draft("03", "01"))
    assert await parts(lineage, "03") == [("", "03")]


async def test_runs_whose_root_is_gone_count_where_the_path_is_not_known(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(
        journal,
        draft("01"),
        draft("02", ns="keeper", metadata=under("01")),
        draft("03", "01"),
        draft("04", "03"),
    )
    await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert await parts(lineage, "04") == [("", "04"), ("keeper", "02")]
    await save(journal, draft("05", "04"), draft("06", ns="keeper", metadata=under("99")))
    assert await parts(lineage, "05") == [("", "05"), ("keeper", "02")]
    await save(journal, draft("07"))
    assert await parts(lineage, "07") == [("", "07")]


async def test_a_subgraphs_own_closure(journal: Journal, lineage: LineageRows) -> None:
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
    assert await parts(lineage, "03", "a:u") == [("a:u", "03"), ("a:u|b:v", "05")]
    assert await parts(lineage, "02", "a:u") == [("a:u", "02"), ("a:u|b:w", "06")]
    assert await parts(lineage, "", "a:u|b:v") == [("a:u|b:v", "05")]


# --- delta channels ------------------------------------------------------------------------


async def test_each_delta_channel_is_followed_to_its_own_seed(
    journal: Journal, lineage: LineageRows
) -> None:
    names = ("far", "near", "nowhere")
    written = [
        (write("far", b"f%d" % n), write("near", b"n%d" % n, idx=1), write("other", b"o", idx=2))
        for n in range(4)
    ]
    await save(
        journal,
        draft("01", "", {"far": b"F", "near": b"too old"}, delta=names, writes=written[1]),
        draft("02", "01", {"near": b"N"}, delta=names, writes=written[2]),
        draft("03", "02", delta=names, writes=written[3]),
    )
    closure_member = member(await lineage.closure(TENANT, key("03")), "03")
    assert closure_member.rebuilt == {"far": (b"F", [b"f1", b"f2"]), "near": (b"N", [b"n2"])}


async def test_a_channel_that_is_stored_needs_no_ancestor(
    journal: Journal, lineage: LineageRows
) -> None:
    await chain(journal, ["01", "02", "03"], seeds=["01", "03"])
    assert member(await lineage.closure(TENANT, key("03")), "03").rebuilt == {}


async def test_an_ancestor_that_is_a_member_itself_is_whole(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("01"))
    await chain(journal, ["02"], ns="keeper", seeds=["02"], metadata=under("01"))
    await save(journal, draft("03", "01"))
    await chain(journal, ["04"], parent_id="02", ns="keeper", metadata=under("03"))
    closure = await lineage.closure(TENANT, key("03"))
    assert places(closure) == [("", "03"), ("keeper", "02"), ("keeper", "04")]
    assert member(closure, "02", "keeper").seen == (await seen(journal))["keeper", "02"]


async def test_a_missing_parent_and_a_loop_end_the_ancestry(
    journal: Journal, lineage: LineageRows
) -> None:
    await chain(journal, ["02", "03"], parent_id="01, which never came")
    closure_member = member(await lineage.closure(TENANT, key("03")), "03")
    assert closure_member.rebuilt == {"log": (None, [b"w02"])}
    late = write("log", b"once")
    await save(
        journal,
        draft("04", "06", delta=("log",)),
        draft("05", "04", (channel("y", b"y"),), delta=("log",), writes=(late,)),
        draft("06", "05", delta=("log",)),
    )
    await save(journal, draft("07", ns="keeper", metadata=under("99")))
    closure_member = member(await lineage.closure(TENANT, key("06")), "06")
    assert closure_member.rebuilt == {"log": (None, [b"once"])}


async def test_evicted_values_of_a_closure_name_their_segments(
    journal: Journal, lineage: LineageRows
) -> None:
    await chain(journal, ["01", "02", "03"], seeds=["01"])
    whole = await lineage.closure(TENANT, key("02"))
    segment = await certify(journal)
    gone = await evict(journal, segment, b"02", b"seed 01", b"w01", b"v02")
    with pytest.raises(ValuesEvictedError) as lack:
        await lineage.closure(TENANT, key("02"))
    assert lack.value.digests == gone.keys()
    assert [place.sha256 for place in lack.value.places] == [segment]
    assert await lineage.closure(TENANT, key("02"), gone) == whole
