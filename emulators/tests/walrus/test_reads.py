"""The emulated aggregator reads blobs, ranges of blobs, and patches of quilts."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import httpx
import pytest

from emulators.tests.walrus.peer import Peer, is_text, reason, running
from tuskpoint_emulators.walrus.faults import Fault, FaultKind, Operation
from tuskpoint_emulators.walrus.settings import EmulatorSettings

UNKNOWN = "A" * 42 + "E"
CACHE_CONTROL = "public, max-age=86400, stale-while-revalidate=3600"
DATA = bytes(range(256))


async def test_blob_reads_back_with_these_headers() -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(DATA)
        response = await walrus.get(f"/v1/blobs/{blob_id}")
        assert (response.status_code, response.content) == (200, DATA)
        headers = dict(response.headers)
        assert headers.pop("date")
        assert headers.pop("server")
        assert headers == {
            "etag": blob_id,
            "cache-control": CACHE_CONTROL,
            "x-content-type-options": "nosniff",
            "access-control-allow-origin": "*",
            "content-length": "256",
        }


async def test_content_type_is_an_echo_or_absent() -> None:
    async with running() as walrus:
        path = f"/v1/blobs/{await walrus.blob_id(DATA)}"
        assert "content-type" not in (await walrus.get(path, accept="*/*")).headers
        assert "content-type" not in (await walrus.get(path, accept="image/*")).headers
        assert (await walrus.get(path, accept="image/png")).headers["content-type"] == "image/png"
        typed = {"accept": "*/*", "content-type": "text/x"}
        assert (await walrus.get(path, **typed)).headers["content-type"] == "text/x"
        assert "content-type" not in (await walrus.http.head(path, headers=typed)).headers


async def test_known_etag_changes_nothing() -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(DATA)
        response = await walrus.get(f"/v1/blobs/{blob_id}", **{"if-none-match": blob_id})
        assert (response.status_code, response.content) == (200, DATA)
        assert "last-modified" not in response.headers
        assert "accept-ranges" not in response.headers


async def test_head_gives_the_headers_of_get() -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(DATA)
        quilt_id = await walrus.quilt_id({"a": b"123"})
        for path in (
            f"/v1/blobs/{blob_id}",
            f"/v1/blobs/{blob_id}/byte-range?start=1&length=2",
            f"/v1/blobs/by-quilt-id/{quilt_id}/a",
            f"/v1/quilts/{quilt_id}/patches",
        ):
            got, head = await walrus.get(path), await walrus.http.head(path)
            assert (head.status_code, head.content) == (200, b"")
            assert without_date(head) == without_date(got)
        missing = await walrus.http.head(f"/v1/blobs/{UNKNOWN}")
        assert (missing.status_code, missing.content) == (404, b"")


@pytest.mark.parametrize(("first", "last"), [(0, 0), (100, 109), (255, 255), (0, 255)])
async def test_range_with_both_its_ends_is_served(first: int, last: int) -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(DATA)
        response = await walrus.get(f"/v1/blobs/{blob_id}", range=f"bytes={first}-{last}")
        assert (response.status_code, response.content) == (206, DATA[first : last + 1])
        assert response.headers["content-range"] == f"bytes {first}-{last}/256"
        assert response.headers["content-length"] == str(last - first + 1)
        assert response.headers["etag"] == blob_id


@pytest.mark.parametrize(
    "wanted",
    [
        "bytes=0-256",
        "bytes=256-256",
        "bytes=10-",
        "bytes=-10",
        "bytes=0-1,4-5",
        "bytes=a-b",
        "bytes=5-4",
        "items=0-1",
        "",
    ],
)
async def test_any_other_range_is_not_satisfiable(wanted: str) -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(DATA)
        response = await walrus.get(f"/v1/blobs/{blob_id}", range=wanted)
        assert reason(response, 416) == "INVALID_BYTE_RANGE"
        assert response.json()["error"]["status"] == "RANGE_NOT_SATISFIABLE"


async def test_empty_blob_has_no_range() -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(b"")
        response = await walrus.get(f"/v1/blobs/{blob_id}", range="bytes=0-0")
        assert reason(response, 416) == "INVALID_BYTE_RANGE"


async def test_byte_range_is_a_whole_answer_with_an_etag_of_its_own() -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(DATA)
        response = await walrus.get(f"/v1/blobs/{blob_id}/byte-range?start=250&length=6")
        assert (response.status_code, response.content) == (200, DATA[250:])
        assert response.headers["etag"] == f"{blob_id}-250-6"
        assert response.headers["cache-control"] == CACHE_CONTROL
        assert "content-range" not in response.headers


@pytest.mark.parametrize(
    "query",
    [
        "start=0&length=0",
        f"start={2**64 - 1}&length=1",
        "start=250&length=7",
        "start=256&length=1",
    ],
)
async def test_byte_range_outside_the_blob_is_an_invalid_argument(query: str) -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(DATA)
        response = await walrus.get(f"/v1/blobs/{blob_id}/byte-range?{query}")
        assert reason(response, 400) == "INVALID_BYTE_RANGE"
        assert response.json()["error"]["status"] == "INVALID_ARGUMENT"


async def test_byte_range_that_can_be_of_no_blob_is_refused_before_one_is_looked_for() -> None:
    async with running() as walrus:
        for query in ("start=0&length=0", f"start={2**64 - 1}&length=1"):
            response = await walrus.get(f"/v1/blobs/{UNKNOWN}/byte-range?{query}")
            assert reason(response, 400) == "INVALID_BYTE_RANGE"


@pytest.mark.parametrize(
    "query", ["", "start=0", "length=1", "start=0&length=-1", "start=0&length=1&x=1"]
)
async def test_byte_range_without_its_numbers_is_refused_in_plain_text(query: str) -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(DATA)
        assert is_text(await walrus.get(f"/v1/blobs/{blob_id}/byte-range?{query}"), 400)


async def test_strict_and_skipped_check_exclude_each_other() -> None:
    async with running() as walrus:
        path = f"/v1/blobs/{await walrus.blob_id(DATA)}"
        flags = ("strict_consistency_check", "skip_consistency_check")
        for flag in flags:
            assert (await walrus.get(f"{path}?{flag}=true")).content == DATA
        response = await walrus.get(f"{path}?{flags[0]}=true&{flags[1]}=true")
        assert reason(response, 400) == "INVALID_CONSISTENCY_CHECK"


async def test_unknown_query_is_refused_for_blobs_and_ignored_for_quilts() -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(DATA)
        blob_object = walrus.emulator.ledger.objects(walrus.emulator.ledger.blob_ids()[0])[0]
        for path in (f"/v1/blobs/{blob_id}", f"/v1/blobs/by-object-id/{blob_object.id}"):
            assert is_text(await walrus.get(f"{path}?cb=1"), 400)
        answer = await walrus.store_quilt({"a": b"1"})
        quilt_id = answer["blobStoreResult"]["newlyCreated"]["blobObject"]["blobId"]
        [patch] = answer["storedQuiltBlobs"]
        for path in (
            f"/v1/blobs/by-quilt-id/{quilt_id}/a",
            f"/v1/blobs/by-quilt-patch-id/{patch['quiltPatchId']}",
            f"/v1/quilts/{quilt_id}/patches",
        ):
            assert (await walrus.get(f"{path}?cb=1")).status_code == 200


async def test_unknown_blob_is_not_found() -> None:
    async with running() as walrus:
        for path in (
            f"/v1/blobs/{UNKNOWN}",
            f"/v1/blobs/{UNKNOWN}/byte-range?start=0&length=1",
            f"/v1/blobs/by-quilt-id/{UNKNOWN}/a",
            f"/v1/quilts/{UNKNOWN}/patches",
        ):
            response = await walrus.get(path)
            assert reason(response, 404) == "BLOB_NOT_FOUND"
            assert response.json()["error"]["status"] == "NOT_FOUND"


@pytest.mark.parametrize(
    "blob_id", ["short", UNKNOWN + "=", "1" * 43 + "1", "4" * 77, "é" * 43, "%ff"]
)
async def test_blob_id_that_is_none_is_refused_in_plain_text(blob_id: str) -> None:
    async with running() as walrus:
        assert is_text(await walrus.get(f"/v1/blobs/{blob_id}"), 400)
        assert is_text(await walrus.get(f"/v1/quilts/{blob_id}/patches"), 400)


async def test_unknown_identifier_is_not_found_in_its_quilt() -> None:
    async with running() as walrus:
        quilt_id = await walrus.quilt_id({"a": b"1"})
        response = await walrus.get(f"/v1/blobs/by-quilt-id/{quilt_id}/b")
        assert reason(response, 404) == "QUILT_PATCH_NOT_FOUND"


async def test_patch_id_that_leads_nowhere_is_an_internal_error() -> None:
    async with running() as walrus:
        answer = await walrus.store_quilt({"a": b"1"})
        quilt_id = answer["blobStoreResult"]["newlyCreated"]["blobObject"]["blobId"]
        blob_id = await walrus.blob_id(DATA)
        for raw in (
            patch_id(quilt_id, 1, 500, 501),
            patch_id(quilt_id, 2, 1, 2),
            patch_id(blob_id, 1, 1, 2),
        ):
            response = await walrus.get(f"/v1/blobs/by-quilt-patch-id/{raw}")
            assert reason(response, 500) == "INTERNAL_ERROR"
        unknown = await walrus.get(f"/v1/blobs/by-quilt-patch-id/{patch_id(UNKNOWN, 1, 1, 2)}")
        assert reason(unknown, 404) == "BLOB_NOT_FOUND"


@pytest.mark.parametrize("raw", ["A" * 49, "A" * 51, "A" * 49 + "=", UNKNOWN])
async def test_patch_id_that_is_none_is_refused_in_plain_text(raw: str) -> None:
    async with running() as walrus:
        assert is_text(await walrus.get(f"/v1/blobs/by-quilt-patch-id/{raw}"), 400)


async def test_blob_that_is_no_quilt_has_no_patches() -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(DATA)
        for path in (f"/v1/quilts/{blob_id}/patches", f"/v1/blobs/by-quilt-id/{blob_id}/a"):
            assert reason(await walrus.get(path), 500) == "INTERNAL_ERROR"


async def test_list_names_each_patch_with_its_id_and_tags() -> None:
    async with running() as walrus:
        answer = await walrus.store_quilt(
            {"b": b"2", "a": b"1"}, [{"identifier": "a", "tags": {"x": "y"}}]
        )
        quilt_id = answer["blobStoreResult"]["newlyCreated"]["blobObject"]["blobId"]
        response = await walrus.get(f"/v1/quilts/{quilt_id}/patches")
        assert response.headers["content-type"] == "application/json"
        ids = [patch["quiltPatchId"] for patch in answer["storedQuiltBlobs"]]
        assert response.json() == [
            {"identifier": "a", "patch_id": ids[0], "tags": {"x": "y"}},
            {"identifier": "b", "patch_id": ids[1], "tags": {}},
        ]


async def test_quilt_reads_raw_as_the_blob_it_is() -> None:
    async with running() as walrus:
        answer = await walrus.store_quilt({"a": b"content of a"})
        blob = answer["blobStoreResult"]["newlyCreated"]["blobObject"]
        response = await walrus.get(f"/v1/blobs/{blob['blobId']}")
        assert response.status_code == 200
        assert len(response.content) == blob["size"] == 334 * 667 * 2
        assert response.content[0] == 1


async def test_patch_reads_by_id_and_by_identifier_with_the_etag_of_its_quilt() -> None:
    async with running() as walrus:
        answer = await walrus.store_quilt({"a": b"1", "b": DATA})
        quilt_id = answer["blobStoreResult"]["newlyCreated"]["blobObject"]["blobId"]
        for patch, data in zip(answer["storedQuiltBlobs"], (b"1", DATA), strict=True):
            for path in (
                f"/v1/blobs/by-quilt-patch-id/{patch['quiltPatchId']}",
                f"/v1/blobs/by-quilt-id/{quilt_id}/{patch['identifier']}",
            ):
                response = await walrus.get(path)
                assert (response.status_code, response.content) == (200, data)
                assert response.headers["etag"] == quilt_id
                assert response.headers["cache-control"] == CACHE_CONTROL
                assert response.headers["x-quilt-patch-identifier"] == patch["identifier"]


async def test_blob_reads_by_the_id_of_its_object() -> None:
    async with running() as walrus:
        created = (await walrus.store(DATA, share=True, permanent=True))["newlyCreated"]
        for object_id in (created["blobObject"]["id"], created["sharedBlobObject"]):
            response = await walrus.get(f"/v1/blobs/by-object-id/{object_id}")
            assert (response.status_code, response.content) == (200, DATA)
            assert response.headers["etag"] == created["blobObject"]["blobId"]
            part = await walrus.get(f"/v1/blobs/by-object-id/{object_id}", range="bytes=1-2")
            assert (part.status_code, part.content) == (206, b"\x01\x02")
        unknown = await walrus.get("/v1/blobs/by-object-id/0x12")
        assert reason(unknown, 404) == "BLOB_NOT_FOUND"
        assert is_text(await walrus.get("/v1/blobs/by-object-id/12"), 400)


async def test_blob_above_the_limit_of_the_aggregator_is_forbidden() -> None:
    async with running(EmulatorSettings(max_blob_bytes=100)) as walrus:
        small = await walrus.blob_id(bytes(100))
        large = await walrus.blob_id(bytes(101))
        assert (await walrus.get(f"/v1/blobs/{small}")).status_code == 200
        for path in (f"/v1/blobs/{large}", f"/v1/blobs/{large}/byte-range?start=0&length=1"):
            response = await walrus.get(path)
            assert reason(response, 403) == "BLOB_TOO_LARGE"
            assert response.json()["error"]["status"] == "SIZE_EXCEEDED"


async def test_blocked_blob_is_unavailable_for_legal_reasons() -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(DATA)
        await walrus.http.put(f"/emulator/blocked/{blob_id}")
        response = await walrus.get(f"/v1/blobs/{blob_id}")
        assert reason(response, 451) == "FORBIDDEN_BLOB"
        await walrus.http.delete(f"/emulator/blocked/{blob_id}")
        assert (await walrus.get(f"/v1/blobs/{blob_id}")).content == DATA


async def test_blob_may_be_unavailable_and_then_be_there() -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(DATA)
        walrus.emulator.faults.add(
            Operation.GET_BLOB, Fault(kind=FaultKind.REFUSE, status=503), times=1
        )
        response = await walrus.get(f"/v1/blobs/{blob_id}")
        assert reason(response, 503) == "BLOB_UNAVAILABLE"
        assert (await walrus.get(f"/v1/blobs/{blob_id}")).content == DATA


async def test_blob_is_gone_at_the_start_of_its_end_epoch() -> None:
    async with running() as walrus:
        path = f"/v1/blobs/{await walrus.blob_id(DATA, epochs=2)}"
        assert await advance(walrus) == 2
        assert (await walrus.get(path)).status_code == 200
        assert await advance(walrus) == 3
        assert reason(await walrus.get(path), 404) == "BLOB_NOT_FOUND"


async def test_blob_stays_while_any_object_certifies_it() -> None:
    async with running() as walrus:
        path = f"/v1/blobs/{await walrus.blob_id(DATA, epochs=1)}"
        await walrus.store(DATA, epochs=2)
        await advance(walrus)
        assert (await walrus.get(path)).status_code == 200
        await advance(walrus)
        assert (await walrus.get(path)).status_code == 404


TAGS = {
    "content-type": "text/x",
    "link": "<a>",
    "x-own": "own",
    "Content-Language": "de",
    "etag": "no",
}


async def test_only_tags_on_the_list_become_headers() -> None:
    async with running() as walrus:
        quilt_id = await walrus.quilt_id({"a": b"1"}, [{"identifier": "a", "tags": TAGS}])
        response = await walrus.get(f"/v1/blobs/by-quilt-id/{quilt_id}/a")
        assert response.headers["content-type"] == "text/x"
        assert response.headers["link"] == "<a>"
        assert response.headers["content-language"] == "de"
        assert response.headers["etag"] == quilt_id
        assert "x-own" not in response.headers


async def test_all_tags_become_headers_where_the_aggregator_allows_it() -> None:
    async with running(EmulatorSettings(all_patch_tags=True)) as walrus:
        tags = [{"identifier": "a", "tags": {**TAGS, "no header": "x", "x-bad": "\u2603"}}]
        quilt_id = await walrus.quilt_id({"a": b"1"}, tags)
        response = await walrus.get(f"/v1/blobs/by-quilt-id/{quilt_id}/a")
        assert response.headers["x-own"] == "own"
        assert response.headers["etag"] == quilt_id
        assert "x-bad" not in response.headers


async def test_attributes_of_an_object_become_headers_if_on_the_list() -> None:
    async with running() as walrus:
        answer = (await walrus.store(DATA))["newlyCreated"]
        blob_object = walrus.emulator.ledger.object_by_id(answer["blobObject"]["id"])
        blob_object.attributes |= {"content-type": "text/x", "x-own": "own"}
        response = await walrus.get(f"/v1/blobs/by-object-id/{blob_object.id}")
        assert response.headers["content-type"] == "text/x"
        assert "x-own" not in response.headers


async def test_blobs_are_joined_in_the_order_asked_for() -> None:
    async with running() as walrus:
        first = await walrus.blob_id(b"1")
        second = (await walrus.store(b"2"))["newlyCreated"]["blobObject"]["id"]
        joined = f"{second},{first}"
        etag = base64.urlsafe_b64encode(hashlib.sha256(joined.encode()).digest())
        for response in (
            await walrus.get(f"/v1alpha/blobs/concat?ids={joined}"),
            await walrus.http.post("/v1alpha/blobs/concat", json={"ids": [second, first]}),
        ):
            assert (response.status_code, response.content) == (200, b"21")
            assert response.headers["etag"] == etag.rstrip(b"=").decode()


async def test_join_of_a_missing_blob_breaks_in_the_middle() -> None:
    async with running() as walrus:
        first = await walrus.blob_id(b"1")
        with pytest.raises(httpx.RemoteProtocolError):
            await walrus.get(f"/v1alpha/blobs/concat?ids={first},{UNKNOWN}")


async def test_join_refuses_what_is_no_list_of_ids() -> None:
    async with running() as walrus:
        path = "/v1alpha/blobs/concat"
        assert is_text(await walrus.get(path), 400)
        assert is_text(await walrus.get(f"{path}?ids=,"), 400)
        assert is_text(await walrus.get(f"{path}?ids={UNKNOWN}&cb=1"), 400)
        assert reason(await walrus.get(f"{path}?ids=short"), 400) == "INVALID_ID_FORMAT"
        unknown = await walrus.get(f"{path}?ids=0x12")
        assert reason(unknown, 404) == "OBJECT_ID_RESOLUTION_FAILED"
        assert is_text(await walrus.http.post(path, content=b"{}"), 415)
        json = {"Content-Type": "application/json"}
        assert is_text(await walrus.http.post(path, content=b"{", headers=json), 400)
        bodies: list[Any] = [{}, {"ids": "x"}, {"ids": [1]}, {"ids": [], "x": 1}, []]
        for body in bodies:
            assert is_text(await walrus.http.post(path, json=body), 422)


async def test_stream_says_that_it_is_one() -> None:
    async with running() as walrus:
        blob_id = await walrus.blob_id(DATA)
        response = await walrus.get(f"/v1alpha/blobs/{blob_id}/stream")
        assert response.content == DATA
        assert response.headers["x-walrus-streaming"] == "true"
        assert "content-length" not in response.headers


async def test_other_routes_are_an_empty_404_and_other_methods_an_empty_405() -> None:
    async with running() as walrus:
        for path in ("/", "/v1", "/v1/blobs/", "/v2/blobs", f"/v1/blobs/{UNKNOWN}/status"):
            response = await walrus.get(path)
            assert (response.status_code, response.content) == (404, b"")
            assert "content-type" not in response.headers
        for path in (f"/v1/blobs/{UNKNOWN}", f"/v1/quilts/{UNKNOWN}/patches"):
            response = await walrus.http.delete(path)
            assert (response.status_code, response.content) == (405, b"")
            assert response.headers["allow"] == "GET,HEAD"
        assert (await walrus.http.delete("/v2/blobs")).status_code == 404


async def test_browser_may_ask_beforehand() -> None:
    async with running() as walrus:
        response = await walrus.http.options(f"/v1/blobs/{UNKNOWN}")
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == "*"
        assert response.headers["access-control-allow-methods"] == "*"


def patch_id(quilt_id: str, version: int, start: int, end: int) -> str:
    raw = base64.urlsafe_b64decode(quilt_id + "=") + bytes([version])
    raw += start.to_bytes(2, "little") + end.to_bytes(2, "little")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def without_date(response: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name != "date"}


async def advance(walrus: Peer) -> int:
    response = await walrus.http.post("/emulator/epochs", json={"advance": 1})
    return int(response.json()["epoch"])
