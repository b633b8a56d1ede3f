"""Every call of MemWal's installed SDK, against the emulated relayer."""

from __future__ import annotations

import asyncio
import base64
from importlib.metadata import version

import httpx
import pytest
from memwal import (
    MemWal,
    MemWalSync,
    RecallManualOptions,
    RecallParams,
    RememberBulkItem,
    RememberBulkOptions,
    RememberManualOptions,
    ScoringWeights,
)
from memwal.client import (
    MemWalClockDriftError,
    MemWalError,
    MemWalRateLimited,
    MemWalRememberJobFailed,
    MemWalRememberJobNotFound,
    MemWalRememberJobTimeout,
)

from emulators.tests.memwal.peer import free, running, until
from tuskpoint_emulators.memwal.access.accounts import Credentials
from tuskpoint_emulators.memwal.faults import Fault, FaultKind, Operation, Stage

WRITER = "The writer started the report on Monday"
QUICKLY = RememberBulkOptions(poll_interval_ms=100, timeout_ms=20_000)


@pytest.fixture(autouse=True)
def _without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_sdk_is_the_one_that_the_server_asks_for() -> None:
    assert (0, 1, 12) <= tuple(int(part) for part in version("memwal").split(".")) < (0, 3)


async def test_first_call_asks_for_version_package_and_session_once() -> None:
    async with running() as memwal:
        await memwal.sdk.recall("anything")
        await memwal.sdk.recall("anything else")
        assert memwal.emulator.statistics.requests == {
            "GET /version 200": 1,
            "GET /config 200": 1,
            "POST /sui 200": 1,
            "POST /api/recall 200": 2,
        }


async def test_cold_calls_share_one_session() -> None:
    async with running() as memwal:
        await asyncio.gather(*(memwal.sdk.recall("anything") for _ in range(20)))
        requests = memwal.emulator.statistics.requests
        assert requests["GET /config 200"] == requests["POST /sui 200"] == 1
        assert requests["POST /api/recall 200"] == 20


async def test_health_and_compatibility() -> None:
    async with running() as memwal:
        health = await memwal.sdk.health()
        assert (health.status, health.mode, health.write_ready) == ("ok", "emulator", True)
        assert health.min_supported_sdk is not None
        compatibility = await memwal.sdk.compatibility()
        assert compatibility["apiVersion"] == health.api_version == "1.0.0"
        assert compatibility["minSupportedSdk"] == health.min_supported_sdk


async def test_remember_waits_until_it_is_done() -> None:
    async with running(free(job_delay_s=30)) as memwal:
        accepted = await memwal.sdk.remember(WRITER, "team")
        assert accepted.status == "running"
        waiting = asyncio.create_task(
            memwal.sdk.wait_for_remember_job(accepted.job_id, poll_interval_ms=100)
        )
        await until(lambda: memwal.emulator.statistics.calls["job_status"] > 0)
        memwal.emulator.clock.advance(30)
        result = await waiting
        status = await memwal.sdk.get_remember_status(accepted.job_id)
        assert (result.id, result.namespace) == (accepted.job_id, "team")
        assert result.owner == status.owner == memwal.emulator.owner
        assert result.blob_id == status.blob_id
        assert len(result.blob_id) == 43
        assert status.status == "done"


async def test_remember_and_wait_then_recall() -> None:
    async with running() as memwal:
        stored = await memwal.sdk.remember_and_wait(WRITER)
        await memwal.sdk.remember_and_wait("cats sleep all day")
        result = await memwal.sdk.recall(RecallParams("when did the writer start?", limit=5))
        assert [hit.text for hit in result.results] == [WRITER, "cats sleep all day"]
        nearest, other = result.results
        assert nearest.blob_id == stored.blob_id
        assert nearest.distance < 0.5 < other.distance
        assert nearest.created_at == "2027-01-15T08:00:00Z"
        assert nearest.score is None
        assert (result.total, result.dropped_count) == (2, 0)
        near = await memwal.sdk.recall("when did the writer start?", max_distance=0.5)
        assert [hit.text for hit in near.results] == [WRITER]


