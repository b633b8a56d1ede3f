"""A rollback appends an earlier state to its thread, and changes nothing of the past."""

from __future__ import annotations

import json

import pytest

from tests.contract.lineage.kit import certify, chain, evict, logged, seen, under
from tests.kit.drafts import TENANT, Reference, channel, data_of, digest, draft, key, refused, write
from tests.kit.journal import Clock, Journal, row_of, save, thread_of
from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import Checkpoint, Lineage, View
from tuskpoint_server.core.threads import EventKind, PruneStrategy, ThreadState
from tuskpoint_server.features.checkpoints.missing_values import SuppliedValues, ValuesEvictedError
from tuskpoint_server.features.lineage.lineage import LineageRows

NOTHING: SuppliedValues = {}


async def roll_back(
    lineage: LineageRows, checkpoint_id: str, ns: str = "", thread: str = "t"
) -> str:
    """Roll back and return the new checkpoint's ID."""
    saved = await lineage.rollback(TENANT, key(checkpoint_id, thread, ns), "", None, NOTHING)
    return saved.key.checkpoint_id


async def load(
    journal: Journal, checkpoint_id: str = "", ns: str = "", thread: str = "t"
) -> Checkpoint:
    loaded = await journal.load(TENANT, key(checkpoint_id, thread, ns), View.FULL)
    assert loaded is not None
    return loaded


def frame(**fields: object) -> bytes:
    return checkpoint_pb2.CheckpointState(**fields).SerializeToString(deterministic=True)  # type: ignore[arg-type]


# --- the new checkpoint --------------------------------------------------------------------


async def test_a_rollback_has_the_earlier_state_on_top(
    journal: Journal, lineage: LineageRows, clock: Clock
) -> None:
    earlier = frame(
        schema_version=4,
        ts="2020-01-01T00:00:00+00:00",
        extras={"k": value_pb2.Value(type="json", data=b"1")},
    )
    metadata = {"source": "loop", "step": 7, "run_id": "r", "mine": [1], "parents": {}}
    await save(
        journal,
        draft("01", "", {"x": b"1"}),
        draft(
            "02",
            "01",
            {"x": b"2", "y": b"same"},
            frame=earlier,
            metadata=metadata,
            label="kept",
            summary="It worked.",
            writes=(write("x", b"w"), write("__interrupt__", b"?", idx=-3)),
        ),
        draft("03", "02", {"x": b"3"}),
    )
    saved = await lineage.rollback(TENANT, key("02"), "", None, NOTHING)
    head, target = await load(journal), await load(journal, "02")
    assert head.entry.key == saved.key
    assert saved.key.checkpoint_id > "03"
    assert head.entry.parent_id == "01"
    assert head.writes == ()
    assert head.state is not None
    assert target.state is not None
    assert head.state.channels == target.state.channels
    now = "2023-11-14T22:13:20+00:00"
    assert head.state.frame == frame(
        schema_version=4, ts=now, extras={"k": value_pb2.Value(type="json", data=b"1")}
    )
    assert json.loads(head.entry.metadata) == {
        "source": "loop",
        "step": 7,
        "mine": [1],
        "parents": {},
    }
    assert head.entry.label == ""
    assert head.entry.summary == "Rolled back to t:02: It worked."
    assert head.entry.lineage == Lineage(rolled_back_from="t:02")
    assert head.entry.seq == 4
    assert (saved.seq, saved.incarnation) == (4, 1)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"step": "three"},
        {"parents": "none", "text": "é \ud800"},
        {"parents": {"elsewhere": "1"}, "run_id": 5},
    ],
)
async def test_any_metadata_can_be_rolled_back_to(
    journal: Journal, lineage: LineageRows, metadata: dict[str, object]
) -> None:
    await save(journal, draft("01", metadata=metadata))
    await roll_back(lineage, "01")
    stored_metadata = json.loads((await load(journal)).entry.metadata)
    metadata.pop("run_id", None)
    assert stored_metadata == metadata


