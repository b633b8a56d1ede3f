"""Threads made from other threads have the effects that belong to them; recovery has all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.effects.kit import Agent
from tests.integration.archive.recover.recovered import recovered_house
from tests.kit.archives import House
from tests.kit.drafts import TENANT, draft, key, refused
from tests.kit.journal import Clock, Journal, opened, row_of, rows_of, save
from tuskpoint_server.archive.formats.bundled_effects import NAMESPACES
from tuskpoint_server.archive.formats.bundles import Closure, decode_bundle, encode_bundle
from tuskpoint_server.core.effects.records import EffectsMode, EffectState, effect_id, effects_of
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import CheckpointKey, Value
from tuskpoint_server.features.lineage.snapshot_rows import SnapshotDraft
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.removal.deletion import end_incarnation
from tuskpoint_server.journal.sql.schema import checkpoints

RUNNING, DONE, FAILED, UNKNOWN = EffectState
ALL = {
    "own, first": DONE,
    "task of 01": DONE,
    "task of 02": DONE,
    "own, second": RUNNING,
    "task of 03": RUNNING,
    "own, third": FAILED,
}
AT_02 = {"own, first": DONE, "task of 01": DONE, "task of 02": DONE, "own, second": UNKNOWN}


async def work(journal: Journal) -> Agent:
    """Save three checkpoints, with effects of tasks and of the whole thread."""
    agent = Agent(journal)
    await agent.do("own, first", b"one")
    await save(journal, draft("01"), draft("02", "01"))
    for checkpoint_id in ("01", "02"):
        agent.place = ("", checkpoint_id)
        await agent.do(f"task of {checkpoint_id}", checkpoint_id.encode())
    agent.place = None
    await agent.begin("own, second")
    await save(journal, draft("03", "02"))
    agent.place = ("", "03")
    await agent.begin("task of 03")
    agent.place = None
    await agent.fail(await agent.begin("own, third"))
    assert await agent.states() == ALL
    return agent


def running_is_unknown(states: dict[str, EffectState]) -> dict[str, EffectState]:
    return {key: UNKNOWN if state is RUNNING else state for key, state in states.items()}


async def test_a_fork_has_the_effects_of_its_checkpoint(journal: Journal) -> None:
    agent = await work(journal)
    await journal.lineage.fork(TENANT, key("02"), "fork", "")
    fork = Agent(journal, "fork")
    assert await fork.states() == AT_02
    assert await fork.result("task of 02") == b"02"
    keys = {effect.record.key: effect.record.idempotency_key for effect in await agent.all()}
    for effect in await fork.all():
        assert effect.record.idempotency_key == keys[effect.record.key]
    assert await agent.states() == ALL
    assert not (await fork.begin("own, second")).run
    assert (await fork.begin("own, third")).run
    await journal.lineage.fork(TENANT, key("03"), "whole", "")
    assert (await Agent(journal, "whole").states()).keys() == ALL.keys() - {"task of 01"}
    await journal.lineage.copy_thread(TENANT, "t", "copy", "")
    assert await Agent(journal, "copy").states() == running_is_unknown(ALL)
    await journal.removal.delete_thread(TENANT, "t")
    assert await fork.result("task of 02") == b"02"


async def test_a_name_with_effects_is_taken(journal: Journal) -> None:
    await save(journal, draft("01"))
    begun = Agent(journal, "begun")
    await begun.begin()
    await refused(journal.lineage.fork(TENANT, key("01"), "begun", ""), Reason.THREAD_EXISTS)
    await refused(journal.lineage.copy_thread(TENANT, "t", "begun", ""), Reason.THREAD_EXISTS)
    look = journal.lineage.adopted(TENANT, key("01"), "ab" * 32, "begun", "", "")
    await refused(look, Reason.THREAD_EXISTS)
    await journal.removal.delete_thread(TENANT, "begun")
    await journal.lineage.fork(TENANT, key("01"), "begun", "")
    assert await begun.states() == {}


async def test_a_thread_that_only_answers(journal: Journal) -> None:
    agent = await work(journal)
    await journal.lineage.fork(TENANT, key("01"), "answers", "", mode=EffectsMode.ANSWER)
    answers = Agent(journal, "answers")
    assert await answers.states() == running_is_unknown(ALL)
    await save(journal, draft("04", "01", thread_id="answers"))
    seen = []
    for number in range(4):
        answer = await answers.begin(f"new {number}")
        assert not answer.run
        seen.append((answer.effect.record.answers, answer.effect.state))
    assert seen == [
        ("own, first", DONE),
        ("own, third", FAILED),
        ("task of 01", DONE),
        ("task of 02", DONE),
    ]
    assert await answers.result("new 3") == b"02"
    await refused(answers.begin("new 4"), Reason.EFFECT_NOT_RECORDED)
    assert not (await answers.begin("new 0")).changed
    await journal.lineage.fork(TENANT, key("01", "answers"), "again", "")
    again = Agent(journal, "again")
    assert (await again.begin("newer")).effect.record.answers == "own, first"
    await save(journal, draft("01", thread_id="bare"))
    bare = key("01", "bare")
    await journal.lineage.fork(TENANT, bare, "silent", "", mode=EffectsMode.ANSWER)
    await refused(Agent(journal, "silent").begin(), Reason.EFFECT_NOT_RECORDED)
    assert await agent.states() == ALL


async def test_a_snapshot_restores_what_was_known_then_and_is_known_now(journal: Journal) -> None:
    agent = await work(journal)
    snapshot = await journal.snapshots.create_snapshot(TENANT, SnapshotDraft(("t",)), "")
    [running] = [effect for effect in await agent.all() if effect.record.key == "task of 03"]
    record = running.record
    await journal.effects.complete(TENANT, "t", record.key, record.idempotency_key, None)

    async def restored() -> dict[str, EffectState]:
        [saved] = await journal.snapshots.restore_snapshot(
            TENANT, snapshot.snapshot_id, rollback=False, request_id=""
        )
        states = await Agent(journal, saved.key.thread_id).states()
        await journal.removal.delete_thread(TENANT, saved.key.thread_id)
        return states

    captured = running_is_unknown(ALL)
    del captured["task of 01"]
    assert await restored() == {**captured, "task of 03": DONE}
    await journal.removal.delete_thread(TENANT, "t")
    assert await restored() == captured
    assert await journal.snapshots.delete_snapshot(TENANT, snapshot.snapshot_id)
    assert await rows_of(journal, checkpoints, "seq", "metadata") == []


@pytest.fixture
async def elsewhere(tmp_path: Path, clock: Clock) -> AsyncIterator[Journal]:
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    async with opened(directory, clock) as journal:
        yield journal


async def bundle(journal: Journal, checkpoint_id: str, thread_id: str = "t") -> bytes:
    closure = await journal.lineage.closure(TENANT, key(checkpoint_id, thread_id))
    assert closure is not None
    return encode_bundle(closure)


async def adopt(journal: Journal, data: bytes, target: str = "t") -> Agent:
    closure = decode_bundle(data, "blob")
    await journal.lineage.adopt(TENANT, closure, "ab" * 32, target, "agent", "")
    return Agent(journal, target)


async def test_a_hand_off_carries_effects(journal: Journal, elsewhere: Journal) -> None:
    agent = await work(journal)
    data = await bundle(journal, "02")
    assert await bundle(journal, "02") == data
    adopted = await adopt(elsewhere, data)
    assert await adopted.states() == AT_02
    assert await adopted.result("task of 02") == b"02"
    keys = {effect.record.key: effect.record.idempotency_key for effect in await agent.all()}
    for effect in await adopted.all():
        assert effect.record.idempotency_key == keys[effect.record.key]
    unknown = await adopted.resolve("own, second", 1, done=False)
    assert unknown.effect.state is FAILED
    await journal.lineage.fork(TENANT, key("02"), "answers", "", mode=EffectsMode.ANSWER)
    answers = await adopt(elsewhere, await bundle(journal, "02", "answers"), "answers")
    await refused(answers.begin("x", name="unheard of"), Reason.EFFECT_NOT_RECORDED)


async def test_a_bundle_with_effects_is_malformed_for_a_server_that_knows_none(
    journal: Journal,
) -> None:
    await work(journal)
    data = await bundle(journal, "02")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tuskpoint_server.archive.formats.bundled_effects.NAMESPACES", {})
        with pytest.raises(Refusal) as refusal:
            decode_bundle(data, "blob")
    assert refusal.value.reason is Reason.BLOB_MALFORMED
    assert "checkpoint_ns must not contain NUL" in refusal.value.message


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"checkpoint_id": "00" * 32}, "does not belong to its key"),
        ({"metadata": b"{}"}, "cannot be read"),
        ({"metadata": b"[" * 100_000}, "cannot be read"),
        ({"state": b"\xff"}, "not a CheckpointState"),
        ({"state": b"\x08\x02"}, "parts that no effect has"),
        ({"label": "x"}, "parts that no effect has"),
        ({"checkpoint_ns": NAMESPACES[EffectsMode.ANSWER]}, "two kinds"),
    ],
)
async def test_a_forged_effect_is_refused(
    journal: Journal, change: dict[str, object], problem: str
) -> None:
    await work(journal)
    closure = await journal.lineage.closure(TENANT, key("02"))
    assert closure is not None
    rows = [*closure.segment.checkpoints]
    rows[-1] = rows[-1]._replace(**change)  # type: ignore[arg-type]
    segment = replace(closure.segment, checkpoints=tuple(rows))
    with pytest.raises(Refusal) as refusal:
        decode_bundle(encode_bundle(Closure(closure.key, segment)), "blob")
    assert refusal.value.reason is Reason.BLOB_MALFORMED
    assert problem in refusal.value.message
    rows.append(closure.segment.checkpoints[-1])
    rows[-2] = rows[-1]
    segment = replace(closure.segment, checkpoints=tuple(rows))
    with pytest.raises(Refusal, match="twice"):
        decode_bundle(encode_bundle(Closure(closure.key, segment)), "blob")


async def test_recovery_and_eviction_keep_effects(tmp_path: Path, home: House) -> None:
    agent = await work(home.journal)
    only = Agent(home.journal, "only effects")
    await only.begin()
    gone = Agent(home.journal, "gone")
    await gone.do()
    await home.journal.removal.delete_thread(TENANT, "gone")
    await home.flush()
    before = {effect.record.key: effect.record for effect in await agent.all()}
    assert await home.evict() > 0
    await home.flush()
    async with recovered_house(tmp_path / "recovered", home) as after:
        recovered = Agent(after.journal)
        assert {effect.record.key: effect.record for effect in await recovered.all()} == before
        assert await Agent(after.journal, "only effects").states() == {"pay": RUNNING}
        await refused(Agent(after.journal, "gone").begin(), Reason.THREAD_DELETED)
        assert not (await recovered.begin("own, first")).run
        begun = await recovered.begin("new")
        await recovered.complete(begun, b"new")
        await after.flush()
        async with recovered_house(tmp_path / "again", after) as again:
            record = CheckpointKey(effects_of("t"), "", effect_id("new"))
            stored = await again.from_blobs(record)
            assert stored.state is not None
            [channel] = stored.state.channels
            assert channel.value == Value("json", b"new")


async def test_recovery_gives_no_thread_the_effects_of_an_ended_incarnation(
    tmp_path: Path, home: House
) -> None:
    """A disk is lost when the end of a thread is certified, and the end of its effects is not."""
    for thread_id in ("ended", "restarted"):
        await Agent(home.journal, thread_id).do()

        def end(batch: UnitOfWork, thread_id: str = thread_id) -> None:
            log = batch.find(TENANT, thread_id)
            assert log is not None
            end_incarnation(batch, log)
            batch.logs.clear()

        await home.journal.database.transact(end)
    await save(home.journal, draft("09", thread_id="restarted"))
    await home.flush()
    async with recovered_house(tmp_path / "recovered", home) as after:
        assert (await row_of(after.journal, effects_of("ended"))).deleted
        agent = Agent(after.journal, "restarted")
        assert await agent.states() == {}
        assert (await agent.begin()).run
        assert await agent.states() == {"pay": RUNNING}