async def test_equal_texts_are_one_job_by_the_sdks_own_key() -> None:
    async with running() as memwal:
        first = await memwal.sdk.remember(WRITER)
        again = await memwal.sdk.remember(WRITER)
        assert again.job_id == first.job_id
        assert memwal.emulator.statistics.stored[WRITER] == 1


async def test_batch_of_twenty_waits_until_all_are_done() -> None:
    async with running(free(job_delay_s=30)) as memwal:
        items = [RememberBulkItem(f"summary {number}", "team") for number in range(20)]
        waiting = asyncio.create_task(memwal.sdk.remember_bulk_and_wait(items, QUICKLY))
        await until(lambda: memwal.emulator.statistics.calls["bulk_status"] > 0)
        memwal.emulator.clock.advance(30)
        result = await waiting
        assert (result.total, result.succeeded, result.failed, result.timed_out) == (20, 20, 0, 0)
        assert len({outcome.blob_id for outcome in result.results}) == 20
        texts = memwal.emulator.ledger.texts("team")
        assert texts == [item.text for item in items]


async def test_batch_says_which_failed_and_which_nobody_knows() -> None:
    async with running() as memwal:
        memwal.emulator.faults.add(
            Operation.BULK,
            Fault(kind=FaultKind.FAIL_JOBS, message="upload failed", positions=(1,)),
        )
        accepted = await memwal.sdk.remember_bulk([RememberBulkItem("a"), RememberBulkItem("b")])
        unknown = "00000000-0000-4000-8000-000000000000"
        statuses = await memwal.sdk.get_remember_bulk_status([*accepted.job_ids, unknown])
        assert [job.status for job in statuses.results] == ["done", "failed", "not_found"]
        settled = await memwal.sdk.wait_for_remember_jobs([*accepted.job_ids, unknown], QUICKLY)
        assert [job.status for job in settled.results] == ["done", "failed", "failed"]
        assert settled.results[1].error == "upload failed"


async def test_waits_tell_failed_unknown_and_late_jobs_apart() -> None:
    async with running() as memwal:
        memwal.emulator.faults.add(
            Operation.REMEMBER,
            Fault(kind=FaultKind.FAIL_JOBS, message="no gas"),
            Fault(kind=FaultKind.LOSE_JOBS),
            Fault(kind=FaultKind.STICK_JOBS),
        )
        with pytest.raises(MemWalRememberJobFailed, match="no gas"):
            await memwal.sdk.remember_and_wait("one")
        with pytest.raises(MemWalRememberJobNotFound):
            await memwal.sdk.remember_and_wait("two")
        with pytest.raises(MemWalRememberJobTimeout) as late:
            await memwal.sdk.remember_and_wait("three", poll_interval_ms=100, timeout_ms=50)
        assert late.value.last_status == "running"
        assert (await memwal.sdk.get_remember_status("nobody-knows")).status == "not_found"


async def test_scores_come_with_weights() -> None:
    async with running(free()) as memwal:
        await memwal.sdk.remember_and_wait("the build is red")
        memwal.emulator.clock.advance(60 * 86_400)
        await memwal.sdk.remember_and_wait("the build is green")
        weights = ScoringWeights(semantic=0, recency=1, recency_half_life_days=30, importance=2)
        result = await memwal.sdk.recall(RecallParams("build red", scoring_weights=weights))
        assert [(hit.text, hit.score) for hit in result.results] == [
            ("the build is green", pytest.approx(2.0)),
            ("the build is red", pytest.approx(1.25)),
        ]


