"""The faults of the emulator, and the control API for them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from emulators.tests.walrus.peer import Peer, is_text, reason, running, until
from tuskpoint_emulators.walrus.faults import Fault, FaultKind, FaultPlan, Operation, Stage
from tuskpoint_emulators.walrus.server import WalrusEmulator
from tuskpoint_emulators.walrus.settings import EmulatorSettings

DATA = bytes(range(256)) * 8


async def plan(walrus: Peer, operation: str, **fault: Any) -> None:
    """Queue a fault over the control API."""
    response = await walrus.http.post(
        "/emulator/faults", json={"operation": operation, "fault": fault}
    )
    assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, "MALFORMED_REQUEST"),
        (451, "FORBIDDEN_BLOB"),
        (500, "INTERNAL_ERROR"),
        (504, "INSUFFICIENT_CONFIRMATIONS"),
    ],
)
async def test_store_is_refused_as_a_publisher_refuses(status: int, expected: str) -> None:
    async with running() as walrus:
        await plan(walrus, "put_blob", kind="refuse", status=status)
        assert reason(await walrus.put(DATA), status) == expected
        assert walrus.emulator.ledger.statistics.received_bytes == 0
        assert (await walrus.put(DATA)).status_code == 200


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (403, "BLOB_TOO_LARGE"),
        (404, "BLOB_NOT_FOUND"),
        (451, "FORBIDDEN_BLOB"),
        (500, "INTERNAL_ERROR"),
        (503, "BLOB_UNAVAILABLE"),
    ],
)
async def test_read_is_refused_as_an_aggregator_refuses(status: int, expected: str) -> None:
    async with running() as walrus:
        quilt_id = await walrus.quilt_id({"a": b"1"})
        for operation, path in (
            ("get_blob", f"/v1/blobs/{quilt_id}"),
            ("get_patch", f"/v1/blobs/by-quilt-id/{quilt_id}/a"),
            ("list", f"/v1/quilts/{quilt_id}/patches"),
        ):
            await plan(walrus, operation, kind="refuse", status=status)
            assert reason(await walrus.get(path), status) == expected
            assert (await walrus.get(path)).status_code == 200


async def test_overload_is_plain_text_and_what_no_service_says_is_a_page() -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(DATA)
        for operation in ("put_blob", "get_blob"):
            await plan(walrus, operation, kind="refuse", status=429)
            await plan(walrus, operation, kind="refuse", status=502)
            await plan(walrus, operation, kind="gateway", status=520)
            answers = [
                await (
                    walrus.put(DATA)
                    if operation == "put_blob"
                    else walrus.get(f"/v1/blobs/{blob_id}")
                )
                for _ in range(3)
            ]
            assert is_text(answers[0], 429)
            for answer, status in zip(answers[1:], (502, 520), strict=True):
                assert answer.status_code == status
                assert answer.headers["content-type"] == "text/html"
                assert answer.text.startswith("<html>")


@pytest.mark.parametrize(
    ("stage", "paid", "readable"),
    [("before", False, False), ("registered", True, False), ("certified", True, True)],
)
async def test_store_fails_at_any_stage(stage: str, paid: bool, readable: bool) -> None:
    async with running() as walrus:
        await plan(walrus, "put_quilt", kind="drop", stage=stage)
        with pytest.raises((httpx.NetworkError, httpx.RemoteProtocolError)):
            await walrus.put_quilt({"a": b"1"})
        statistics = walrus.emulator.ledger.statistics
        assert (statistics.cost > 0) == paid
        assert bool(walrus.emulator.ledger.blob_ids()) == readable
        assert walrus.emulator.requests["PUT /v1/quilts dropped"] == 1
        assert (await walrus.put_quilt({"a": b"1"})).status_code == 200


async def test_read_is_dropped_before_its_first_byte() -> None:
    async with running() as walrus:
        path = f"/v1/blobs/{await walrus.blob_id(DATA)}"
        await plan(walrus, "get_blob", kind="drop")
        with pytest.raises((httpx.NetworkError, httpx.RemoteProtocolError)):
            await walrus.get(path)
        assert (await walrus.get(path)).content == DATA


async def test_answer_is_cut_in_the_middle_of_its_body() -> None:
    async with running() as walrus:
        path = f"/v1/blobs/{await walrus.blob_id(DATA)}"
        await plan(walrus, "get_blob", kind="cut")
        async with walrus.http.stream("GET", path) as response:
            assert response.headers["content-length"] == str(len(DATA))
            body = bytearray()
            with pytest.raises(httpx.RemoteProtocolError):  # noqa: PT012 - fails at the cut
                async for chunk in response.aiter_raw():
                    body += chunk
        assert bytes(body) == DATA[: len(DATA) // 2]
        await plan(walrus, "put_blob", kind="cut")
        with pytest.raises(httpx.RemoteProtocolError):
            await walrus.put(b"stored all the same")
        assert walrus.emulator.ledger.statistics.puts == {"newlyCreated": 2}


async def test_short_body_looks_complete() -> None:
    async with running() as walrus:
        path = f"/v1/blobs/{await walrus.blob_id(DATA)}"
        await plan(walrus, "get_blob", kind="short")
        assert (await walrus.get(path)).content == DATA[:-1]
        assert (await walrus.get(path)).content == DATA


async def test_corrupted_body_differs_in_one_byte() -> None:
    async with running() as walrus:
        quilt_id = await walrus.quilt_id({"a": DATA})
        path = f"/v1/blobs/by-quilt-id/{quilt_id}/a"
        await plan(walrus, "get_patch", kind="corrupt")
        bad = (await walrus.get(path)).content
        assert len(bad) == len(DATA)
        assert sum(byte != original for byte, original in zip(bad, DATA, strict=True)) == 1
        assert (await walrus.get(path)).content == DATA


async def test_stored_blob_is_hidden_for_some_reads() -> None:
    async with running() as walrus:
        await plan(walrus, "put_quilt", kind="hide", hidden_reads=2)
        quilt_id = await walrus.quilt_id({"a": b"1"})
        codes = [
            (await walrus.get(path)).status_code
            for path in (
                f"/v1/blobs/{quilt_id}",
                f"/v1/blobs/by-quilt-id/{quilt_id}/a",
                f"/v1/quilts/{quilt_id}/patches",
            )
        ]
        assert codes == [404, 404, 200]


async def test_stored_blob_is_hidden_for_some_time() -> None:
    async with running() as walrus:
        await plan(walrus, "put_blob", kind="hide", hidden_s=3600)
        blob_id = await walrus.blob_id(DATA)
        assert reason(await walrus.get(f"/v1/blobs/{blob_id}"), 404) == "BLOB_NOT_FOUND"


async def test_empty_wallet_is_an_internal_error_before_anything_is_paid() -> None:
    async with running() as walrus:
        await plan(walrus, "put_blob", kind="out_of_wal")
        assert reason(await walrus.put(DATA), 500) == "INTERNAL_ERROR"
        assert walrus.emulator.ledger.statistics.cost == 0


@pytest.mark.parametrize("stage", list(Stage))
async def test_held_request_goes_on_when_it_is_released(stage: Stage) -> None:
    async with running() as walrus:
        await plan(walrus, "put_blob", kind="hold", stage=stage)
        task = asyncio.create_task(walrus.put(DATA))
        await until(lambda: walrus.emulator.faults.held == 1)
        assert bool(walrus.emulator.ledger.blob_ids()) == (stage is Stage.CERTIFIED)
        assert not task.done()
        await walrus.http.post("/emulator/faults/release")
        assert (await task).status_code == 200
        assert walrus.emulator.ledger.statistics.registrations == 1


async def test_client_that_goes_away_does_not_stop_its_store() -> None:
    async with running() as walrus:
        await plan(walrus, "put_blob", kind="hold")
        task = asyncio.create_task(walrus.put(DATA))
        await until(lambda: walrus.emulator.faults.held == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        walrus.emulator.faults.release()
        await until(lambda: bool(walrus.emulator.ledger.blob_ids()))


async def test_latency_comes_first() -> None:
    async with running() as walrus:
        await plan(walrus, "put_blob", kind="delay", latency_s=3600)
        late = asyncio.create_task(walrus.put(DATA))
        await until(lambda: walrus.emulator.publisher.admission.present == 1)
        assert not walrus.emulator.ledger.blob_ids()
        assert (await walrus.put(b"another")).status_code == 200
        walrus.emulator.faults.release()
        assert (await late).status_code == 200


def test_chances_are_the_same_for_the_same_seed() -> None:
    def draw(seed: int, probability: float = 0.5) -> list[bool]:
        faults = FaultPlan(seed)
        faults.add_chance(Operation.GET_BLOB, Fault(kind=FaultKind.DROP), probability)
        return [faults.take(Operation.GET_BLOB) is not None for _ in range(1000)]

    assert draw(1) == draw(1) != draw(2)
    assert 450 < sum(draw(1)) < 550
    assert all(draw(1, 1.0))
    assert not any(draw(1, 0.0))


async def test_chance_is_set_and_cleared_from_outside() -> None:
    async with running() as walrus:
        body = {
            "operation": "get_blob",
            "fault": {"kind": "refuse", "status": 503},
            "probability": 1,
            "seed": 7,
        }
        shown = (await walrus.http.post("/emulator/faults", json=body)).json()
        assert shown["chances"]["get_blob"][0]["probability"] == 1
        path = f"/v1/blobs/{await walrus.blob_id(DATA)}"
        assert [(await walrus.get(path)).status_code for _ in range(3)] == [503] * 3
        shown = (await walrus.http.delete("/emulator/faults")).json()
        assert shown["chances"]["get_blob"] == []
        assert shown["injected"] == {"get_blob.refuse": 3}
        assert (await walrus.get(path)).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {"operation": "put", "fault": {"kind": "drop"}},
        {"operation": "list", "fault": {"kind": "no"}},
        {"operation": "list", "fault": {"kind": "drop", "x": 1}},
        {"operation": "list", "fault": {"kind": "drop", "stage": "certified"}},
        {"operation": "list", "fault": {"kind": "hide"}},
        {"operation": "put_blob", "fault": {"kind": "corrupt"}},
        {"operation": "put_blob", "fault": {"kind": "out_of_wal", "stage": "certified"}},
        {"operation": "put_blob", "fault": {"kind": "refuse", "status": 200}},
        {"operation": "put_blob", "fault": {"kind": "refuse", "status": "500"}},
        {"operation": "put_blob", "fault": {"kind": "drop", "latency_s": -1}},
        {"operation": "put_blob", "fault": {"kind": "drop"}, "times": -1},
        {"operation": "put_blob", "fault": {"kind": "drop"}, "probability": 2},
        {"operation": "put_blob", "fault": {"kind": "drop"}, "probability": "x"},
        {"operation": "put_blob", "fault": {"kind": "drop"}, "times": 1, "probability": 1},
        {"operation": "put_blob", "fault": {"kind": "drop"}, "more": 1},
        {"operation": "put_blob"},
        [],
    ],
)
async def test_fault_that_cannot_be_is_refused(body: Any) -> None:
    async with running() as walrus:
        response = await walrus.http.post("/emulator/faults", json=body)
        assert response.status_code == 400
        assert set(response.json()) == {"message"}
        assert (await walrus.put(DATA)).status_code == 200


async def test_control_refuses_what_it_does_not_know() -> None:
    async with running() as walrus:
        for path, body in (
            ("/emulator/epochs", b'{"advance": -1}'),
            ("/emulator/epochs", b'{"advance": true}'),
            ("/emulator/epochs", b"{"),
            ("/emulator/epochs", b'{"epoch": 1}'),
        ):
            assert (await walrus.http.post(path, content=body)).status_code == 400
        assert (await walrus.http.put("/emulator/blocked/short")).status_code == 400
        assert (await walrus.get("/emulator/epochs")).json() == {"epoch": 1}


async def test_statistics_tell_requests_and_costs_and_a_reset_forgets_all() -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(DATA, permanent=True)
        await walrus.store(DATA, permanent=True)
        await walrus.get(f"/v1/blobs/{blob_id}")
        told = (await walrus.get("/emulator/statistics")).json()
        assert told["requests"] == {"GET /v1/blobs/{blob_id} 200": 1, "PUT /v1/blobs 200": 2}
        assert told["ledger"]["puts"] == {"alreadyCertified": 1, "newlyCreated": 1}
        assert told["ledger"]["billedBytes"] == 66_034_000
        assert told["ledger"]["sentBytes"] == {"blob": len(DATA)}
        walrus.emulator.faults.add(Operation.GET_BLOB, Fault(kind=FaultKind.DROP))
        fresh = (await walrus.http.post("/emulator/reset")).json()
        assert fresh["ledger"]["puts"] == {}
        assert (await walrus.get(f"/v1/blobs/{blob_id}")).status_code == 404


async def test_wallet_and_epoch_are_told() -> None:
    async with running(EmulatorSettings(balance=5)) as walrus:
        assert (await walrus.get("/emulator/wallet")).json() == {"balance": 5}
        await walrus.http.put("/emulator/wallet", json={"balance": None})
        assert (await walrus.get("/emulator/wallet")).json() == {"balance": None}
        assert (await walrus.http.post("/emulator/epochs")).json() == {"epoch": 2}


async def test_directory_keeps_everything_through_a_restart(tmp_path: Path) -> None:
    settings = EmulatorSettings(directory=tmp_path / "kept")
    async with running(settings) as walrus:
        long = (await walrus.store(b"long", epochs=9, permanent=True))["newlyCreated"]
        short = await walrus.blob_id(b"short", epochs=1)
        quilt_id = await walrus.quilt_id({"a": b"1"}, epochs=9)
        blocked = await walrus.blob_id(b"blocked", epochs=9)
        await walrus.http.put(f"/emulator/blocked/{blocked}")
        walrus.emulator.faults.add(
            Operation.PUT_BLOB, Fault(kind=FaultKind.DROP, stage=Stage.REGISTERED)
        )
        with pytest.raises(httpx.TransportError):
            await walrus.put(b"registered", epochs=5)
        await walrus.http.post("/emulator/epochs", json={"advance": 2})
        before = walrus.emulator.ledger.statistics.cost
    with (tmp_path / "kept" / "record.jsonl").open("a") as record:
        record.write('{"did":"sto')
    async with running(settings) as walrus:
        assert walrus.emulator.ledger.clock.epoch == 3
        assert walrus.emulator.ledger.statistics.cost == before
        path = f"/v1/blobs/by-object-id/{long['blobObject']['id']}"
        assert (await walrus.get(path)).content == b"long"
        assert (await walrus.get(f"/v1/blobs/by-quilt-id/{quilt_id}/a")).content == b"1"
        assert (await walrus.get(f"/v1/blobs/{short}")).status_code == 404
        assert (await walrus.get(f"/v1/blobs/{blocked}")).status_code == 451
        again = await walrus.store(b"long", epochs=2, permanent=True)
        assert again["alreadyCertified"]["endEpoch"] == 10
        resumed = await walrus.store(b"registered", epochs=3, reuse_resources=True)
        assert "reuseRegistration" in resumed["newlyCreated"]["resourceOperation"]
        await walrus.http.post("/emulator/reset")
    async with running(settings) as walrus:
        assert (await walrus.get("/emulator/epochs")).json() == {"epoch": 1}
        assert walrus.emulator.ledger.blob_ids() == ()


async def test_emulator_starts_again_on_the_same_port() -> None:
    emulator = WalrusEmulator()
    with pytest.raises(RuntimeError):
        assert emulator.url
    await emulator.start()
    _, port = emulator.address
    await emulator.stop()
    await emulator.start(port=port)
    assert emulator.url == f"http://127.0.0.1:{port}"
    await emulator.stop()
    await emulator.stop()