async def test_a_state_without_a_time_gets_none(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("01", frame=frame(schema_version=4)))
    await roll_back(lineage, "01")
    state = (await load(journal)).state
    assert state is not None
    assert state.frame == frame(schema_version=4)


async def test_a_long_summary_is_cut_between_characters(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("01", summary="é" * 512))
    await roll_back(lineage, "01")
    summary = (await load(journal)).entry.summary
    assert summary.startswith("Rolled back to t:01: éé")
    assert len(summary.encode()) in (1023, 1024)


@pytest.mark.parametrize("said", ["It worked.", ""])
async def test_the_summaries_of_rollbacks_to_rollbacks_do_not_nest(
    journal: Journal, lineage: LineageRows, said: str
) -> None:
    await save(journal, draft("01", summary=said))
    first = await roll_back(lineage, "01")
    second = await roll_back(lineage, first)
    third = await roll_back(lineage, second)
    end = f": {said}" if said else "."
    assert (await load(journal, second)).entry.summary == f"Rolled back to t:{first}{end}"
    assert (await load(journal, third)).entry.summary == f"Rolled back to t:{second}{end}"
    await lineage.fork(TENANT, key(third), "u", "")
    fourth = await roll_back(lineage, third, thread="u")
    assert (
        await load(journal, fourth, thread="u")
    ).entry.summary == f"Rolled back to u:{third}{end}"