async def test_manual_calls_use_the_callers_vectors() -> None:
    async with running(free()) as memwal:
        vector = (await memwal.sdk.embed(WRITER)).vector
        assert len(vector) == 1536
        sealed = base64.b64encode(b"not SEAL's").decode()
        stored = await memwal.sdk.remember_manual(RememberManualOptions(sealed, vector, "team"))
        assert (stored.owner, stored.namespace) == (memwal.emulator.owner, "team")
        answer = await memwal.sdk.recall_manual(
            RecallManualOptions(vector=vector, namespace="team", limit=3)
        )
        (hit,) = answer.results
        assert (hit.blob_id, hit.importance) == (stored.blob_id, 0.5)
        assert hit.distance == pytest.approx(0, abs=1e-6)
        assert hit.created_at is not None
        # A recall of the text removes an undecryptable blob from the index.
        read = await memwal.sdk.recall("report", namespace="team")
        assert (read.results, read.total, read.dropped_count) == ([], 0, 1)
        gone = await memwal.sdk.recall_manual(RecallManualOptions(vector=vector, namespace="team"))
        assert gone.total == 0


async def test_facts_of_a_text_are_its_sentences() -> None:
    async with running(free()) as memwal:
        text = "Ann likes tea. Bob drives!\nCarol sings"
        result = await memwal.sdk.analyze_and_wait(
            text, "team", QUICKLY, occurred_at="2026-01-01T00:00:00Z"
        )
        assert [fact.text for fact in result.facts] == [
            "Ann likes tea.",
            "Bob drives!",
            "Carol sings",
        ]
        assert result.succeeded == 3
        assert result.owner == memwal.emulator.owner
        analysis = await memwal.sdk.analyze(" ".join(f"Fact {number}." for number in range(50)))
        assert analysis.fact_count == len(analysis.facts) == len(analysis.job_ids) == 20


async def test_question_is_answered_with_memories() -> None:
    async with running(free()) as memwal:
        for text in (WRITER, "cats sleep all day", "dogs bark at night"):
            await memwal.sdk.remember(text)
        reply = await memwal.sdk.ask("when did the writer start?", limit=1)
        assert (reply.answer, reply.memories_used) == (WRITER, 1)
        assert reply.memories[0].text == WRITER
        nothing = await memwal.sdk.ask("anything?", namespace="empty")
        assert (nothing.memories_used, nothing.memories) == (0, [])


async def test_forgotten_namespace_comes_back_by_restore() -> None:
    async with running(free()) as memwal:
        await memwal.sdk.remember_bulk([RememberBulkItem(f"text {number}") for number in range(3)])
        response = await memwal.post("/api/forget", {"namespace": "default"})
        assert response.json() == {
            "deleted": 3,
            "namespace": "default",
            "owner": memwal.emulator.owner,
        }
        assert (await memwal.sdk.recall("text")).results == []
        await memwal.sdk.remember("text 3")
        part = await memwal.sdk.restore("default", limit=2)
        assert (part.restored, part.skipped, part.total, part.truncated) == (2, 1, 4, True)
        rest = await memwal.sdk.restore("default")
        assert (rest.restored, rest.skipped, rest.failed, rest.truncated) == (1, 3, 0, False)
        assert len((await memwal.sdk.recall("text")).results) == 4


async def test_namespaces_are_listed_page_by_page() -> None:
    async with running(free()) as memwal:
        for name in ("b", "a/ß", "c"):
            await memwal.sdk.remember("text", name)
            memwal.emulator.clock.advance(1)
        first = await memwal.sdk.list_namespaces(limit=2)
        assert [namespace.name for namespace in first.namespaces] == ["b", "a/ß"]
        assert first.has_more
        last = await memwal.sdk.list_namespaces(first.next_cursor)
        assert [(namespace.name, namespace.memory_count) for namespace in last.namespaces] == [
            ("c", 1)
        ]
        assert not last.has_more
        await memwal.sdk.remember("more", "b")
        changed = await memwal.sdk.list_namespaces(last.next_cursor)
        assert [(namespace.name, namespace.storage_used) for namespace in changed.namespaces] == [
            ("b", 8)
        ]
        assert memwal.emulator.statistics.calls["stats"] == 1


