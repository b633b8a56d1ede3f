"""HTTP requests are accepted or refused as calls, and JSON is converted correctly at its edges."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest

from tests.integration.web.web_kit import CONNECT, enveloped, from_json
from tests.kit.messages import FIRST, ReportedError, reported
from tuskpoint_server.core.limits import LIMITS

pytestmark = pytest.mark.asyncio(loop_scope="module")

THREADS = "/tuskpoint.v1.ThreadService"
CHECKPOINTS = "/tuskpoint.v1.CheckpointService"
NOT_UTF8 = b'{"threadId": "\xff"}'


async def post(http: httpx.AsyncClient, path: str, body: bytes | str | dict[str, Any]) -> Any:
    """Make a call with JSON that must succeed; return its answer."""
    content = json.dumps(body) if isinstance(body, dict) else body
    answer = await http.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refusal(http: httpx.AsyncClient, path: str, body: bytes | str) -> ReportedError:
    """Make a call with JSON that must be refused; return its error."""
    headers = {"content-type": "application/json", **CONNECT}
    answer = await http.post(path, content=body, headers=headers)
    assert answer.status_code != 200, answer.text
    return reported(from_json(answer.json()))


def checkpoint(**fields: Any) -> dict[str, Any]:
    data = base64.b64encode(b'{"plan": 1}').decode()
    version = {"integer": "9007199254740993"}  # not exact as a number of JavaScript
    value = {"type": "json", "data": data}
    return {
        "ref": {"threadId": "json", "checkpointId": FIRST},
        "state": {"channels": [{"name": "plan", "version": version, "value": value}]},
        **fields,
    }


async def test_json_has_the_names_of_the_contract_or_those_of_javascript(
    http: httpx.AsyncClient,
) -> None:
    saved = await post(http, f"{CHECKPOINTS}/SaveCheckpoint", {"checkpoint": checkpoint()})
    assert saved["ref"]["checkpointId"] == FIRST
    assert saved["durability"] == "DURABILITY_JOURNALED"
    for ref in ({"threadId": "json"}, {"thread_id": "json"}):
        loaded = await post(http, f"{CHECKPOINTS}/GetCheckpoint", {"ref": ref})
        (channel,) = loaded["checkpoint"]["state"]["channels"]
        assert channel["version"] == {"integer": "9007199254740993"}
        assert base64.b64decode(channel["value"]["data"]) == b'{"plan": 1}'
    listed = await post(http, f"{THREADS}/ListThreads", {"page_size": 1})
    assert listed["threads"][0]["threadId"] == "json"
    for number in (2, "2", 2.0):
        await post(http, f"{THREADS}/ListThreads", {"pageSize": number})
    await post(http, f"{THREADS}/SetRetention", {"threadId": "json", "retention": "3600s"})
    text = await post(http, f"{THREADS}/ListThreads", '{"agentId": "Zoë ☃ \\ud83d\\ude00"}')
    assert text == {}


BROKEN = [
    b"",
    b"{",
    b"[1]",
    b'"text"',
    b"null",
    b'{"threadId": 5}',
    b'{"threadId": ["t"]}',
    b'{"noSuchField": 1}',
    b'{"threadId": "t", "threadId": "u"}',
    b'{"threadId": "\\ud800"}',
    b'{"\\ud800": 1}',
    NOT_UTF8,
    b"[" * 100_000,
    b'{"threadId": ' + b"[" * 100_000,
    b'{"threadId": ' + b'{"a":' * 5000,
]
BROKEN_NUMBERS = [b"1e999", b"1.5", b"9" * 5000, b'"9"', b"-9999999999999", b"NaN", b'"x"', b"true"]


async def test_what_is_no_json_of_the_request_is_refused_with_the_problem(
    http: httpx.AsyncClient,
) -> None:
    for body in BROKEN:
        answer = await refusal(http, f"{THREADS}/GetThread", body)
        assert (answer.reason, answer.fields) == ("INVALID_FIELD", ("request",)), body[:40]
        assert "is not the JSON of a tuskpoint.v1.GetThreadRequest: " in answer.message
        assert len(answer.message) < 700
    for number in BROKEN_NUMBERS:
        body = b'{"pageSize": %s}' % number
        if number != b'"9"':
            answer = await refusal(http, f"{THREADS}/ListThreads", body)
            assert answer.reason == "INVALID_FIELD", body[:40]
    for field in (b'"retention": "1e99s"', b'"retention": 5', b'"retention": "315576000001s"'):
        answer = await refusal(http, f"{THREADS}/SetRetention", b'{"threadId": "t", %s}' % field)
        assert answer.reason == "INVALID_FIELD", field
    nested: Any = {}
    for _ in range(200):
        nested = {"checkpoint": {"ref": nested}}
    answer = await refusal(http, f"{CHECKPOINTS}/SaveCheckpoint", json.dumps(nested))
    assert answer.reason == "INVALID_FIELD"


async def test_a_message_above_the_limit_is_refused_with_the_reason(
    http: httpx.AsyncClient,
) -> None:
    body = b'{"threadId": "%s"}' % (b"x" * LIMITS.max_message)
    answer = await refusal(http, f"{THREADS}/GetThread", body)
    assert (answer.code.name, answer.reason) == ("RESOURCE_EXHAUSTED", "LIMIT_EXCEEDED")
    far_above = b" " * (2 * LIMITS.max_message + 1)
    answer = await refusal(http, f"{THREADS}/GetThread", far_above)
    assert (answer.code.name, answer.reason) == ("RESOURCE_EXHAUSTED", "")


async def test_large_json_is_converted_beside_other_calls(http: httpx.AsyncClient) -> None:
    data = base64.b64encode(bytes(3 * 1024 * 1024)).decode()
    saved = checkpoint(ref={"threadId": "large", "checkpointId": FIRST})
    saved["state"]["channels"][0]["value"] = {"type": "bytes", "data": data}
    await post(http, f"{CHECKPOINTS}/SaveCheckpoint", {"checkpoint": saved})
    loaded = await post(http, f"{CHECKPOINTS}/GetCheckpoint", {"ref": {"threadId": "large"}})
    assert loaded["checkpoint"]["state"]["channels"][0]["value"]["data"] == data


UNARY = "application/json, application/proto, application/grpc-web, "
STREAM = "application/connect+json, application/connect+proto, application/grpc-web, "


@pytest.mark.parametrize(
    ("kind", "path", "advice"),
    [
        ("application/grpc", f"{THREADS}/GetThread", "the address of --listen"),
        ("application/grpc+proto", f"{THREADS}/VerifyThread", "the address of --listen"),
        ("text/plain", f"{THREADS}/GetThread", UNARY),
        ("application/x-www-form-urlencoded", f"{THREADS}/GetThread", UNARY),
        ("multipart/form-data", f"{THREADS}/GetThread", UNARY),
        ("application/connect+json", f"{THREADS}/GetThread", UNARY),
        ("text/json", f"{THREADS}/VerifyThread", f"application/json, {STREAM}"),
        ("application/json", f"{CHECKPOINTS}/Exchange", STREAM),
        ("application/grpc-web-text", f"{THREADS}/GetThread", UNARY),
        ("application/", f"{THREADS}/GetThread", UNARY),
        (None, f"{THREADS}/GetThread", UNARY),
    ],
)
async def test_another_content_type_is_answered_with_those_that_are_understood(
    http: httpx.AsyncClient, kind: str | None, path: str, advice: str
) -> None:
    headers = {} if kind is None else {"content-type": kind}
    answer = await http.post(path, content=b"{}", headers=headers)
    assert answer.status_code == 415
    assert answer.json()["code"] == "invalid_argument"
    assert advice in answer.json()["message"]
    assert answer.headers["accept-post"].startswith("application/")


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
async def test_a_content_type_may_have_parameters(http: httpx.AsyncClient, kind: str) -> None:
    answer = await http.post(
        f"{THREADS}/ListThreads", content=b"{}", headers={"content-type": kind}
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_only_a_post_is_a_call(http: httpx.AsyncClient, method: str) -> None:
    path = f"{THREADS}/ListThreads?encoding=json&message=%7B%7D&connect=v1"
    answer = await http.request(method, path, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    if method != "HEAD":
        assert answer.json()["message"] == f"a call is a POST, and this is a {method}"


@pytest.mark.parametrize(
    "path",
    [
        f"{THREADS}/NoSuchMethod",
        f"{THREADS}/ListThreads/",
        "/tuskpoint.v1.NoSuchService/ListThreads",
        "/tuskpoint.v1.ThreadService",
    ],
)
async def test_an_unknown_method_is_not_implemented(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.post(path, content=b"{}", headers={"content-type": "application/json"})
    assert answer.status_code == 404
    assert answer.json() == {"code": "unimplemented", "message": f"there is no method {path}"}


async def test_compressed_requests_are_refused(http: httpx.AsyncClient) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = await http.post(f"{THREADS}/ListThreads", content=b"{}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (501, "unimplemented")
    headers = {"content-type": "application/connect+json", "connect-content-encoding": "gzip"}
    body = enveloped(b"{}", flags=1)
    answer = await http.post(f"{THREADS}/VerifyThread", content=body, headers=headers)
    assert b'"unimplemented"' in answer.content


async def test_headers_that_are_no_text_are_no_defect(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    headers = [(b"content-type", b"application/json"), (b"x-note", b"\xff\xfe")]
    answer = await http.post(f"{THREADS}/ListThreads", content=b"{}", headers=headers)
    assert answer.status_code == 200
    assert not caplog.records


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "unimplemented"),
        (enveloped(b"{}") * 2, "unimplemented"),
        (enveloped(b"{}", flags=4), "invalid_argument"),
        (enveloped(b"{}")[:-1], "invalid_argument"),
        (b"\0\0", "invalid_argument"),
        (b"\0\xff\xff\xff\xff", "resource_exhausted"),
    ],
)
async def test_a_broken_stream_of_requests_is_refused(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, body: bytes, code: str
) -> None:
    headers = {"content-type": "application/connect+json"}
    paths = [f"{THREADS}/VerifyThread"]
    if code != "unimplemented":  # for Exchange, two requests or none are valid
        paths.append(f"{CHECKPOINTS}/Exchange")
    for path in paths:
        answer = await http.post(path, content=body, headers=headers)
        assert answer.status_code == 200
        assert f'"code": "{code}"'.encode() in answer.content
    assert not caplog.records, "no incident"
