"""The emulated publisher stores quilts, and refuses files that cannot be a quilt."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import pytest

from emulators.tests.walrus.peer import (
    BOUNDARY,
    SMALLEST_ENCODED_BYTES,
    form,
    is_text,
    reason,
    running,
)
from tuskpoint_emulators.walrus.faults import Fault, FaultKind, Operation
from tuskpoint_emulators.walrus.settings import EmulatorSettings

FORM = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def identifiers(answer: dict[str, Any]) -> list[str]:
    return [patch["identifier"] for patch in answer["storedQuiltBlobs"]]


async def test_patches_are_sorted_by_the_bytes_of_their_identifiers() -> None:
    async with running() as walrus:
        answer = await walrus.store_quilt({"é": b"3", "b": b"2", "B": b"1"})
        assert set(answer) == {"blobStoreResult", "storedQuiltBlobs"}
        created = answer["blobStoreResult"]["newlyCreated"]
        assert created["resourceOperation"]["registerFromScratch"]["encodedLength"] == (
            SMALLEST_ENCODED_BYTES
        )
        assert identifiers(answer) == ["B", "b", "é"]
        for patch in answer["storedQuiltBlobs"]:
            assert set(patch) == {"identifier", "quiltPatchId", "range"}
        assert [patch["range"] for patch in answer["storedQuiltBlobs"]] == [[1, 2], [2, 3], [3, 4]]


async def test_object_of_a_quilt_says_that_it_is_one() -> None:
    async with running() as walrus:
        answer = await walrus.store_quilt({"a": b"1"})
        blob = answer["blobStoreResult"]["newlyCreated"]["blobObject"]
        blob_object = walrus.emulator.ledger.object_by_id(blob["id"])
        assert blob_object.attributes == {"_walrusBlobType": "quilt"}


async def test_metadata_gives_tags_as_text_to_the_files_that_are_there() -> None:
    async with running() as walrus:
        quilt_id = await walrus.quilt_id(
            {"a": b"1", "b": b"2", "c": b"3"},
            [
                {
                    "identifier": "a",
                    "tags": {"text": "x", "number": 7, "list": [1, "é"], "no": None},
                },
                {"identifier": "b", "more": "is ignored"},
                {"identifier": "not among the files", "tags": {"x": "y"}},
            ],
        )
        listed = (await walrus.get(f"/v1/quilts/{quilt_id}/patches")).json()
        assert [(patch["identifier"], patch["tags"]) for patch in listed] == [
            ("a", {"text": "x", "number": "7", "list": '[1,"é"]', "no": "null"}),
            ("b", {}),
            ("c", {}),
        ]


@pytest.mark.parametrize(
    "metadata",
    [
        [{"identifier": "a"}, {"identifier": "a"}],
        [{"tags": {}}],
        [{"identifier": "a", "tags": ["x"]}],
        {"identifier": "a"},
        "text",
    ],
)
async def test_metadata_that_does_not_fit_is_refused(metadata: Any) -> None:
    async with running() as walrus:
        response = await walrus.put_quilt({"a": b"1"}, metadata)
        assert reason(response, 400) == "MALFORMED_REQUEST"
        assert "failed to parse multipart form" in response.json()["error"]["message"]


async def test_metadata_that_is_no_json_is_refused() -> None:
    async with running() as walrus:
        response = await walrus.put_quilt({"a": b"1", "_metadata": b"{"})
        assert reason(response, 400) == "MALFORMED_REQUEST"


async def test_a_quilt_holds_666_patches_and_no_more() -> None:
    async with running() as walrus:
        files = {f"file-{n:04}": n.to_bytes(4, "big") for n in range(667)}
        assert reason(await walrus.put_quilt(files), 400) == "MALFORMED_REQUEST"
        del files["file-0000"]
        answer = await walrus.store_quilt(files)
        assert len(answer["storedQuiltBlobs"]) == 666
        # The index has one column left, which takes large symbols.
        assert answer["blobStoreResult"]["newlyCreated"]["blobObject"]["size"] > 445_556
        patch = answer["storedQuiltBlobs"][-1]
        read = await walrus.get(f"/v1/blobs/by-quilt-patch-id/{patch['quiltPatchId']}")
        assert read.content == (666).to_bytes(4, "big")


async def test_two_files_of_one_name_are_refused() -> None:
    async with running() as walrus:
        response = await walrus.put_quilt([("a", b"1"), ("a", b"2")])
        assert reason(response, 400) == "MALFORMED_REQUEST"
        assert "failed to construct quilt" in response.json()["error"]["message"]


@pytest.mark.parametrize("name", ["", "a ", "a\t", "a\x01b", "a\x7f", "a\x85b", "a" * 65_536])
async def test_identifier_that_may_not_be_is_refused(name: str) -> None:
    async with running() as walrus:
        assert reason(await walrus.put_quilt({name: b"1"}), 400) == "MALFORMED_REQUEST"


@pytest.mark.parametrize("metadata", [None, []])
async def test_form_without_a_file_is_refused(metadata: Any) -> None:
    async with running() as walrus:
        response = await walrus.put_quilt({}, metadata)
        assert reason(response, 400) == "MALFORMED_REQUEST"


async def test_empty_file_is_stored_and_read() -> None:
    async with running() as walrus:
        quilt_id = await walrus.quilt_id({"empty": b"", "full": b"1"})
        response = await walrus.get(f"/v1/blobs/by-quilt-id/{quilt_id}/empty")
        assert (response.status_code, response.content) == (200, b"")


async def test_patch_id_holds_the_quilt_and_the_columns() -> None:
    async with running() as walrus:
        answer = await walrus.store_quilt({"a": bytes(1000), "b": b"2"})
        created = answer["blobStoreResult"]["newlyCreated"]
        quilt_id = base64.urlsafe_b64decode(created["blobObject"]["blobId"] + "=")
        for patch in answer["storedQuiltBlobs"]:
            start, end = patch["range"]
            assert len(patch["quiltPatchId"]) == 50
            raw = base64.urlsafe_b64decode(patch["quiltPatchId"] + "==")
            assert raw == quilt_id + b"\x01" + start.to_bytes(2, "little") + end.to_bytes(
                2, "little"
            )


async def test_same_files_make_the_same_quilt_in_any_order() -> None:
    async with running() as walrus:
        tags = [{"identifier": "a", "tags": {"y": "2", "x": "1"}}]
        again = [{"identifier": "a", "tags": {"x": "1", "y": "2"}}]
        first = await walrus.quilt_id({"a": b"1", "b": b"2"}, tags)
        assert await walrus.quilt_id({"b": b"2", "a": b"1"}, again) == first
        assert await walrus.quilt_id({"a": b"1", "b": b"2"}) != first


async def test_permanent_quilt_is_free_the_second_time_and_names_its_patches() -> None:
    async with running() as walrus:
        first = await walrus.store_quilt({"a": b"1"}, permanent=True)
        second = await walrus.store_quilt({"a": b"1"}, permanent=True)
        assert "alreadyCertified" in second["blobStoreResult"]
        assert second["storedQuiltBlobs"] == first["storedQuiltBlobs"]


async def test_form_above_the_limit_is_malformed() -> None:
    assert EmulatorSettings().max_quilt_body_bytes == 100 * 1024 * 1024
    async with running(EmulatorSettings(max_quilt_body_bytes=10_000)) as walrus:
        overhead = len(form([("a", b"")]))
        await walrus.store_quilt({"a": bytes(10_000 - overhead)})
        response = await walrus.put_quilt({"a": bytes(10_001 - overhead)})
        assert reason(response, 400) == "MALFORMED_REQUEST"


async def test_unicode_identifier_is_stored_and_left_out_of_the_headers() -> None:
    async with running() as walrus:
        quilt_id = await walrus.quilt_id({"ключ": b"1", "key": b"2"})
        plain = await walrus.get(f"/v1/blobs/by-quilt-id/{quilt_id}/key")
        assert plain.headers["x-quilt-patch-identifier"] == "key"
        response = await walrus.get(f"/v1/blobs/by-quilt-id/{quilt_id}/{quote('ключ')}")
        assert response.content == b"1"
        assert "x-quilt-patch-identifier" not in response.headers


async def test_identifier_with_a_slash_is_one_segment() -> None:
    async with running() as walrus:
        quilt_id = await walrus.quilt_id({"dir/100%": b"1"})
        path = f"/v1/blobs/by-quilt-id/{quilt_id}/"
        assert (await walrus.get(path + "dir%2F100%25")).content == b"1"
        missed = await walrus.get(path + "dir/100%25")
        assert (missed.status_code, missed.content) == (404, b"")


async def test_long_identifier_is_read_by_its_path() -> None:
    async with running() as walrus:
        name = "é" * 10_000
        quilt_id = await walrus.quilt_id({name: b"1"})
        response = await walrus.get(f"/v1/blobs/by-quilt-id/{quilt_id}/{quote(name)}")
        assert response.content == b"1"


async def test_error_within_success_names_no_patches() -> None:
    async with running() as walrus:
        fault = Fault(kind=FaultKind.ERROR_RESULT, phase="encode", message="too large")
        walrus.emulator.faults.add(Operation.PUT_QUILT, fault)
        answer = await walrus.store_quilt({"a": b"1"})
        assert answer["storedQuiltBlobs"] == []
        assert answer["blobStoreResult"]["error"]["failurePhase"] == "encode"


async def test_quilt_marked_invalid_is_told_within_success() -> None:
    async with running() as walrus:
        await walrus.store_quilt({"a": b"1"})
        [blob_id] = walrus.emulator.ledger.blob_ids()
        walrus.emulator.ledger.mark_invalid(blob_id)
        answer = await walrus.store_quilt({"a": b"1"})
        assert set(answer["blobStoreResult"]["markedInvalid"]) == {"blobId", "event"}
        assert answer["storedQuiltBlobs"] == []


async def test_quilts_are_put_and_not_posted() -> None:
    async with running() as walrus:
        for method in ("POST", "GET", "DELETE"):
            response = await walrus.http.request(method, "/v1/quilts")
            assert (response.status_code, response.content) == (405, b"")
            assert response.headers["allow"] == "PUT"


async def test_query_of_a_quilt_is_that_of_a_blob() -> None:
    async with running() as walrus:
        assert is_text(await walrus.put_quilt({"a": b"1"}, cb="1"), 400)
        both = await walrus.put_quilt({"a": b"1"}, deletable=True, permanent=True)
        assert reason(both, 400) == "INVALID_BLOB_PERSISTENCE"
        answer = await walrus.store_quilt(
            {"a": b"1"}, epochs=4, quilt_version="v1", encoding_type="RS2"
        )
        blob = answer["blobStoreResult"]["newlyCreated"]["blobObject"]
        assert blob["storage"]["endEpoch"] == 5


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/octet-stream", form([("a", b"1")])),
        ("multipart/form-data", form([("a", b"1")])),
        (FORM["Content-Type"], form([("a", b"1")])[:-4]),
        (FORM["Content-Type"], b""),
        (FORM["Content-Type"], f"--{BOUNDARY}\r\nno headers\r\n--{BOUNDARY}--\r\n".encode()),
        (FORM["Content-Type"], form([("a", b"1")]).replace(b"Disposition", b"Position")),
        (FORM["Content-Type"], form([("x", b"1")]).replace(b'"x"; f', b'"\xff"; f')),
    ],
)
async def test_body_that_is_no_form_is_malformed(content_type: str, body: bytes) -> None:
    async with running() as walrus:
        response = await walrus.http.put(
            "/v1/quilts", content=body, headers={"Content-Type": content_type}
        )
        assert reason(response, 400) == "MALFORMED_REQUEST"


async def test_form_of_a_client_library_is_read_as_it_is_written() -> None:
    async with running() as walrus:
        contents = {"a": b"1\r\n--", "b": b"\r\n", "c d": b"\r\n\r\n3"}
        response = await walrus.http.put("/v1/quilts", files=contents)
        assert identifiers(response.json()) == ["a", "b", "c d"]
        for patch in response.json()["storedQuiltBlobs"]:
            read = await walrus.get(f"/v1/blobs/by-quilt-patch-id/{patch['quiltPatchId']}")
            assert read.content == contents[patch["identifier"]]
