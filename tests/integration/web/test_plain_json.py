"""Calls in plain JSON have values that people can write, and errors that people can read."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest

from tests.integration.web.test_requests import post
from tuskpoint import AsyncClient
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.core.limits import LIMITS

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHECKPOINTS = "/tuskpoint.v1.CheckpointService"
THREADS = "/tuskpoint.v1.ThreadService"
STATE = {"plan": ["read", "write"], "rate": 0.5, "note": None}
PLAIN = {"content-type": "application/json"}


def saving(thread_id: str, state: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the request that saves a state as plain JSON."""
    channels = [
        {"name": name, "version": {"integer": 1}, "value": {"json": value}}
        for name, value in state.items()
    ]
    checkpoint = {"ref": {"threadId": thread_id}, "state": {"channels": channels}, **fields}
    return {"checkpoint": checkpoint, "continueLatest": True}


async def refusal(http: httpx.AsyncClient, path: str, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await http.post(path, content=content, headers={**PLAIN, **headers})
    assert answer.status_code != 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer


async def test_a_state_goes_in_and_comes_out_as_json(both: Server, http: httpx.AsyncClient) -> None:
    metadata = {"source": "curl", "step": 3}
    await post(http, f"{CHECKPOINTS}/SaveCheckpoint", saving("plain", STATE, metadata=metadata))
    request = {"ref": {"threadId": "plain"}}
    loaded = await post(http, f"{CHECKPOINTS}/GetCheckpoint?values=json", request)
    channels = loaded["checkpoint"]["state"]["channels"]
    assert {channel["name"]: channel["value"]["json"] for channel in channels} == STATE
    assert loaded["checkpoint"]["metadata"] == metadata
    for path in ("GetCheckpoint", "GetCheckpoint?values=data"):
        loaded = await post(http, f"{CHECKPOINTS}/{path}", request)
        (plan, *_) = loaded["checkpoint"]["state"]["channels"]
        data = base64.b64encode(b'["read","write"]').decode()
        assert plan["value"] == {"type": "json", "data": data}
        assert "metadata" not in loaded["checkpoint"]
    async with AsyncClient(f"127.0.0.1:{both.port}") as client:
        assert (await client.load("plain")).state == STATE
        # The same values have the same digests, so they are neither sent nor stored again.
        saved = await client.save("plain", STATE)
        after = await client.load("plain", saved)
    versions = {channel["name"]: channel["digest"] for channel in channels}
    again = await post(
        http,
        f"{CHECKPOINTS}/GetCheckpoint",
        {"ref": {"threadId": "plain", "checkpointId": after.checkpoint_id}},
    )
    assert {
        channel["name"]: channel["digest"] for channel in again["checkpoint"]["state"]["channels"]
    } == versions


async def test_values_of_other_types_are_json_in_the_json_view(http: httpx.AsyncClient) -> None:
    packed = base64.b64encode(b"\x81\xa1a\x01").decode()  # {"a": 1} as msgpack
    body = saving("packed", {})
    body["checkpoint"]["state"]["channels"] = [
        {"name": "c", "version": {"integer": 1}, "value": {"type": "msgpack", "data": packed}}
    ]
    await post(http, f"{CHECKPOINTS}/SaveCheckpoint", body)
    shown = []
    for view in ("VIEW_FULL", "VIEW_JSON"):
        request = {"ref": {"threadId": "packed"}, "view": view}
        loaded = await post(http, f"{CHECKPOINTS}/GetCheckpoint?values=json", request)
        shown.append(loaded["checkpoint"]["state"]["channels"][0]["value"])
    assert shown == [{"type": "msgpack", "data": packed}, {"type": "json", "json": {"a": 1}}]


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        ("GetCheckpoint?values=base64", "application/json", "values is data or json"),
        ("GetCheckpoint?values=", "application/json", "values is data or json"),
        ("GetCheckpoint?values=json&values=data", "application/json", "values is data or json"),
        ("GetCheckpoint?values=json", "application/proto", "for answers in JSON"),
        ("LoadCheckpoint?values=json", "application/connect+proto", "for answers in JSON"),
    ],
)
async def test_a_wrong_form_of_values_is_refused(
    http: httpx.AsyncClient, path: str, kind: str, words: str
) -> None:
    answer = await http.post(f"{CHECKPOINTS}/{path}", content=b"", headers={"content-type": kind})
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_argument"
    assert words in answer.json()["message"]


async def test_bad_json_is_refused_with_one_sentence(http: httpx.AsyncClient) -> None:
    save = f"{CHECKPOINTS}/SaveCheckpoint"
    answer = await refusal(http, save, b"{")
    assert answer.status_code == 400
    error = answer.json()
    assert error.keys() == {"code", "message", "reason", "metadata"}
    assert (error["code"], error["reason"]) == ("invalid_argument", "INVALID_FIELD")
    body = saving("bad", {"plan": 1})
    body["checkpoint"]["state"]["channels"][0]["value"]["data"] = "MQ=="
    error = (await refusal(http, save, body)).json()
    field = "checkpoint.state.channels[0].value.data"
    assert error["metadata"]["field"] == field
    assert error["message"] == f"{field}: is given as json and as data; give one of them"
    too_large = b'{"threadId": "%s"}' % (b"x" * LIMITS.max_message)
    for path in (f"{THREADS}/GetThread", f"{THREADS}/VerifyThread"):
        answer = await refusal(http, path, too_large)
        assert answer.status_code == 429
        assert answer.json()["reason"] == "LIMIT_EXCEEDED"
    far_above = b" " * (2 * LIMITS.max_message + 1)
    answer = await refusal(http, f"{THREADS}/VerifyThread", far_above)
    assert (answer.status_code, answer.json()["reason"]) == (429, "LIMIT_EXCEEDED")


async def test_an_error_says_everything_once(http: httpx.AsyncClient) -> None:
    answer = await refusal(http, f"{THREADS}/GetThread", {"threadId": "none"})
    assert answer.status_code == 404
    assert answer.json() == {
        "code": "not_found",
        "message": "thread 'none' not found or deleted; check the ID, or list the threads",
        "reason": "THREAD_NOT_FOUND",
        "metadata": {"thread_id": "none"},
    }
    connect = await refusal(
        http, f"{THREADS}/GetThread", {"threadId": "none"}, **{"connect-protocol-version": "1"}
    )
    assert connect.json().keys() == {"code", "message", "details"}
    request = {"ref": {"threadId": "\0", "checkpointNs": "\0"}}
    error = (await refusal(http, f"{CHECKPOINTS}/GetCheckpoint", request)).json()
    assert error["message"].startswith(error["metadata"]["field"])
    fields = [error["metadata"]["field"], *(other["field"] for other in error["further"])]
    assert len(set(fields)) == len(fields) > 1
    assert error["message"].count(error["metadata"]["problem"]) == 1
