"""JSON values in messages are stored in one form, and shown as JSON where a caller asks for it."""

from __future__ import annotations

import base64
import json
import re
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint._messages.arguments import encode_json
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import store_service_pb2 as store
from tuskpoint_server.api.messages import json_values
from tuskpoint_server.api.messages.json_text import JsonText, from_json, to_json
from tuskpoint_server.api.messages.json_values import MAX_LEVELS
from tuskpoint_server.api.middleware.policy import POLICY
from tuskpoint_server.core.errors import Refusal


async def saved(channel: str) -> pb.SaveCheckpointRequest:
    """Parse a save whose only channel has these members."""
    text = f'{{"checkpoint": {{"state": {{"channels": [{{"name": "c", {channel}}}]}}}}}}'
    return await from_json(pb.SaveCheckpointRequest, JsonText(text.encode()))


async def stored(json_text: str) -> bytes:
    """Return the stored bytes of a JSON value."""
    request = await saved(f'"value": {{"json": {json_text}}}')
    (channel,) = request.checkpoint.state.channels
    assert channel.value.type == "json"
    return channel.value.data


async def refused(channel: str) -> str:
    with pytest.raises(Refusal) as caught:
        await saved(channel)
    assert caught.value.reason.name == "INVALID_FIELD"
    return caught.value.message


BY_PYTHON: list[Any] = [
    None,
    True,
    0,
    -7,
    2**64,
    1.0,
    -0.0,
    1e-07,
    1e22,
    0.1,
    "",
    "Zoë ☃ 😀 \u2028 \x7f",
    'quote " slash / back \\ \b\f\n\r\t \x00\x1f',
    [],
    {},
    {"b": [1, {"a": None}], "a": "", "": [[], [0.5]]},
]


@pytest.mark.parametrize("value", BY_PYTHON, ids=str)
async def test_the_bytes_are_those_of_the_python_client(value: Any) -> None:
    expected = encode_json("value", value)
    assert await stored(json.dumps(value)) == expected
    assert await stored(json.dumps(value, ensure_ascii=False, indent=3)) == expected


# Numbers as JSON.stringify writes them.
BY_TYPESCRIPT = [
    "1",
    "0.1",
    "1e-7",
    "1e+21",
    "1.5e-10",
    "[1,-0.5]",
    '{"n":1e+21,"s":"é\\u001f\\n"}',
]


@pytest.mark.parametrize("text", BY_TYPESCRIPT)
async def test_the_bytes_are_those_of_the_typescript_client(text: str) -> None:
    assert await stored(text) == text.encode()
    assert await stored(f" {text} ") == text.encode()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('"\\[{e1.')), inner),
)


@given(JSON)
def test_what_is_written_fast_is_what_is_written_slowly(value: Any) -> None:
    text = encode_json("value", value)
    assert json_values._compact(json_values.parse_json(text)) == text.decode()
    assert json_values.compact(json_values.parse_json(text)) == text.decode()
    assert json_values._shown(text) == text.decode()
    spaced = json.dumps(value, indent=1).encode()
    assert json_values._shown(spaced) == text.decode()


@pytest.mark.parametrize("text", ["1e400", "1.50", "1E2", "-0.0e-0"])
async def test_a_number_stays_as_it_is_written(text: str) -> None:
    assert await stored(text) == text.encode()
    answer = pb.GetCheckpointResponse()
    answer.checkpoint.state.channels.add(name="c").value.MergeFrom(
        (await saved(f'"value": {{"json": {text}}}')).checkpoint.state.channels[0].value
    )
    shown = await to_json(type(answer), answer.SerializeToString(), shows_values=True)
    assert f'"json":{text}' in shown.decode()


@pytest.mark.parametrize(
    ("channel", "words"),
    [
        ('"value": {"json": 1, "data": "MQ=="}', "give one of them"),
        ('"value": {"json": null, "data": ""}', "give one of them"),
        ('"value": {"json": 1, "type": "msgpack"}', "must be json or absent beside json"),
        ('"value": {"json": "\\ud800"}', "half of a surrogate pair"),
        ('"value": {"json": {"\\ud800": 1}}', "half of a surrogate pair"),
        ('"value": {"json": [NaN]}', "NaN is not JSON"),
        ('"value": {"json": {"a": 1, "a": 2}}', "the key 'a' occurs twice"),
        (f'"value": {{"json": {"[" * 201 + "]" * 201}}}', "more than 200 arrays and objects"),
        ('"json": 1', 'no field named "json"'),
    ],
)
async def test_what_cannot_be_stored_is_refused(channel: str, words: str) -> None:
    assert words in await refused(channel)


