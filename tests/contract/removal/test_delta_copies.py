"""Delta channels of siblings whose common parent is gone have the same history."""

from __future__ import annotations

from pathlib import Path

from tests.kit.drafts import TENANT, channel, draft, key, write
from tests.kit.journal import Clock, opened
from tuskpoint_server.core.threads import PruneStrategy


async def test_a_copy_of_a_pruned_checkpoint_is_rebuilt_as_the_checkpoint_is(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, Clock()) as journal:
        await journal.save_checkpoint(
            TENANT,
            draft(
                "a", "", (channel("log", b"seed"),), delta=("log",), writes=(write("log", b"1"),)
            ),
        )
        await journal.save_checkpoint(
            TENANT, draft("b", "a", {}, delta=("log",), writes=(write("log", b"2"),))
        )
        await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
        # An agent that copies a checkpoint gives the copy the same parent.
        await journal.save_checkpoint(TENANT, draft("c", "a", {}, delta=("log",)))
        [of_b] = await journal.delta_history(TENANT, key("b"), ["log"])
        [of_c] = await journal.delta_history(TENANT, key("c"), ["log"])
    assert of_b.seed is not None
    assert [write.value.data for write in of_b.writes] == [b"1"]
    assert (of_c.seed, of_c.writes) == (of_b.seed, of_b.writes)
