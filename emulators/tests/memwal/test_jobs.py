"""Jobs of the emulated relayer: states, delays, idempotency keys."""

from __future__ import annotations

from typing import Any

import pytest
from nacl.signing import SigningKey

from emulators.tests.memwal.peer import NOON, Peer, free, running
from tuskpoint_emulators.memwal.access.accounts import Credentials
from tuskpoint_emulators.memwal.clock import Clock
from tuskpoint_emulators.memwal.faults import Fault, FaultKind, Operation

TEXT = "The writer started the report on Monday"


async def asked(memwal: Peer, job_id: str) -> dict[str, Any]:
    value = (await memwal.get(f"/api/remember/{job_id}")).json()
    assert isinstance(value, dict)
    return value


async def bulk(memwal: Peer, *texts: str) -> list[str]:
    items = [{"text": text, "namespace": "team"} for text in texts]
    response = await memwal.post("/api/remember/bulk", {"items": items})
    assert response.status_code == 202, response.text
    body = response.json()
    assert (body["total"], body["status"]) == (len(texts), "running")
    return list(body["job_ids"])


async def test_job_passes_through_its_states_and_is_recallable_only_when_done() -> None:
    async with running(free(job_delay_s=30)) as memwal:
        job_id = await memwal.accept(TEXT, namespace="team")
        base = {"job_id": job_id, "owner": memwal.emulator.owner, "namespace": "team"}
        assert await asked(memwal, job_id) == {**base, "status": "pending"}
        memwal.emulator.clock.advance(3)
        assert await asked(memwal, job_id) == {**base, "status": "running"}
        memwal.emulator.clock.advance(24)
        uploaded = await asked(memwal, job_id)
        assert uploaded == {**base, "status": "uploaded", "blob_id": uploaded["blob_id"]}
        assert await memwal.recalled(TEXT, namespace="team") == []
        assert memwal.emulator.jobs.unfinished == 1
        memwal.emulator.clock.advance(3)
        assert await asked(memwal, job_id) == {**uploaded, "status": "done"}
        assert await memwal.recalled(TEXT, namespace="team") == [TEXT]
        assert memwal.emulator.jobs.unfinished == 0
        statistics = memwal.emulator.statistics
        assert statistics.accepted == statistics.stored == {TEXT: 1}


async def test_job_without_a_delay_is_done_at_once() -> None:
    async with running() as memwal:
        job_id = await memwal.accept(TEXT)
        assert await memwal.status(job_id) == "done"
        assert await memwal.recalled(TEXT) == [TEXT]


async def test_unknown_job_is_not_found() -> None:
    async with running() as memwal:
        response = await memwal.get("/api/remember/00000000-0000-4000-8000-000000000000")
        assert response.status_code == 404
        assert set(response.json()) == {"error"}


async def test_jobs_of_a_batch_are_in_its_order() -> None:
    async with running(free(job_delay_s=10)) as memwal:
        job_ids = await bulk(memwal, "a", "b", "c")
        memwal.emulator.clock.advance(10)
        response = await memwal.post("/api/remember/bulk/status", {"job_ids": job_ids[::-1]})
        results = response.json()["results"]
        assert [result["job_id"] for result in results] == job_ids[::-1]
        texts = {memory.blob_id: memory.text for memory in memwal.emulator.ledger.memories()}
        assert [texts[result["blob_id"]] for result in results] == ["c", "b", "a"]


async def test_batch_sent_again_is_stored_again() -> None:
    async with running() as memwal:
        await bulk(memwal, "a", "b")
        await bulk(memwal, "a")
        assert await memwal.recalled("a", namespace="team") == ["a", "a", "b"]
        assert memwal.emulator.statistics.duplicates == {"a": 2}


async def test_key_is_one_job() -> None:
    async with running(free()) as memwal:
        job_id = await memwal.accept(TEXT, idempotency_key="k", namespace="team")
        assert await memwal.accept(TEXT, idempotency_key="k", namespace="team") == job_id
        assert await memwal.accept(TEXT, idempotency_key="other", namespace="team") != job_id
        assert await memwal.accept(TEXT, namespace="team") != job_id
        for changed in ({"text": "else"}, {"namespace": "default"}):
            body = {"text": TEXT, "namespace": "team", "idempotency_key": "k", **changed}
            response = await memwal.post("/api/remember", body)
            assert response.status_code == 409
            assert set(response.json()) == {"error"}
        assert memwal.emulator.statistics.stored == {TEXT: 3}


