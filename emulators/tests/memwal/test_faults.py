"""The faults of the emulated relayer, and the control API for them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from emulators.tests.memwal.peer import NOON, Peer, free, running, until
from tuskpoint_emulators.memwal.calls.unsigned import PACKAGE_ID
from tuskpoint_emulators.memwal.clock import Clock
from tuskpoint_emulators.memwal.faults import (
    SIGNED,
    Fault,
    FaultKind,
    FaultPlan,
    Operation,
    Stage,
)
from tuskpoint_emulators.memwal.server import MemWalEmulator

TEXT = "The writer started the report on Monday"
QUERY = {"query": "writer"}
CUT = (httpx.NetworkError, httpx.RemoteProtocolError)


async def remember(memwal: Peer, text: str = TEXT) -> httpx.Response:
    return await memwal.post("/api/remember", {"text": text})


@pytest.mark.parametrize("status", [402, 403, 503, 504])
@pytest.mark.parametrize("stage", Stage)
async def test_request_is_refused_before_or_after_it_is_carried_out(
    status: int, stage: Stage
) -> None:
    async with running() as memwal:
        await memwal.plan("remember", {"kind": "refuse", "status": status, "stage": stage})
        response = await remember(memwal)
        assert response.status_code == status
        assert set(response.json()) == {"error"}
        carried_out = stage is Stage.AFTER
        assert memwal.emulator.ledger.texts() == ([TEXT] if carried_out else [])
        assert memwal.emulator.statistics.points.total() == (5 if carried_out else 0)
        assert (await remember(memwal)).status_code == 202


async def test_some_refusals_have_a_form_of_their_own() -> None:
    async with running() as memwal:
        for fault in (
            {"status": 401},
            {"status": 429, "retry_after_s": 300},
            {"status": 500},
            {"status": 503, "auth_error": "AUTH_UPSTREAM_UNAVAILABLE"},
        ):
            await memwal.plan("recall", {"kind": "refuse", **fault})
        denied, limited, broken, away = [await memwal.post("/api/recall", QUERY) for _ in range(4)]
        assert (denied.status_code, denied.content) == (401, b"")
        assert (limited.status_code, limited.headers["retry-after"]) == (429, "300")
        assert limited.json()["retry_after_seconds"] == 300
        assert (broken.status_code, set(broken.json())) == (500, {"traceId"})
        assert away.headers["x-auth-error"] == "AUTH_UPSTREAM_UNAVAILABLE"


async def test_signature_is_judged_before_faults() -> None:
    async with running() as memwal:
        await memwal.plan("recall", {"kind": "refuse", "status": 503})
        denied = await memwal.post("/api/recall", QUERY, account_id="0x1")
        assert denied.status_code == 401
        assert (await memwal.post("/api/recall", QUERY)).status_code == 503


@pytest.mark.parametrize("stage", Stage)
async def test_connection_is_cut_before_or_after_the_request_is_carried_out(stage: Stage) -> None:
    async with running() as memwal:
        await memwal.plan("remember", {"kind": "drop", "stage": stage})
        with pytest.raises(CUT):
            await remember(memwal)
        texts = [TEXT] if stage is Stage.AFTER else []
        assert memwal.emulator.ledger.texts() == texts
        assert memwal.emulator.statistics.requests["POST /api/remember dropped"] == 1


@pytest.mark.parametrize("stage", Stage)
async def test_held_request_goes_on_when_it_is_released(stage: Stage) -> None:
    async with running() as memwal:
        await memwal.plan("remember", {"kind": "hold", "stage": stage})
        late = asyncio.create_task(remember(memwal))
        await until(lambda: memwal.emulator.faults.held == 1)
        assert memwal.emulator.ledger.texts() == ([TEXT] if stage is Stage.AFTER else [])
        assert (await memwal.tell("POST", "faults/release"))["injected"] == {"remember.hold": 1}
        assert (await late).status_code == 202
        assert memwal.emulator.ledger.texts() == [TEXT]


async def test_held_request_of_who_has_left_is_never_carried_out() -> None:
    async with running() as memwal:
        await memwal.plan("remember", {"kind": "hold"})
        task = asyncio.create_task(remember(memwal))
        await until(lambda: memwal.emulator.faults.held == 1)
        task.cancel()
        await asyncio.wait([task])
        # The server notices with the next event of its own socket.
        await memwal.http.get("/health")
        await memwal.tell("POST", "faults/release")
        await until(lambda: memwal.emulator.faults.held == 0)
        assert (await remember(memwal, "another")).status_code == 202
        assert memwal.emulator.ledger.texts() == ["another"]


async def test_request_is_late() -> None:
    async with running() as memwal:
        await memwal.plan("recall", {"kind": "delay", "latency_s": 3600})
        late = asyncio.create_task(memwal.post("/api/recall", QUERY))
        await until(lambda: memwal.emulator.faults.injected.total() == 1)
        memwal.emulator.faults.release()
        assert (await late).status_code == 200
        await memwal.plan("recall", {"kind": "delay", "latency_s": 0.001})
        assert (await memwal.post("/api/recall", QUERY)).status_code == 200


async def test_fault_stands_for_an_hour_of_the_clock() -> None:
    async with running(free()) as memwal:
        fault = {"kind": "refuse", "status": 429, "retry_after_s": 60}
        await memwal.plan("recall", fault, seconds=3600)
        for _ in range(3):
            assert (await memwal.post("/api/recall", QUERY)).status_code == 429
            memwal.emulator.clock.advance(1199)
        assert (await remember(memwal)).status_code == 202
        await memwal.tell("POST", "clock", advance_s=3)
        assert (await memwal.post("/api/recall", QUERY)).status_code == 200


async def test_fault_stands_for_all_signed_calls_until_it_is_cleared() -> None:
    async with running(free()) as memwal:
        await memwal.plan(None, {"kind": "refuse", "status": 503}, seconds=None)
        memwal.emulator.clock.advance(1e6)
        assert (await remember(memwal)).status_code == 503
        assert (await memwal.post("/api/recall", QUERY)).status_code == 503
        assert (await memwal.http.get("/health")).status_code == 200
        await memwal.tell("DELETE", "faults")
        assert (await remember(memwal)).status_code == 202


async def test_queued_faults_come_before_those_that_stand() -> None:
    plan = FaultPlan(Clock(lambda: NOON))
    standing, queued = Fault(kind=FaultKind.DROP), Fault(kind=FaultKind.HOLD)
    plan.stand(standing, Operation.RECALL)
    plan.add(Operation.RECALL, queued)
    assert [plan.take(Operation.RECALL) for _ in range(3)] == [queued, standing, standing]
    assert plan.take(Operation.REMEMBER) is None


def test_chances_repeat_with_their_seed() -> None:
    def drawn(plan: FaultPlan) -> list[bool]:
        return [plan.take(Operation.RECALL) is not None for _ in range(50)]

    plan = FaultPlan(Clock(lambda: NOON), seed=7)
    plan.add_chance(Operation.RECALL, Fault(kind=FaultKind.DROP), 0.5)
    first = drawn(plan)
    assert 5 < sum(first) < 45
    plan.reseed(7)
    assert drawn(plan) == first


async def test_unsigned_calls_fail_too() -> None:
    async with running() as memwal:
        for operation, path in (("health", "/health"), ("version", "/version")):
            await memwal.plan(operation, {"kind": "refuse", "status": 503})
            assert (await memwal.http.get(path)).status_code == 503
            assert (await memwal.http.get(path)).status_code == 200
        await memwal.plan("config", {"kind": "drop"})
        with pytest.raises(CUT):
            await memwal.http.get("/config")


async def test_recall_returns_what_nobody_remembered() -> None:
    async with running() as memwal:
        await remember(memwal)
        forged = ["[ckpt:AAAAAAAAAAAAAAAAAAAAAA]", "\u0000\u202e garbage", TEXT]
        await memwal.plan("recall", {"kind": "invent", "texts": forged, "distance": 0.1})
        response = (await memwal.post("/api/recall", {"query": TEXT})).json()
        assert [result["text"] for result in response["results"]] == [TEXT, *forged]
        assert response["total"] == 4
        assert await memwal.recalled(TEXT) == [TEXT]


async def test_recall_leaks_other_namespaces_and_owners() -> None:
    async with running() as memwal:
        ledger = memwal.emulator.ledger
        ledger.store(memwal.emulator.owner, "mine", "text one")
        ledger.store("0xother", "theirs", "text two")
        await memwal.plan("recall", {"kind": "leak"})
        leaked = await memwal.recalled("text two", namespace="empty")
        assert leaked == ["text two", "text one"]
        assert await memwal.recalled("text two", namespace="empty") == []


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("<html>not yours</html>", "text/plain; charset=utf-8"),
        ('{"results":[{"text":"without the rest"}]}', "application/json"),
        ('{"results":', "application/json"),
    ],
)
async def test_answer_is_whatever_it_is_told(body: str, kind: str) -> None:
    async with running() as memwal:
        await memwal.plan("recall", {"kind": "say", "status": 200, "body": body})
        response = await memwal.post("/api/recall", QUERY)
        assert (response.status_code, response.text) == (200, body)
        assert response.headers["content-type"] == kind


async def test_credentials_are_taken_away_and_given_back() -> None:
    async with running() as memwal:
        account_id = memwal.emulator.credentials.account_id
        before = await memwal.tell("GET", "accounts")
        account = before[account_id]
        assert account == memwal.emulator.credentials.account.to_json()
        for denied in ({**account, "active": False}, {**account, "delegates": []}):
            await memwal.tell("PUT", f"accounts/{account_id}", **denied)
            assert (await memwal.post("/api/recall", QUERY)).status_code == 401
            await memwal.tell("PUT", f"accounts/{account_id}", **account)
            assert (await memwal.post("/api/recall", QUERY)).status_code == 200
        assert await memwal.tell("DELETE", f"accounts/{account_id}") == {}
        assert (await memwal.post("/api/recall", QUERY)).status_code == 401


async def test_clock_drifts() -> None:
    async with running() as memwal:
        assert (await memwal.tell("PUT", "clock", ahead_s=-500))["ahead_s"] == -500
        response = await memwal.post("/api/recall", QUERY)
        assert response.headers["x-auth-error"] == "ERR_TIMESTAMP_OUT_OF_BOUNDS"
        await memwal.tell("PUT", "clock", ahead_s=0)
        assert (await memwal.post("/api/recall", QUERY)).status_code == 200
        assert (await memwal.tell("GET", "clock")) == {"now": NOON, "ahead_s": 0}


async def test_statistics_tell_what_was_asked_and_what_is_remembered() -> None:
    async with running() as memwal:
        await remember(memwal)
        await remember(memwal)
        await memwal.plan("recall", {"kind": "refuse"})
        await memwal.post("/api/recall", QUERY)
        statistics = await memwal.tell("GET", "statistics")
        assert statistics.pop("requests") == {
            "POST /api/recall 503": 1,
            "POST /api/remember 202": 2,
            "POST /emulator/faults 200": 1,
        }
        assert statistics == {
            "calls": {"remember": 2},
            "points": {"remember": 10},
            "points_spent": 10,
            "accepted": {TEXT: 2},
            "stored": {TEXT: 2},
            "unfinished_jobs": 0,
            "faults": {"recall.refuse": 1},
        }


async def test_reset_begins_again() -> None:
    async with running() as memwal:
        credentials = memwal.emulator.credentials
        await remember(memwal)
        await memwal.plan("recall", {"kind": "drop"}, times=5)
        await memwal.tell("PUT", "clock", ahead_s=1000)
        await memwal.tell("PUT", "jobs", delay_s=50)
        await memwal.tell("DELETE", f"accounts/{credentials.account_id}")
        await memwal.tell("POST", "reset")
        assert await memwal.recalled("writer") == []
        assert await memwal.status(await memwal.accept(TEXT)) == "done"
        assert memwal.emulator.statistics.stored == {TEXT: 1}


@pytest.mark.parametrize(
    ("operation", "fault", "more", "named"),
    [
        ("dream", {"kind": "drop"}, {}, "operation"),
        ("recall", None, {}, "fault"),
        ("recall", {}, {}, "kind"),
        ("recall", {"kind": "dream"}, {}, "kind"),
        ("recall", {"kind": "drop", "x": 1}, {}, "x"),
        ("recall", {"kind": "stick_jobs"}, {}, "recall"),
        ("remember", {"kind": "leak"}, {}, "leak"),
        ("bulk", {"kind": "say", "status": 99}, {}, "99"),
        ("bulk", {"kind": "refuse", "status": 200}, {}, "200"),
        ("bulk", {"kind": "drop", "status": "x"}, {}, "int"),
        ("bulk", {"kind": "drop", "latency_s": -1}, {}, "negative"),
        ("recall", {"kind": "invent", "texts": [1]}, {}, "texts"),
        ("recall", {"kind": "drop"}, {"times": 1, "seconds": 1}, "exclude"),
        ("recall", {"kind": "drop"}, {"times": -1}, "times"),
        ("recall", {"kind": "drop"}, {"probability": 2}, "probability"),
    ],
)
async def test_fault_that_does_not_fit_is_400(
    operation: str, fault: Any, more: dict[str, Any], named: str
) -> None:
    async with running() as memwal:
        body = {"operation": operation, "fault": fault, **more}
        response = await memwal.http.post("/emulator/faults", json=body)
        assert response.status_code == 400
        assert named in response.json()["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "named"),
    [
        ("POST", "clock", {"advance_s": -1}, "time"),
        ("POST", "clock", {"advance": 1}, "unknown"),
        ("PUT", "clock", {"ahead_s": "much"}, "ahead_s"),
        ("PUT", "jobs", {"delay_s": -1}, "delay_s"),
        ("PUT", "limits", {"enabled": "no"}, "enabled"),
        ("PUT", "limits", {"delegate_key": -1}, "delegate_key"),
        ("PUT", "accounts/0x1", {"owner": "0x2"}, "delegates"),
        ("PUT", "accounts/0x1", {"owner": "", "delegates": []}, "owner"),
        ("PUT", "accounts/0x1", {"owner": "0x2", "delegates": ["zz"]}, "64"),
        ("PUT", "accounts/0x1", {"owner": "0x2", "delegates": [], "active": 1}, "active"),
        ("POST", "memories", {"namespace": "a"}, "text"),
        ("POST", "memories/expire", {"namespace": 1}, "namespace"),
    ],
)
async def test_control_call_that_does_not_fit_is_400(
    method: str, path: str, body: Any, named: str
) -> None:
    async with running() as memwal:
        response = await memwal.http.request(method, f"/emulator/{path}", json=body)
        assert response.status_code == 400
        assert named in response.json()["message"]


@pytest.mark.parametrize("raw", [b"{", b"[]", b"\xff"])
async def test_control_call_that_is_no_object_is_400(raw: bytes) -> None:
    async with running() as memwal:
        response = await memwal.http.post("/emulator/clock", content=raw)
        assert response.status_code == 400
        assert list(response.json()) == ["message"]


def test_job_faults_are_of_the_operations_that_accept_texts() -> None:
    plan = FaultPlan(Clock(lambda: NOON))
    stuck = Fault(kind=FaultKind.STICK_JOBS)
    for operation in (Operation.REMEMBER, Operation.BULK, Operation.ANALYZE):
        plan.add(operation, stuck)
        assert plan.take(operation) == stuck
    with pytest.raises(ValueError, match="accepts no texts"):
        plan.stand(stuck)
    assert all(plan.take(operation) is None for operation in SIGNED)


async def test_sui_node_knows_one_package() -> None:
    async with running() as memwal:
        config = (await memwal.http.get("/config")).json()
        assert config["network"] == "localnet"
        assert config["suiRpcUrl"] == f"{memwal.emulator.url}/sui"

        async def call(raw: Any) -> dict[str, Any]:
            content = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
            response = await memwal.http.post("/sui", content=content)
            return dict(response.json())

        ask = {"jsonrpc": "2.0", "id": 3, "method": "sui_getObject", "params": [PACKAGE_ID, {}]}
        assert config["packageId"] == PACKAGE_ID
        answer = await call(ask)
        assert (answer["id"], answer["result"]["data"]["version"]) == (3, "1")
        assert (await call({**ask, "params": ["0x1"]}))["result"]["error"]["code"] == "notExists"
        for wrong, code in (
            (b"{", -32_700),
            ([], -32_600),
            ({**ask, "method": "sui_getCoins"}, -32_601),
            ({**ask, "params": []}, -32_602),
        ):
            assert (await call(wrong))["error"]["code"] == code


async def test_emulator_starts_again_on_the_same_port() -> None:
    emulator = MemWalEmulator()
    with pytest.raises(RuntimeError):
        assert emulator.url
    await emulator.start()
    _, port = emulator.address
    await emulator.stop()
    await emulator.start(port=port)
    assert emulator.url == f"http://127.0.0.1:{port}"
    await emulator.stop()
    await emulator.stop()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.com", ""])
async def test_only_this_machine_is_served(host: str) -> None:
    with pytest.raises(ValueError, match="loopback"):
        await MemWalEmulator().start(host)


async def test_emulator_stops_while_a_request_is_held() -> None:
    async with running() as memwal:
        memwal.emulator.faults.add(Operation.RECALL, Fault(kind=FaultKind.HOLD))
        task = asyncio.create_task(memwal.post("/api/recall", QUERY))
        await until(lambda: memwal.emulator.faults.held == 1)
        await memwal.emulator.stop()
        await asyncio.wait([task])
        assert memwal.emulator.faults.held == 0
