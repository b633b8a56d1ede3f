"""After any changes, exactly the checkpoints that search may find have documents."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.search.kit import (
    check_text,
    drain,
    due_keys,
    findable,
    indexed,
    make_searchable,
    summaries,
)
from tests.kit.drafts import TENANT, draft, key
from tests.kit.journal import Journal, JournalWorld, rows_of
from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.features.lineage.snapshot_rows import SnapshotDraft
from tuskpoint_server.journal.sql.schema import checkpoints
from tuskpoint_server.search.change_feed import Stretch


async def _change(what: str, journal: Journal, thread_id: str) -> None:
    """Make a change to a thread, if the change is possible."""
    lineage, snapshots = journal.lineage, journal.snapshots
    other = thread_id[:-1] + ("b" if thread_id.endswith("a") else "a")
    if what == "delete":
        await journal.removal.delete_thread(TENANT, thread_id)
    elif what == "prune":
        await journal.removal.prune_thread(TENANT, thread_id, PruneStrategy.KEEP_LATEST)
    elif what in ("hide", "show"):
        await make_searchable(journal, thread_id, what == "show")
    elif what == "copy":
        await journal.lineage.copy_thread(TENANT, thread_id, other, "")
    elif what == "fork":
        await lineage.fork(TENANT, key("", thread_id), other, "")
    elif what == "roll back":
        await lineage.rollback(TENANT, key("", thread_id), "", None, {})
    elif what == "adopt":
        closure = await lineage.closure(TENANT, key("", thread_id))
        if closure is not None:
            await lineage.adopt(TENANT, closure, "ab" * 32, other, "", "")
    elif what in ("restore", "restore back"):
        snapshot = await snapshots.create_snapshot(TENANT, SnapshotDraft((thread_id,)), "")
        await snapshots.restore_snapshot(
            TENANT,
            snapshot.snapshot_id,
            rollback=what == "restore back",
            request_id="",
            supplied={},
        )
    elif what == "sweep":
        await journal.index.sweep()
    else:
        number, _, text = what.partition(" ")
        channels = {"log": b"seed"} if number == "01" else {}
        parent = "01" if number != "01" else ""
        made = draft(number, parent, channels, thread_id=thread_id, delta=("log",))
        await journal.save_checkpoint(TENANT, replace(made, summary=f"saved {text}"))


CHANGES = (
    *(f"{number} {text}" for number in ("01", "02", "03") for text in ("this", "that")),
    *("delete", "prune", "hide", "show", "copy", "fork", "roll back", "adopt"),
    *("restore", "restore back", "sweep", "drain", "take", "store"),
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(st.tuples(st.sampled_from(CHANGES), st.sampled_from("ab")), max_size=12))
def test_after_any_changes_the_documents_are_those_that_may_be_found(
    world: JournalWorld, steps: list[tuple[str, str]]
) -> None:
    prefix = world.next_prefix()

    async def run(journal: Journal) -> None:
        index, stretch = journal.index, Stretch()
        await _change("01 this", journal, prefix + "a")
        for what, thread in steps:
            world.clock.advance(0.001)
            if what == "drain":
                await drain(journal)
            elif what == "take":
                stretch = await index.take(5)
            elif what == "store":  # perhaps long after the changes were taken
                await index.store(stretch, stretch.due, remember=True)
            else:
                try:
                    await _change(what, journal, prefix + thread)
                except Refusal:
                    continue
        await drain(journal)
        may_be_found = await findable(journal)
        assert await indexed(journal) >= may_be_found
        await index.sweep()
        assert await indexed(journal) == may_be_found
        said = await summaries(journal)
        for number, summary in await rows_of(journal, checkpoints, "number", "summary"):
            assert said.get(number, summary) == summary
        assert await due_keys(journal) == []
        await check_text(journal)

    world.run(run(world.journal))
