"""What manifests are told where removals, retries and packs on their way meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from sqlalchemy import Connection

from tests.integration.archive_kit import TENANT, Clock, open_kit, write
from tuskpoint_server.blobs.api import Member, Receipt
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.model import PruneStrategy
from tuskpoint_server.journal import archive_packs


async def test_pack_on_its_way_does_not_forget_a_later_retraction(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        for thread_id in ("a", "b"):
            await kit.save("1", thread_id=thread_id)
            await kit.save("2", "1", thread_id=thread_id)
        await kit.archive.certify_all(TENANT)
        await kit.journal.prune_thread(TENANT, "a", PruneStrategy.KEEP_LATEST)
        put = kit.blobs.put

        async def remove_first(members: Sequence[Member], *, apart: bool = False) -> Receipt:
            kit.blobs.put = put  # type: ignore[method-assign]
            await kit.journal.delete_thread(TENANT, "a")
            await kit.journal.prune_thread(TENANT, "b", PruneStrategy.KEEP_LATEST)
            return await put(members, apart=apart)

        kit.blobs.put = remove_first  # type: ignore[method-assign]
        await kit.archive.certify_all(TENANT)
        await kit.archive.certify_all(TENANT)
        assert set(await kit.manifest("b")) == {"2"}


async def test_checkpoint_saved_anew_is_never_taken_back(tmp_path: Path) -> None:
    async with open_kit(tmp_path, max_pack_checkpoints=2) as kit:
        for number in range(6):
            await kit.save(str(number), str(number - 1) if number else "")
        await kit.archive.certify_all(TENANT)
        await kit.journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
        await kit.save("4")  # its retraction is the fifth, beyond what one pack tells
        await kit.archive.certify_all(TENANT)
        assert set(await kit.manifest()) == {"4", "5"}
        entry = await kit.entry("4")
        assert entry.certified_revision == entry.revision


async def test_deletion_is_told_though_the_next_incarnation_came_to_nothing(
    tmp_path: Path,
) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.save("1")
        await kit.archive.certify_all(TENANT)
        await kit.journal.delete_thread(TENANT, "t")
        await kit.save("2", metadata={"run_id": "r"})
        await kit.journal.delete_runs(TENANT, ["r"])
        await kit.archive.certify_all(TENANT)
        head = (await kit.heads())["t"]
        assert (head.ended, head.incarnation) == (True, 1)
        await kit.save("3")
        await kit.archive.certify_all(TENANT)
        head = (await kit.heads())["t"]
        assert (head.ended, head.incarnation) == (False, 2)
        assert set(await kit.manifest()) == {"3"}


async def test_nobody_waits_for_an_archive_that_stopped(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        saved = await kit.save("1")
        await kit.archive.stop()
        for wait in (
            kit.archive.certify(TENANT, saved.key, saved.revision),
            kit.archive.certify_all(TENANT),
        ):
            with pytest.raises(Refusal) as refused:
                await wait
            assert refused.value.reason is Reason.DRAINING


@pytest.mark.parametrize("restarted", [False, True], ids=["goes on", "restarts"])
async def test_pack_that_was_recorded_though_the_journal_failed(
    tmp_path: Path, restarted: bool
) -> None:
    clock = Clock()
    async with open_kit(tmp_path, clock=clock) as kit:
        await kit.save("1")
        await kit.archive.certify_all(TENANT)
        await kit.journal.copy_thread(TENANT, "t", "copy", "")
        transact = kit.journal.transact

        async def commit_and_fail(work: Callable[[Connection], object]) -> NoReturn:
            kit.journal.transact = transact  # type: ignore[method-assign]
            await transact(work)
            raise Refusal(Reason.JOURNAL_UNAVAILABLE, problem="as if")

        kit.journal.transact = commit_and_fail  # type: ignore[method-assign, assignment]
        with pytest.raises(Refusal):
            await kit.archive.certify_all(TENANT)
        if not restarted:
            await kit.archive.certify_all(TENANT)
            assert await kit.journal.query(archive_packs.unfinished) == []
            assert set(await kit.manifest("copy")) == {"1"}
    async with open_kit(tmp_path, clock=clock) as kit:
        await kit.save_writes("1", write(b"late"), thread_id="copy")
        await kit.archive.certify_all(TENANT)
        entry = (await kit.manifest("copy"))["1"]
        assert (entry.envelope, *entry.addenda) == (await kit.entry("1", "copy")).envelopes
