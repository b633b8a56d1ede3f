"""What no read could return is not stored."""

from __future__ import annotations

from tests.kit.drafts import TENANT, draft, key, refused, write
from tests.kit.journal import Journal
from tuskpoint.v1.checkpoint_pb2 import CheckpointState
from tuskpoint_server.domain.errors import Reason
from tuskpoint_server.domain.limits import LIMITS
from tuskpoint_server.domain.model import View


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