async def test_a_refusal_names_the_field() -> None:
    message = await refused('"value": {"json": 1, "data": "MQ=="}')
    assert message.startswith("checkpoint.state.channels[0].value.data: is given as json and as")


async def test_the_deepest_json_is_stored_and_shown() -> None:
    text = "[" * MAX_LEVELS + "]" * MAX_LEVELS
    assert await stored(text) == text.encode()
    assert await shown_value("json", text.encode()) == {"type": "json", "json": json.loads(text)}


async def shown_value(kind: str, data: bytes) -> Any:
    """Return a value as an answer shows it to a caller who asks for JSON."""
    answer = pb.GetCheckpointResponse()
    answer.checkpoint.state.channels.add(name="c").value.type = kind
    answer.checkpoint.state.channels[0].value.data = data
    text = await to_json(type(answer), answer.SerializeToString(), shows_values=True)
    return json.loads(text)["checkpoint"]["state"]["channels"][0]["value"]


@pytest.mark.parametrize(
    ("data", "value"),
    [(b'{"a": [1, 2.50]}', {"a": [1, 2.5]}), (b"null", None), (b' "x\\n" ', "x\n")],
)
async def test_json_is_shown_as_json(data: bytes, value: Any) -> None:
    assert await shown_value("json", data) == {"type": "json", "json": value}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("msgpack", b"\x01"),
        ("bytes", b"1"),
        ("json", b"{"),
        ("json", b"\xff"),
        ("json", b"NaN"),
        ("json", b'{"a":1,"a":2}'),
        ("json", b'"\\ud800"'),
        ("json", b"[" * 201 + b"]" * 201),
        ("json", b"[" * 100_000),
    ],
)
async def test_what_json_would_change_stays_base64(kind: str, data: bytes) -> None:
    assert await shown_value(kind, data) == {"type": kind, "data": base64.b64encode(data).decode()}


async def test_an_answer_has_base64_unless_json_is_asked_for() -> None:
    answer = pb.GetCheckpointResponse()
    answer.checkpoint.metadata_json = b'{"step":1}'
    data = answer.SerializeToString()
    assert json.loads(await to_json(type(answer), data))["checkpoint"] == {
        "metadataJson": base64.b64encode(b'{"step":1}').decode()
    }
    shown = await to_json(type(answer), data, shows_values=True)
    assert json.loads(shown)["checkpoint"] == {"metadata": {"step": 1}}


async def test_extras_writes_metadata_filters_and_items_may_be_json() -> None:
    text = b"""{"checkpoint": {"state": {"extras": {"a": {"json": [1]}, "b": {"type": "x"}}},
        "metadata": {"source": "me"}}, "writes": [{"channel": "w", "value": {"json": "yes"}}]}"""
    request = await from_json(pb.SaveCheckpointRequest, JsonText(text))
    assert request.checkpoint.state.extras["a"].data == b"[1]"
    assert request.checkpoint.metadata_json == b'{"source":"me"}'
    assert request.writes[0].value.data == b'"yes"'
    frames = b'{"frames": [{"id": 1, "save": %s}]}' % text
    exchange = await from_json(pb.ExchangeRequest, JsonText(frames))
    assert exchange.frames[0].save == request
    listing = await from_json(pb.ListCheckpointsRequest, JsonText(b'{"filter": {"step": 1}}'))
    assert listing.filter_json == b'{"step":1}'
    change = await from_json(store.PutItemsRequest, JsonText(b'{"changes": [{"value": {"n": 1}}]}'))
    assert change.changes[0].value_json == b'{"n":1}'


def test_the_names_of_json_are_free_in_the_contract() -> None:
    messages, seen = [], set()
    for name in {path.split(".")[2].partition("/")[0] for path in POLICY}:
        file = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        service = import_module(f"tuskpoint.v1.{file}_pb2").DESCRIPTOR.services_by_name[name]
        for method in service.methods:
            messages += [method.input_type, method.output_type]
    while messages:
        message = messages.pop()
        if message.full_name not in seen:
            seen.add(message.full_name)
            names = {field.name for field in message.fields}
            taken = {name for name in names if name.endswith("_json")}
            assert not {name.removesuffix("_json") for name in taken} & names, message.full_name
            messages += [field.message_type for field in message.fields if field.message_type]
    assert "tuskpoint.v1.Value" in seen