async def test_refusals_reach_the_caller_as_the_sdks_errors() -> None:
    async with running() as memwal:
        faults = memwal.emulator.faults
        faults.add(Operation.RECALL, Fault(kind=FaultKind.REFUSE, status=503))
        with pytest.raises(MemWalError, match="503") as broken:
            await memwal.sdk.recall("anything")
        assert getattr(broken.value, "status", None) == 503
        faults.add(Operation.RECALL, Fault(kind=FaultKind.REFUSE, status=429, retry_after_s=7))
        with pytest.raises(MemWalError) as limited:
            await memwal.sdk.recall("anything")
        assert getattr(limited.value, "status", None) == 429
        assert getattr(limited.value, "retry_after", None) == "7"
        upstream = Fault(kind=FaultKind.REFUSE, status=503, auth_error="AUTH_UPSTREAM_UNAVAILABLE")
        faults.add(Operation.RECALL, upstream)
        with pytest.raises(MemWalError, match="not a sign-in failure"):
            await memwal.sdk.recall("anything")
        memwal.emulator.gate.ahead_s = 1000
        with pytest.raises(MemWalClockDriftError):
            await memwal.sdk.recall("anything")
        memwal.emulator.gate.ahead_s = 0
        memwal.emulator.accounts.clear()
        with pytest.raises(MemWalError, match="wrong private key"):
            await memwal.sdk.recall("anything")


async def test_wait_for_a_batch_raises_if_it_was_only_ever_limited() -> None:
    async with running() as memwal:
        accepted = await memwal.sdk.remember_bulk([RememberBulkItem("a")])
        memwal.emulator.faults.stand(
            Fault(kind=FaultKind.REFUSE, status=429, retry_after_s=60), Operation.BULK_STATUS
        )
        with pytest.raises(MemWalRateLimited):
            await memwal.sdk.wait_for_remember_jobs(
                accepted.job_ids, RememberBulkOptions(timeout_ms=50)
            )


async def test_lost_answer_is_made_good_by_the_same_call() -> None:
    async with running() as memwal:
        memwal.emulator.faults.add(
            Operation.REMEMBER, Fault(kind=FaultKind.DROP, stage=Stage.AFTER)
        )
        with pytest.raises(httpx.TransportError):
            await memwal.sdk.remember(WRITER)
        await memwal.sdk.remember(WRITER)
        assert memwal.emulator.statistics.stored[WRITER] == 1


async def test_call_has_no_deadline_of_its_own() -> None:
    async with running() as memwal:
        memwal.emulator.faults.add(Operation.RECALL, Fault(kind=FaultKind.HOLD))
        recall = asyncio.create_task(memwal.sdk.recall("anything"))
        await until(lambda: memwal.emulator.faults.held == 1)
        memwal.emulator.faults.release()
        assert (await recall).total == 0


async def test_blocking_sdk_is_served_too() -> None:
    def talk(url: str, credentials: Credentials) -> list[str]:
        with MemWalSync.create(credentials.private_key, credentials.account_id, url) as sdk:
            sdk.remember_and_wait(WRITER)
            return [hit.text for hit in sdk.recall("the writer").results]

    async with running() as memwal:
        emulator = memwal.emulator
        assert await asyncio.to_thread(talk, emulator.url, emulator.credentials) == [WRITER]


async def test_accounts_are_kept_apart() -> None:
    async with running() as memwal:
        emulator = memwal.emulator
        credentials = Credentials.make()
        emulator.accounts[credentials.account_id] = credentials.account
        await memwal.sdk.remember_and_wait(WRITER)
        async with MemWal.create(
            credentials.private_key, credentials.account_id, emulator.url
        ) as stranger:
            assert (await stranger.recall(WRITER)).results == []
            assert (await stranger.list_namespaces()).namespaces == []
            accepted = await memwal.sdk.remember("mine")
            status = await stranger.get_remember_status(accepted.job_id)
            assert status.status == "not_found"
            bulk = await stranger.get_remember_bulk_status([accepted.job_id])
            assert bulk.results[0].status == "not_found"
