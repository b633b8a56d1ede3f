"""The emulated publisher stores blobs: results, prices, refusals."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from emulators.tests.walrus.peer import (
    SMALLEST_ENCODED_BYTES,
    is_text,
    reason,
    running,
    running_beside,
    until,
)
from tuskpoint_emulators.walrus.faults import Fault, FaultKind, Operation, Stage
from tuskpoint_emulators.walrus.ledger.state import AfterStore
from tuskpoint_emulators.walrus.settings import KIB, EmulatorSettings

KEEPING = EmulatorSettings(after_store=AfterStore.KEEP)

OBJECT_ID = re.compile(r"0x[0-9a-f]{64}")


def created(answer: dict[str, Any]) -> dict[str, Any]:
    assert list(answer) == ["newlyCreated"]
    value = answer["newlyCreated"]
    assert isinstance(value, dict)
    return value


def certified(answer: dict[str, Any]) -> dict[str, Any]:
    assert list(answer) == ["alreadyCertified"]
    value = answer["alreadyCertified"]
    assert isinstance(value, dict)
    return value


def operation(answer: dict[str, Any]) -> str:
    [name] = created(answer)["resourceOperation"]
    return str(name)


async def test_first_put_answers_with_these_keys_and_types() -> None:
    async with running() as walrus:
        answer = created(await walrus.store(b"hello", epochs=3))
        assert set(answer) == {"blobObject", "resourceOperation", "cost"}
        blob = answer["blobObject"]
        assert set(blob) == {
            "id",
            "registeredEpoch",
            "blobId",
            "size",
            "encodingType",
            "certifiedEpoch",
            "storage",
            "deletable",
        }
        assert OBJECT_ID.fullmatch(blob["id"])
        assert re.fullmatch(r"[A-Za-z0-9_-]{43}", blob["blobId"])
        assert (blob["size"], blob["encodingType"], blob["deletable"]) == (5, "RS2", True)
        assert (blob["registeredEpoch"], blob["certifiedEpoch"]) == (1, None)
        storage = blob["storage"]
        assert OBJECT_ID.fullmatch(storage.pop("id"))
        assert storage == {
            "startEpoch": 1,
            "endEpoch": 4,
            "storageSize": SMALLEST_ENCODED_BYTES,
        }
        assert answer["resourceOperation"] == {
            "registerFromScratch": {"encodedLength": SMALLEST_ENCODED_BYTES, "epochsAhead": 3}
        }
        prices = walrus.emulator.ledger.prices
        assert answer["cost"] == 63 * (3 * prices.storage + prices.write)


async def test_second_default_put_pays_again_for_another_object_of_the_same_blob() -> None:
    async with running() as walrus:
        first = created(await walrus.store(b"hello"))
        second = created(await walrus.store(b"hello"))
        assert second["blobObject"]["id"] != first["blobObject"]["id"]
        assert second["blobObject"]["blobId"] == first["blobObject"]["blobId"]
        assert second["cost"] == first["cost"] > 0


async def test_second_permanent_put_is_already_certified_with_an_event_and_free() -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(b"hello", permanent=True, epochs=2)
        spent = walrus.emulator.ledger.statistics.cost
        answer = certified(await walrus.store(b"hello", permanent=True, epochs=2))
        assert set(answer) == {"blobId", "endEpoch", "event"}
        assert (answer["blobId"], answer["endEpoch"]) == (blob_id, 3)
        assert set(answer["event"]) == {"txDigest", "eventSeq"}
        assert re.fullmatch(r"[1-9A-HJ-NP-Za-km-z]{43,44}", answer["event"]["txDigest"])
        assert isinstance(answer["event"]["eventSeq"], str)
        assert walrus.emulator.ledger.statistics.cost == spent


async def test_permanent_put_after_a_deletable_one_is_newly_created() -> None:
    async with running() as walrus:
        await walrus.store(b"hello", epochs=5)
        answer = created(await walrus.store(b"hello", permanent=True))
        assert answer["blobObject"]["deletable"] is False
        assert answer["cost"] > 0


async def test_permanent_put_for_longer_is_newly_created() -> None:
    async with running() as walrus:
        await walrus.store(b"hello", permanent=True, epochs=2)
        answer = await walrus.store(b"hello", permanent=True, epochs=3)
        assert operation(answer) == "registerFromScratch"
        assert created(answer)["blobObject"]["storage"]["endEpoch"] == 4


async def test_permanent_put_for_shorter_tells_the_stored_end_epoch() -> None:
    async with running() as walrus:
        await walrus.store(b"hello", permanent=True, epochs=9)
        answer = certified(await walrus.store(b"hello", permanent=True, epochs=2))
        assert answer["endEpoch"] == 10


async def test_forced_put_certifies_anew() -> None:
    async with running() as walrus:
        await walrus.store(b"hello", permanent=True)
        answer = created(await walrus.store(b"hello", permanent=True, force=True))
        assert answer["cost"] > 0


async def test_reusing_a_certified_object_that_lasts_is_already_certified_by_object() -> None:
    async with running(KEEPING) as walrus:
        first = created(await walrus.store(b"hello", epochs=3))
        answer = certified(await walrus.store(b"hello", epochs=2, reuse_resources=True))
        assert set(answer) == {"blobId", "endEpoch", "object"}
        assert answer["object"] == first["blobObject"]["id"]
        assert answer["endEpoch"] == 4


@pytest.mark.parametrize("permanent", [False, True])
async def test_reusing_a_certified_object_that_is_too_short_extends_it(permanent: bool) -> None:
    async with running(KEEPING) as walrus:
        first = created(await walrus.store(b"hello", epochs=2, permanent=permanent))
        answer = await walrus.store(b"hello", epochs=5, reuse_resources=True, permanent=permanent)
        assert created(answer)["resourceOperation"] == {
            "reuseAndExtend": {"encodedLength": SMALLEST_ENCODED_BYTES, "epochsExtended": 3}
        }
        blob = created(answer)["blobObject"]
        assert blob["id"] == first["blobObject"]["id"]
        assert blob["storage"]["endEpoch"] == 6
        assert created(answer)["cost"] == 63 * 3 * walrus.emulator.ledger.prices.storage


@pytest.mark.parametrize(
    ("epochs", "expected"), [(2, "reuseRegistration"), (4, "reuseAndExtendNonCertified")]
)
@pytest.mark.parametrize("permanent", [False, True])
async def test_reusing_a_registration_that_was_never_certified(
    epochs: int, expected: str, permanent: bool
) -> None:
    async with running() as walrus:
        cut_short = Fault(kind=FaultKind.REFUSE, status=504, stage=Stage.REGISTERED)
        walrus.emulator.faults.add(Operation.PUT_BLOB, cut_short)
        refused = await walrus.put(b"hello", epochs=2, permanent=permanent)
        assert reason(refused, 504) == "INSUFFICIENT_CONFIRMATIONS"
        answer = await walrus.store(
            b"hello", epochs=epochs, reuse_resources=True, permanent=permanent
        )
        assert operation(answer) == expected
        assert created(answer)["blobObject"]["storage"]["endEpoch"] == 1 + epochs


async def test_nothing_is_reused_that_the_publisher_has_given_away() -> None:
    async with running() as walrus:
        await walrus.store(b"hello", epochs=3)
        answer = await walrus.store(b"hello", epochs=2, reuse_resources=True)
        assert operation(answer) == "registerFromScratch"


async def test_forced_reuse_may_take_a_registration_but_no_certified_object() -> None:
    async with running(KEEPING) as walrus:
        await walrus.store(b"hello", epochs=3)
        answer = await walrus.store(b"hello", epochs=3, reuse_resources=True, force=True)
        assert operation(answer) == "registerFromScratch"
        cut_short = Fault(kind=FaultKind.REFUSE, status=504, stage=Stage.REGISTERED)
        walrus.emulator.faults.add(Operation.PUT_BLOB, cut_short)
        await walrus.put(b"other", epochs=3)
        answer = await walrus.store(b"other", epochs=3, reuse_resources=True, force=True)
        assert operation(answer) == "reuseRegistration"


async def test_deletable_and_permanent_at_once_is_refused() -> None:
    async with running() as walrus:
        response = await walrus.put(b"hello", deletable=True, permanent=True)
        assert reason(response, 400) == "INVALID_BLOB_PERSISTENCE"
        assert response.json()["error"]["status"] == "INVALID_ARGUMENT"
        assert response.json()["error"]["details"][0]["domain"] == "daemon.walrus.space"


async def test_deletable_alone_changes_nothing() -> None:
    async with running() as walrus:
        answer = created(await walrus.store(b"hello", deletable=True))
        assert answer["blobObject"]["deletable"] is True


@pytest.mark.parametrize(
    "query",
    [
        "cb=1",
        "epochs=1&epochs=2",
        "epochs=abc",
        "epochs=-1",
        "epochs=4294967296",
        "epochs=",
        "permanent=1",
        "permanent=True",
        "encoding_type=RS1",
        "send_object_to=0x12",
    ],
)
async def test_query_that_does_not_fit_is_refused_in_plain_text(query: str) -> None:
    async with running() as walrus:
        assert is_text(await walrus.http.put(f"/v1/blobs?{query}", content=b"x"), 400)
        assert walrus.emulator.ledger.statistics.received_bytes == 0


@pytest.mark.parametrize("epochs", [0, 54])
async def test_epochs_that_cannot_be_bought_are_an_internal_error(epochs: int) -> None:
    async with running() as walrus:
        response = await walrus.put(b"hello", epochs=epochs)
        assert reason(response, 500) == "INTERNAL_ERROR"
        assert response.json()["error"]["details"][0]["domain"] == "global"
        debug = response.json()["error"]["details"][1]
        assert debug["@type"] == "DebugInfo"
        assert debug["stackEntries"] == []
        assert walrus.emulator.ledger.statistics.cost == 0


async def test_as_many_epochs_as_can_be_bought_are() -> None:
    async with running() as walrus:
        answer = created(await walrus.store(b"hello", epochs=53))
        assert answer["blobObject"]["storage"]["endEpoch"] == 54


async def test_sharing_and_sending_at_once_is_refused() -> None:
    async with running() as walrus:
        address = "0x" + "12" * 32
        response = await walrus.put(b"hello", share=True, permanent=True, send_object_to=address)
        assert is_text(response, 400)


async def test_sent_object_belongs_to_the_address() -> None:
    async with running() as walrus:
        address = "0x" + "12" * 32
        answer = created(await walrus.store(b"hello", send_object_to=address))
        blob_object = walrus.emulator.ledger.object_by_id(answer["blobObject"]["id"])
        assert blob_object.owner == address


async def test_shared_object_is_named_in_the_answer_and_has_to_be_permanent() -> None:
    async with running() as walrus:
        answer = created(await walrus.store(b"hello", share=True, permanent=True))
        assert OBJECT_ID.fullmatch(answer["sharedBlobObject"])
        assert reason(await walrus.put(b"other", share=True), 500) == "INTERNAL_ERROR"


async def test_empty_blob_is_stored_and_read() -> None:
    async with running() as walrus:
        answer = created(await walrus.store(b""))
        assert answer["blobObject"]["size"] == 0
        assert answer["resourceOperation"]["registerFromScratch"]["encodedLength"] == (
            SMALLEST_ENCODED_BYTES
        )
        response = await walrus.get(f"/v1/blobs/{answer['blobObject']['blobId']}")
        assert (response.status_code, response.content) == (200, b"")


async def test_body_limit_is_met_to_the_byte() -> None:
    async with running() as walrus:
        largest = bytes(10_240 * KIB)
        assert created(await walrus.store(largest))["blobObject"]["size"] == 10_485_760
        assert is_text(await walrus.put(largest + b"\0"), 413)


async def test_body_in_chunks_is_stored_and_limited() -> None:
    async def chunks(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b"abc"

    async with running(EmulatorSettings(max_body_bytes=30)) as walrus:
        response = await walrus.http.put("/v1/blobs", content=chunks(10))
        assert created(response.json())["blobObject"]["size"] == 30
        response = await walrus.http.put("/v1/blobs", content=chunks(11))
        assert is_text(response, 413)


async def test_one_byte_more_needs_larger_symbols() -> None:
    async with running() as walrus:
        small = created(await walrus.store(bytes(445_556)))
        large = created(await walrus.store(bytes(445_557)))
        assert small["resourceOperation"]["registerFromScratch"]["encodedLength"] == 66_034_000
        assert large["resourceOperation"]["registerFromScratch"]["encodedLength"] == 68_036_000
        assert large["blobObject"]["storage"]["storageSize"] == 68_036_000


@pytest.mark.parametrize(
    ("stage", "readable"),
    [(Stage.BEFORE, False), (Stage.REGISTERED, False), (Stage.CERTIFIED, True)],
)
async def test_success_may_hold_an_error(stage: Stage, readable: bool) -> None:
    async with running() as walrus:
        fault = Fault(
            kind=FaultKind.ERROR_RESULT, stage=stage, phase="certify", message="no result"
        )
        walrus.emulator.faults.add(Operation.PUT_BLOB, fault)
        answer = await walrus.store(b"hello")
        assert set(answer) == {"error"}
        blob_id = answer["error"].pop("blobId")
        assert answer["error"] == {"failurePhase": "certify", "errorMsg": "no result"}
        assert (await walrus.get(f"/v1/blobs/{blob_id}")).status_code == (200 if readable else 404)
        assert (walrus.emulator.ledger.statistics.cost > 0) == (stage is not Stage.BEFORE)


async def test_blocked_blob_is_an_error_within_success() -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(b"hello")
        assert (await walrus.http.put(f"/emulator/blocked/{blob_id}")).status_code == 200
        answer = await walrus.store(b"hello")
        assert answer["error"]["blobId"] == blob_id
        assert answer["error"]["failurePhase"] == "check_blob_is_blocked"


async def test_blob_too_large_to_encode_is_an_error_without_a_blob_id() -> None:
    async with running(EmulatorSettings(ids="n=10")) as walrus:
        answer = await walrus.store(bytes(1_834_953))
        assert answer["error"]["blobId"] is None
        assert answer["error"]["failurePhase"] == "encode"


async def test_blob_marked_invalid_is_an_internal_error() -> None:
    async with running() as walrus:
        stored = await walrus.blob_id(b"hello")
        await walrus.http.post("/emulator/reset")
        ledger = walrus.emulator.ledger
        ledger.mark_invalid(walrus.emulator.world.ids.of(b"hello"))
        assert reason(await walrus.put(b"hello"), 500) == "INTERNAL_ERROR"
        assert (await walrus.get(f"/v1/blobs/{stored}")).status_code == 404


async def test_store_that_was_not_confirmed_in_time_was_paid_and_succeeds_at_the_second_try() -> (
    None
):
    async with running() as walrus:
        not_confirmed = Fault(kind=FaultKind.REFUSE, status=504, stage=Stage.REGISTERED)
        walrus.emulator.faults.add(Operation.PUT_BLOB, not_confirmed)
        response = await walrus.put(b"hello", permanent=True)
        assert reason(response, 504) == "INSUFFICIENT_CONFIRMATIONS"
        assert response.json()["error"]["status"] == "DEADLINE_EXCEEDED"
        answer = created(await walrus.store(b"hello", permanent=True))
        assert walrus.emulator.ledger.statistics.registrations == 2
        assert walrus.emulator.ledger.statistics.cost == 2 * answer["cost"]


async def test_store_that_landed_before_its_answer_was_lost_is_free_at_the_second_try() -> None:
    async with running() as walrus:
        lost = Fault(kind=FaultKind.REFUSE, status=504, stage=Stage.CERTIFIED)
        walrus.emulator.faults.add(Operation.PUT_BLOB, lost)
        assert (await walrus.put(b"hello", permanent=True)).status_code == 504
        certified(await walrus.store(b"hello", permanent=True))
        assert walrus.emulator.ledger.statistics.registrations == 1


async def test_store_beyond_all_places_is_refused_in_plain_text() -> None:
    settings = EmulatorSettings(publisher_running=2, publisher_waiting=1)
    async with running(settings) as walrus:
        faults = walrus.emulator.faults
        faults.add(Operation.PUT_BLOB, Fault(kind=FaultKind.HOLD), times=2)
        admitted = [asyncio.create_task(walrus.put(bytes([n]))) for n in range(3)]
        await until(lambda: faults.held == 2 and walrus.emulator.publisher.admission.present == 3)
        response = await walrus.put(b"one too many")
        assert is_text(response, 429)
        assert "retry-after" not in response.headers
        faults.release()
        assert [answer.status_code for answer in await asyncio.gather(*admitted)] == [200] * 3


def test_places_of_a_publisher_are_eight_and_eight() -> None:
    settings = EmulatorSettings()
    assert (settings.publisher_running, settings.publisher_waiting) == (8, 8)


async def test_certified_epoch_is_null_of_a_new_object_and_a_number_of_an_extended_one() -> None:
    async with running(KEEPING) as walrus:
        new = created(await walrus.store(b"hello", epochs=2))
        assert new["blobObject"]["certifiedEpoch"] is None
        extended = created(await walrus.store(b"hello", epochs=4, reuse_resources=True))
        assert extended["blobObject"]["certifiedEpoch"] == 1


async def test_wallet_without_enough_wal_is_an_internal_error() -> None:
    async with running() as walrus:
        answer = created(await walrus.store(b"hello"))
        await walrus.http.put("/emulator/wallet", json={"balance": answer["cost"] - 1})
        assert reason(await walrus.put(b"other"), 500) == "INTERNAL_ERROR"
        await walrus.http.put("/emulator/wallet", json={"balance": answer["cost"]})
        created(await walrus.store(b"other"))


async def test_compressed_body_is_stored_as_it_is() -> None:
    async with running() as walrus:
        packed = gzip.compress(b"hello")
        response = await walrus.http.put(
            "/v1/blobs", content=packed, headers={"Content-Encoding": "gzip"}
        )
        blob_id = created(response.json())["blobObject"]["blobId"]
        assert (await walrus.get(f"/v1/blobs/{blob_id}")).content == packed


async def test_store_routes_know_their_methods() -> None:
    async with running() as walrus:
        assert (await walrus.get("/status")).text == "OK"
        assert (await walrus.get("/v1/api")).headers["content-type"].startswith("text/html")
        for method in ("GET", "POST", "DELETE"):
            response = await walrus.http.request(method, "/v1/blobs")
            assert (response.status_code, response.content) == (405, b"")
            assert response.headers["allow"] == "PUT"


async def test_peers_of_one_world_share_what_is_stored() -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(b"hello")
        async with running_beside(walrus) as other:
            assert (await other.get(f"/v1/blobs/{blob_id}")).content == b"hello"


async def test_a_caller_that_leaves_within_its_body_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as walrus:
        host, port = walrus.emulator.url.removeprefix("http://").split(":")
        _, caller = await asyncio.open_connection(host, int(port))
        caller.write(b"PUT /v1/blobs HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\nfirst")
        await until(lambda: walrus.emulator.publisher.admission.present > 0)
        caller.transport.abort()
        await until(lambda: walrus.emulator.requests["PUT /v1/blobs dropped"] > 0)
    assert caplog.records == []
