"""Answers of publishers and aggregators are classified correctly."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint_server.blobs.api import digest_of
from tuskpoint_server.blobs.walrus.answers import (
    parse_blob_result,
    parse_patches,
    parse_quilt_result,
    read_error,
)
from tuskpoint_server.blobs.walrus.failures import RequestFailedError, Symptom
from tuskpoint_server.blobs.walrus.quilt import Patch
from tuskpoint_server.core.model import StoredBlob

BLOB_ID = "M4hsZGQ1oCktdzegB6HnI6Mi28S2nqOPHxK-W7_4BUk"

CREATED: dict[str, Any] = {
    "newlyCreated": {
        "blobObject": {
            "id": "0xe91eee8c5b6f35b9a250cfc29e30f0d9e5463a21fd8d1ddb0fc22d44db4eac50",
            "registeredEpoch": 34,
            "blobId": BLOB_ID,
            "size": 17,
            "encodingType": "RS2",
            "certifiedEpoch": None,
            "storage": {
                "id": "0x4748cd83217b5ce7aa77e7f1ad6fc5f7f694e26a157381b9391ac65c47815faf",
                "startEpoch": 34,
                "endEpoch": 35,
                "storageSize": 66034000,
            },
            "deletable": False,
        },
        "resourceOperation": {"registerFromScratch": {"encodedLength": 66034000, "epochsAhead": 1}},
        "cost": 132300,
    }
}
FOUND: dict[str, Any] = {
    "alreadyCertified": {
        "blobId": BLOB_ID,
        "event": {"txDigest": "4XQHFa9S324wTzYHF3vsBSwpUZuLpmwTHYMFv9nsttSs", "eventSeq": "0"},
        "endEpoch": 40,
    }
}


def body(value: object) -> bytes:
    return json.dumps(value).encode()


def created(path: str, value: object) -> dict[str, Any]:
    """Return CREATED with one member replaced, or removed by `...`."""
    changed = copy.deepcopy(CREATED)
    *parents, last = path.split(".")
    holder = changed["newlyCreated"]
    for name in parents:
        holder = holder[name]
    if value is ...:
        del holder[last]
    else:
        holder[last] = value
    return changed


def test_new_blob() -> None:
    assert parse_blob_result(body(CREATED)) == StoredBlob(
        blob_id=BLOB_ID,
        object_id="0xe91eee8c5b6f35b9a250cfc29e30f0d9e5463a21fd8d1ddb0fc22d44db4eac50",
        billed_bytes=66034000,
        cost=132300,
        epoch=34,
        end_epoch=35,
    )


def test_certified_epoch_may_be_null_or_not() -> None:
    assert parse_blob_result(body(created("blobObject.certifiedEpoch", 34))) == parse_blob_result(
        body(CREATED)
    )


def test_blob_that_was_there() -> None:
    assert parse_blob_result(body(FOUND)) == StoredBlob(BLOB_ID, end_epoch=40)
    owned = {"alreadyCertified": {"blobId": BLOB_ID, "object": "0xab", "endEpoch": 40}}
    assert parse_blob_result(body(owned)) == StoredBlob(BLOB_ID, "0xab", end_epoch=40)


@pytest.mark.parametrize(
    ("operation", "cost", "billed"),
    [
        ({"registerFromScratch": {"encodedLength": 7, "epochsAhead": 1}}, 5, 7),
        ({"registerFromScratch": {"encodedLength": 7, "epochsAhead": 1}}, 0, 7),
        ({"reuseAndExtend": {"encodedLength": 7, "epochsExtended": 1}}, 5, 7),
        ({"reuseStorage": {"encodedLength": 7}}, 0, 0),
        ({"reuseRegistration": {"encodedLength": 7}}, 0, 0),
        (None, 5, 66034000),
    ],
)
def test_the_billed_size_and_cost_are_read(operation: object, cost: int, billed: int) -> None:
    answer = created("resourceOperation", operation)
    answer["newlyCreated"]["cost"] = cost
    assert parse_blob_result(body(answer)).billed_bytes == billed


@pytest.mark.parametrize(
    "answer",
    [
        created("blobObject", ...),
        created("blobObject", None),
        created("blobObject.blobId", ...),
        created("blobObject.blobId", BLOB_ID[:-1]),
        created("blobObject.blobId", BLOB_ID + "="),
        created("blobObject.blobId", BLOB_ID.replace("_", "/")),
        created("blobObject.blobId", 7),
        created("blobObject.storage.endEpoch", ...),
        created("blobObject.storage.endEpoch", -1),
        created("blobObject.storage.endEpoch", True),
        created("blobObject.storage.endEpoch", "35"),
        created("blobObject.id", ...),
        created("cost", None),
        created("resourceOperation", {"registerFromScratch": {}}),
        {
            "newlyCreated": {
                **created("blobObject.storage.storageSize", "1")["newlyCreated"],
                "resourceOperation": None,
            }
        },
        {"newly_created": CREATED["newlyCreated"]},
        {"alreadyCertified": {"blobId": BLOB_ID}},
        {"alreadyCertified": {"endEpoch": 3}},
        {"error": "text"},
        {},
        [],
        None,
        "newlyCreated",
    ],
)
def test_malformed_result(answer: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_blob_result(body(answer))


@pytest.mark.parametrize(
    "raw", [b"", b"<html>", b"\xff", b"[" * 100_000, b'{"error": ' + b"9" * 9999]
)
def test_no_json(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_blob_result(raw)


@pytest.mark.parametrize(
    ("phase", "message", "outcome"),
    [
        ("check_blob_is_blocked", "no", "BLOCKED"),
        ("encode", "no", "NOT_ENCODED"),
        ("unknown", "the blob is too large to be encoded", "NOT_ENCODED"),
        ("register_or_reuse_resources", "no result", "NOT_REGISTERED"),
        ("with_certify_and_extend_result", "no result", "NOT_CERTIFIED"),
        ("certify", "the blob is not registered", "NOT_CERTIFIED"),
        ("", "", "UNKNOWN"),
        (None, None, "UNKNOWN"),
        (["x"], 7, "UNKNOWN"),
    ],
)
def test_error_with_status_200(phase: object, message: object, outcome: str) -> None:
    answer = {"error": {"blobId": None, "failurePhase": phase, "errorMsg": message}}
    with pytest.raises(RequestFailedError) as failed:
        parse_blob_result(body(answer))
    assert failed.value.symptom.reason == outcome
    assert failed.value.symptom.status == 200
    with pytest.raises(RequestFailedError):
        parse_quilt_result(body({"blobStoreResult": answer, "storedQuiltBlobs": []}), ["a"])


def test_marked_invalid() -> None:
    with pytest.raises(RequestFailedError) as failed:
        parse_blob_result(body({"markedInvalid": {"blobId": BLOB_ID, "event": {}}}))
    assert failed.value.symptom.reason == "MARKED_INVALID"


def quilt(*identifiers: str, result: object = CREATED) -> bytes:
    patches = [{"identifier": name, "quiltPatchId": BLOB_ID + "AQEAAgA"} for name in identifiers]
    return body({"blobStoreResult": result, "storedQuiltBlobs": patches})


def test_quilt() -> None:
    assert parse_quilt_result(quilt("b", "a"), ["a", "b"]) == parse_blob_result(body(CREATED))
    assert parse_quilt_result(quilt("a", result=FOUND), ["a"]).end_epoch == 40


@pytest.mark.parametrize(
    "answer",
    [
        quilt("a"),
        quilt(),
        quilt("a", "b", result={}),
        body({"blobStoreResult": CREATED}),
        body({"blobStoreResult": CREATED, "storedQuiltBlobs": {"a": 1, "b": 2}}),
        body({"blobStoreResult": CREATED, "storedQuiltBlobs": ["a", "b"]}),
        body(CREATED),
    ],
)
def test_malformed_quilt(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_quilt_result(answer, ["a", "b"])


def test_list_of_patches() -> None:
    listed = [
        {"identifier": "a", "patch_id": "x", "tags": {}},
        {"identifier": "é/", "patch_id": "y", "tags": {"k": "v"}},
        {"identifier": "old"},
    ]
    assert parse_patches(body(listed)) == [
        Patch("a", {}),
        Patch("é/", {"k": "v"}),
        Patch("old", {}),
    ]
    assert parse_patches(b"[]") == []


@pytest.mark.parametrize(
    "answer", [{}, [1], [{"identifier": 1}], [{}], [{"identifier": "a", "tags": {"k": 1}}]]
)
def test_malformed_list(answer: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_patches(body(answer))


def test_error_in_json() -> None:
    answer = {
        "error": {
            "status": "RESOURCE_EXHAUSTED",
            "code": 429,
            "message": "the token\nwas used",
            "details": [
                {"@type": "DebugInfo", "stackEntries": []},
                {"@type": "ErrorInfo", "reason": "TOKEN_ALREADY_USED", "domain": "x"},
            ],
        }
    }
    assert read_error(429, "application/json", body(answer)) == Symptom(
        status=429, json=True, reason="TOKEN_ALREADY_USED", detail="the token was used"
    )
    assert read_error(500, "", body({"error": {"details": "x", "message": 1}})) == Symptom(
        status=500, json=True
    )


@pytest.mark.parametrize(
    ("content_type", "raw", "detail"),
    [
        ("text/plain", b"Too many requests", "Too many requests"),
        ("", b"", ""),
        ("text/html; charset=utf-8", b"502 Bad Gateway", ""),
        ("", b"\n <!DOCTYPE html><p>", ""),
        ("application/json", b'"text"', '"text"'),
        ("application/json", b'{"error": "text"}', '{"error": "text"}'),
        ("", b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_error_not_in_json(content_type: str, raw: bytes, detail: str) -> None:
    assert read_error(502, content_type, raw) == Symptom(status=502, detail=detail)


@given(st.binary(max_size=200), st.text(max_size=20))
def test_any_error_is_one_printable_line(raw: bytes, content_type: str) -> None:
    symptom = read_error(500, content_type, raw)
    assert symptom.detail == " ".join(symptom.detail.split(" "))
    assert all(char.isprintable() for char in symptom.detail)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BLOB_ID, True),
        ("A" * 43, True),
        ("A" * 42 + "B", False),  # nonzero bits after the last byte
        ("A" * 42, False),
        ("A" * 44, False),
        ("A" * 42 + "+", False),
        ("é" * 43, False),
        ("", False),
    ],
)
def test_blob_id(text: str, expected: bool) -> None:
    assert (digest_of(text) is not None) is expected