async def test_the_thread_waits_for_nothing_afterwards(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(
        journal, draft("01"), draft("02", "01", writes=(write("__interrupt__", b"?", idx=-3),))
    )
    assert (await thread_of(journal)).state is ThreadState.INTERRUPTED
    new = await roll_back(lineage, "02")
    assert (await thread_of(journal)).state is ThreadState.IDLE
    await journal.save_writes(TENANT, key(new), [write("__interrupt__", b"?", idx=-3)])
    assert (await thread_of(journal)).state is ThreadState.INTERRUPTED
    await save(journal, draft("zz", new, expected_head=new))


async def test_every_checkpoint_of_a_rollback_is_a_change(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("01"), draft("02", ns="keeper", metadata=under("01")))
    new = await roll_back(lineage, "01")
    inner = (await load(journal, "", "keeper")).entry.key.checkpoint_id
    saved = EventKind.CHECKPOINT_SAVED
    assert await logged(journal, "t") == [
        (1, saved, "01"),
        (2, saved, "02"),
        (3, saved, inner),
        (4, saved, new),
    ]


# --- subgraphs -----------------------------------------------------------------------------


async def stateful(journal: Journal) -> None:
    """Save a thread whose stateful subgraph ran under its second and third checkpoint."""
    await save(
        journal,
        draft("01", metadata={"step": 0}),
        draft("02", "01", metadata={"step": 1}),
        draft("03", ns="keeper", channels={"k": b"first"}, metadata=under("02", step=5)),
        draft("04", "02", metadata={"step": 2}),
        draft("05", "03", {"k": b"second"}, ns="keeper", metadata=under("04", step=6)),
        draft("06", "04", metadata={"step": 3}),
        draft("07", ns="node:u", channels={"k": b"call"}, metadata=under("04")),
    )


@pytest.mark.parametrize(
    ("target", "expected"),
    [("01", {}), ("02", {}), ("04", {"k": b"first"}), ("06", {"k": b"second"})],
)
async def test_stateful_subgraphs_roll_back_with_the_root(
    journal: Journal, lineage: LineageRows, target: str, expected: dict[str, bytes]
) -> None:
    await stateful(journal)
    new = await roll_back(lineage, target)
    inner = await load(journal, "", "keeper")
    assert data_of(inner) == expected
    assert inner.entry.key.checkpoint_id < new or target == "06"
    if target == "06":
        assert inner.entry.key.checkpoint_id == "05", "it is where it was"
    else:
        assert json.loads(inner.entry.metadata)["parents"] == {"": new}
    call = await load(journal, "", "node:u")
    assert call.entry.key.checkpoint_id == "07"


async def test_a_subgraph_goes_back_to_where_it_was(journal: Journal, lineage: LineageRows) -> None:
    await stateful(journal)
    await roll_back(lineage, "04")
    inner = await load(journal, "", "keeper")
    assert inner.entry.parent_id == ""
    assert inner.entry.lineage == Lineage(rolled_back_from="t:03")
    root = await load(journal, "", "")
    earlier = json.loads((await load(journal, "03", "keeper")).entry.metadata)
    assert json.loads(inner.entry.metadata) == {
        **earlier,
        "parents": {"": root.entry.key.checkpoint_id},
    }


async def test_a_subgraph_goes_back_to_before_its_first_run(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(
        journal,
        draft("01"),
        draft(
            "02",
            ns="keeper",
            channels={"k": b"1"},
            frame=frame(
                schema_version=4,
                ts="2020-01-01",
                extras={"k": value_pb2.Value(type="json", data=b"1")},
            ),
            metadata=under("01"),
        ),
    )
    new = await roll_back(lineage, "01")
    inner = await load(journal, "", "keeper")
    assert inner.state is not None
    now = "2023-11-14T22:13:20+00:00"
    assert (inner.state.frame, inner.state.channels) == (frame(schema_version=4, ts=now), ())
    assert (inner.entry.parent_id, inner.writes) == ("", ())
    assert json.loads(inner.entry.metadata) == {
        "source": "fork",
        "step": -2,
        "parents": {"": new},
    }


async def test_a_namespace_of_its_own_is_left_alone(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("01"), draft("02", ns="notes", channels={"n": b"mine"}))
    await roll_back(lineage, "01")
    assert (await load(journal, "", "notes")).entry.key.checkpoint_id == "02"


async def test_a_subgraph_is_rolled_back_alone(journal: Journal, lineage: LineageRows) -> None:
    await stateful(journal)
    new = await roll_back(lineage, "03", "keeper")
    inner = await load(journal, "", "keeper")
    assert inner.entry.key.checkpoint_id == new
    assert data_of(inner) == {"k": b"first"}
    assert json.loads(inner.entry.metadata)["parents"] == {"": "02"}
    assert (await load(journal)).entry.key.checkpoint_id == "06"


# --- refusals and retries ------------------------------------------------------------------


async def test_rollback_to_a_missing_checkpoint_is_refused(
    journal: Journal, lineage: LineageRows
) -> None:
    await chain(journal, ["01", "02", "03"], seeds=["01"])
    await save(journal, draft("01", thread_id="gone"))
    await journal.removal.delete_thread(TENANT, "gone")
    await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    elsewhere = (key("01", "gone"), key("01", "never was"), key("03", "t", "inner"))
    for absent in (key("02"), key("04"), *elsewhere):
        refusal = await refused(
            lineage.rollback(TENANT, absent, "", None, NOTHING), Reason.CHECKPOINT_NOT_FOUND
        )
        assert refusal.metadata["checkpoint_id"] == absent.checkpoint_id
    assert list(await seen(journal)) == [("", "03")]


async def test_a_moved_head_is_noticed(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("01"), draft("02", "01"), draft("05", ns="inner"))
    for expected in ("01", "", "05"):
        refusal = await refused(
            lineage.rollback(TENANT, key("01"), "", expected, NOTHING), Reason.HEAD_MOVED
        )
        assert (refusal.metadata["head"], refusal.metadata["expected"]) == ("02", expected)
    saved = await lineage.rollback(TENANT, key("01"), "", "02", NOTHING)
    assert (await load(journal)).entry.key == saved.key


async def test_a_retried_rollback_gets_the_first_answer(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("01"), draft("02", "01"))
    saved = await lineage.rollback(TENANT, key("01"), "r", "02", NOTHING)
    again = await lineage.rollback(TENANT, key("01"), "r", "02", NOTHING)
    assert (again.key, again.seq) == (saved.key, saved.seq)
    assert len(await seen(journal)) == 3
    for other in (
        lineage.rollback(TENANT, key("02"), "r", "02", NOTHING),
        lineage.rollback(TENANT, key("01"), "r", None, NOTHING),
        lineage.rollback(TENANT, key("01"), "r", "", NOTHING),
        lineage.fork(TENANT, key("01"), "fork", "r"),
    ):
        await refused(other, Reason.REQUEST_ID_REUSED)
    assert len(await seen(journal)) == 3


async def test_a_refused_rollback_is_not_remembered(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("01"), draft("02", "01"))
    await refused(lineage.rollback(TENANT, key("01"), "r", "01", NOTHING), Reason.HEAD_MOVED)
    await lineage.rollback(TENANT, key("01"), "r", "02", NOTHING)
    assert len(await seen(journal)) == 3


@pytest.mark.parametrize("ns", ["", "keeper"])
async def test_without_an_id_above_the_greatest_nothing_is_stored(
    journal: Journal, lineage: LineageRows, ns: str
) -> None:
    await save(journal, draft("01"), draft("z" * 100, "01", ns=ns, metadata=under("01")))
    before = await seen(journal)
    refusal = await refused(
        lineage.rollback(TENANT, key("01"), "", None, NOTHING), Reason.INVALID_FIELD
    )
    assert "zzz" in refusal.violations[0].description
    assert await seen(journal) == before


async def test_the_new_id_is_above_future_ones(journal: Journal, lineage: LineageRows) -> None:
    future = "2fffffff-ffff-6fff-bfff-ffffffffffff"
    await save(journal, draft("01"), draft(future, "01"))
    assert await roll_back(lineage, "01") > future


# --- evicted values ------------------------------------------------------------------------


async def test_evicted_values_are_asked_for(journal: Journal, lineage: LineageRows) -> None:
    await chain(journal, ["01", "02"])
    await chain(journal, ["03"], ns="keeper", metadata=under("01"))
    await chain(journal, ["04"], parent_id="03", ns="keeper", metadata=under("02"))
    await chain(journal, ["05"], parent_id="02")
    segment = await certify(journal)
    gone = await evict(journal, segment, b"01", b"02", b"03", b"w02")
    before = await seen(journal)
    with pytest.raises(ValuesEvictedError) as caught:
        await lineage.rollback(TENANT, key("02"), "r", "05", NOTHING)
    assert caught.value.digests == {digest(b"02"), digest(b"03")}
    assert [place.sha256 for place in caught.value.places] == [segment]
    assert await seen(journal) == before
    incomplete_values = {name: value for name, value in gone.items() if value.data == b"02"}
    with pytest.raises(ValuesEvictedError) as caught:
        await lineage.rollback(TENANT, key("02"), "r", "05", incomplete_values)
    assert caught.value.digests == {digest(b"03")}
    saved = await lineage.rollback(TENANT, key("02"), "r", "05", gone)
    assert (await load(journal)).entry.key == saved.key
    assert data_of(await load(journal)) == {"x": b"02"}
    assert data_of(await load(journal, "", "keeper")) == {"x": b"03"}


async def test_values_that_came_back_are_stored_with_the_rollback(
    journal: Journal, lineage: LineageRows
) -> None:
    """The latest checkpoint has its values in the journal, and saves may refer to them."""
    await chain(journal, ["01", "02", "03"], seeds=["01"])
    gone = await evict(journal, await certify(journal), b"02")
    saved = await lineage.rollback(TENANT, key("02"), "", None, gone)
    row = await row_of(journal)
    assert row.dirty_bytes > 0
    new = saved.key.checkpoint_id
    await save(journal, draft("zz", new, (channel("x", Reference.INHERIT),), delta=("log",)))
    assert data_of(await load(journal, "zz")) == {"x": b"02"}