async def test_key_is_an_owners_own() -> None:
    async with running(free()) as memwal:
        other = Credentials.make()
        memwal.emulator.accounts[other.account_id] = other.account
        job_id = await memwal.accept(TEXT, idempotency_key="k")
        response = await memwal.post(
            "/api/remember",
            {"text": "else", "idempotency_key": "k"},
            key=SigningKey(bytes.fromhex(other.private_key)),
            account_id=other.account_id,
        )
        assert response.status_code == 202
        assert response.json()["job_id"] != job_id


async def test_key_of_a_failed_job_begins_it_again_after_its_lease() -> None:
    async with running(free(job_delay_s=10)) as memwal:
        memwal.emulator.faults.add(
            Operation.REMEMBER, Fault(kind=FaultKind.FAIL_JOBS, message="no gas")
        )
        job_id = await memwal.accept(TEXT, idempotency_key="k")
        memwal.emulator.clock.advance(10)
        failed = await asked(memwal, job_id)
        assert (failed["status"], failed["error"]) == ("failed", "no gas")
        assert "blob_id" not in failed
        memwal.emulator.clock.advance(49)
        assert await memwal.accept(TEXT, idempotency_key="k") == job_id
        assert await memwal.status(job_id) == "failed"
        memwal.emulator.clock.advance(1)
        assert await memwal.accept(TEXT, idempotency_key="k") == job_id
        assert await memwal.status(job_id) == "pending"
        memwal.emulator.clock.advance(10)
        assert await memwal.status(job_id) == "done"
        assert memwal.emulator.statistics.stored == {TEXT: 1}


async def test_stuck_jobs_run_until_they_are_let_go() -> None:
    async with running(free(job_delay_s=10)) as memwal:
        await memwal.plan("bulk", {"kind": "stick_jobs", "positions": [1]})
        job_ids = await bulk(memwal, "a", "b")
        memwal.emulator.clock.advance(3 * 86_400)
        assert [await memwal.status(job_id) for job_id in job_ids] == ["done", "running"]
        assert (await memwal.tell("POST", "jobs/unstick")) == {"delay_s": 10, "unfinished": 1}
        memwal.emulator.clock.advance(10)
        assert await memwal.status(job_ids[1]) == "done"
        assert memwal.emulator.ledger.texts("team") == ["a", "b"]


async def test_batch_is_lost_after_it_was_accepted() -> None:
    async with running(free()) as memwal:
        await memwal.plan("bulk", {"kind": "lose_jobs"})
        job_ids = await bulk(memwal, "a", "b")
        response = await memwal.post("/api/remember/bulk/status", {"job_ids": job_ids})
        assert response.json()["results"] == [
            {"job_id": job_id, "status": "not_found"} for job_id in job_ids
        ]
        assert (await memwal.get(f"/api/remember/{job_ids[0]}")).status_code == 404
        assert await memwal.recalled("a", namespace="team") == []
        assert memwal.emulator.statistics.accepted == {"a": 1, "b": 1}
        assert memwal.emulator.statistics.stored == {}


async def test_lost_job_frees_its_key() -> None:
    async with running(free()) as memwal:
        await memwal.plan("remember", {"kind": "lose_jobs"})
        lost = await memwal.accept(TEXT, idempotency_key="k")
        assert await memwal.accept(TEXT, idempotency_key="k") != lost
        assert memwal.emulator.statistics.stored == {TEXT: 1}


async def test_one_job_takes_longer_than_the_others() -> None:
    async with running(free(job_delay_s=10)) as memwal:
        await memwal.plan("remember", {"kind": "slow_jobs", "delay_s": 600})
        slow, usual = await memwal.accept("slow"), await memwal.accept("usual")
        memwal.emulator.clock.advance(10)
        assert [await memwal.status(job_id) for job_id in (slow, usual)] == ["pending", "done"]
        memwal.emulator.clock.advance(590)
        assert await memwal.status(slow) == "done"


async def test_delay_is_changed_for_the_jobs_to_come() -> None:
    async with running(free()) as memwal:
        done = await memwal.accept("before")
        assert await memwal.tell("PUT", "jobs", delay_s=30) == {"delay_s": 30, "unfinished": 0}
        late = await memwal.accept("after")
        assert [await memwal.status(job_id) for job_id in (done, late)] == ["done", "pending"]


def test_clock_goes_on_only() -> None:
    clock = Clock(lambda: NOON)
    assert clock.advance(1.5) == clock.now() == NOON + 1.5
    for seconds in (-1, 1e9, float("nan")):
        with pytest.raises(ValueError, match="time advances"):
            clock.advance(seconds)
