"""A checkpoint that no read could return is not stored."""

from __future__ import annotations

from tests.kit.drafts import TENANT, draft, key, refused, write
from tests.kit.journal import Journal
from tuskpoint.v1.checkpoint_pb2 import CheckpointState
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.model import View


async def test_more_writes_than_a_read_can_return_are_refused(journal: Journal) -> None:
    saved = await journal.save_checkpoint(TENANT, draft("c1"))
    path = "p" * LIMITS.max_task_path
    fitting = LIMITS.max_write_names // (LIMITS.max_task_path + 256)
    few = [write("x", b"", task="few", idx=number, path=path) for number in range(fitting)]
    many = [write("x", b"", task="many", idx=number, path=path) for number in range(fitting)]
    await journal.save_writes(TENANT, saved.key, few)
    await refused(journal.save_writes(TENANT, saved.key, many), Reason.LIMIT_EXCEEDED)
    loaded = await journal.load(TENANT, saved.key, View.FULL)
    assert loaded is not None
    assert {each.task_id for each in loaded.writes} == {"few"}
    await journal.save_writes(TENANT, saved.key, many[:1])


async def test_a_state_that_no_message_can_hold_is_refused(journal: Journal) -> None:
    frame = CheckpointState(ts="t" * LIMITS.max_state).SerializeToString()
    saving = journal.save_checkpoint(TENANT, draft("c1", frame=frame))
    await refused(saving, Reason.LIMIT_EXCEEDED)
    assert await journal.load(TENANT, key("c1"), View.FULL) is None


async def test_a_tenant_with_as_many_threads_as_it_may_have_begins_no_other(
    journal: Journal,
) -> None:
    await journal.save_checkpoint(TENANT, draft("c1"))
    await journal.save_writes(TENANT, key("c1", "u"), [write("x", b"early")])
    threads, stored_bytes = await journal.stored_by(TENANT)
    assert threads == 2
    journal.limit_threads(TENANT, 2, threads)
    refusal = await refused(
        journal.save_checkpoint(TENANT, draft("c1", thread_id="v")), Reason.QUOTA_EXCEEDED
    )
    assert refusal.metadata == {"tenant": TENANT, "quota": "threads", "limit": "2"}
    await refused(
        journal.save_writes(TENANT, key("c1", "v"), [write("x", b"early")]), Reason.QUOTA_EXCEEDED
    )
    await journal.save_checkpoint(TENANT, draft("c2", "c1"))
    await journal.save_checkpoint("other", draft("c1", thread_id="v"))
    assert (await journal.stored_by("other"))[0] == 1
    assert (await journal.stored_by(TENANT))[1] >= stored_bytes
    await journal.removal.delete_thread(TENANT, "u")
    journal.limit_threads(TENANT, 2, (await journal.stored_by(TENANT))[0])
    await journal.save_checkpoint(TENANT, draft("c1", thread_id="v"))
