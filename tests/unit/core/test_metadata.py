"""Metadata is stored byte for byte, must be a JSON object, and is filtered as a whole."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint.audit.formats.stored import is_json_object
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.state import MAX_DEPTH, matches, parse_metadata, parse_object

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON))
def test_the_bytes_are_kept(metadata: dict[str, object]) -> None:
    try:
        raw = json.dumps(metadata, allow_nan=False, indent=3).encode()
    except ValueError:
        return
    assert parse_metadata(raw, "metadata_json").raw == raw


@pytest.mark.parametrize(
    "raw",
    [b"[]", b"1", b"null", b'"text"', b"{", b"\xff", b'{"a": NaN}', b'{"a": -Infinity}', b"{}{}"],
)
def test_anything_but_a_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        parse_object(raw, "checkpoint.metadata_json")
    assert refused.value.reason is Reason.METADATA_NOT_JSON
    assert refused.value.violations[0].field == "checkpoint.metadata_json"


def test_nesting_without_bounds_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        parse_object(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "metadata_json")
    assert refused.value.reason is Reason.METADATA_NOT_JSON


def nested(levels: int) -> bytes:
    return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def test_the_bound_of_nesting_is_one_that_an_audit_has_too() -> None:
    raw = nested(MAX_DEPTH)
    assert parse_metadata(raw, "metadata_json").raw == raw
    assert is_json_object(raw)
    assert parse_object(b'{"a":[%s]}' % b",".join([b"{}"] * 2 * MAX_DEPTH), "metadata_json")
    with pytest.raises(Refusal, match="nested too deeply"):
        parse_metadata(nested(MAX_DEPTH + 1), "metadata_json")


def test_fields_that_the_service_reads() -> None:
    metadata = parse_metadata(b'{"run_id": "r1", "parents": {"": "c1", "a": "c2"}}', "m")
    assert (metadata.run_id, metadata.root_id) == ("r1", "c1")


@pytest.mark.parametrize("raw", [b"", b'{"run_id": 7, "parents": []}', b'{"parents": {"": null}}'])
def test_fields_of_another_type_are_not_read(raw: bytes) -> None:
    metadata = parse_metadata(raw, "m")
    assert (metadata.run_id, metadata.root_id) == ("", "")


@pytest.mark.parametrize(
    ("stored", "wanted", "expected"),
    [
        ('{"a": 1}', {}, True),
        ('{"a": 1}', {"a": 1}, True),
        ('{"a": 1}', {"a": 2}, False),
        ('{"a": true}', {"a": 1}, True),
        ('{"a": {"b": 1, "c": 2}}', {"a": {"b": 1}}, False),
        ('{"a": [1, 2]}', {"a": [1]}, False),
        ('{"a": null}', {"a": None}, True),
        ("{}", {"a": None}, False),
        ('{"a": {"b": 1}}', {"a.b": 1}, False),
        ('{"a.b": 1}', {"a.b": 1}, True),
        ('{"a": 1, "b": 2}', {"a": 1, "b": 2}, True),
        ('{"a": 1}', {"a": 1, "b": 2}, False),
    ],
)
def test_filter(stored: str, wanted: dict[str, object], expected: bool) -> None:
    assert matches(stored.encode(), wanted) is expected


@pytest.mark.parametrize(
    ("stored", "wanted", "expected"),
    [
        ('{"a": 1}', {}, True),
        ('{"a": 1, "b": 2}', {"a": 1}, True),
        ('{"a": 1}', {"a": 1, "b": 2}, False),
        ('{"a": 1}', {"a": 1.0}, True),
        ('{"a": 1.5}', {"a": 1}, False),
        ('{"a": true}', {"a": 1}, False),
        ('{"a": 1}', {"a": True}, False),
        ('{"a": 0}', {"a": False}, False),
        ('{"a": true}', {"a": True}, True),
        ('{"a": "1"}', {"a": 1}, False),
        ('{"a": null}', {"a": None}, True),
        ("{}", {"a": None}, False),
        ('{"a": 0}', {"a": None}, False),
        ('{"a": ""}', {"a": None}, False),
        ('{"a": [1, {"b": [true]}]}', {"a": [1.0, {"b": [True]}]}, True),
        ('{"a": [1, {"b": [true]}]}', {"a": [1, {"b": [1]}]}, False),
        ('{"a": [1, 2]}', {"a": [1]}, False),
        ('{"a": [1, 2]}', {"a": [2, 1]}, False),
        ('{"a": []}', {"a": {}}, False),
        ('{"a": {"b": 1, "c": 2}}', {"a": {"b": 1}}, False),
        ('{"a": {"c": 2, "b": 1}}', {"a": {"b": 1, "c": 2}}, True),
        ('{"a": {"b": 1}}', {"a.b": 1}, False),
        ('{"a": 9007199254740993}', {"a": 9007199254740992.0}, False),
    ],
)
def test_typed_filter(stored: str, wanted: dict[str, object], expected: bool) -> None:
    assert matches(stored.encode(), wanted, typed=True) is expected


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=3))
def test_metadata_matches_itself(metadata: dict[str, object]) -> None:
    raw = json.dumps(metadata).encode()
    assert matches(raw, json.loads(raw), typed=True)


def test_deep_values_are_compared() -> None:
    depth = 900
    raw = ('{"a":' + "[" * depth + "1" + "]" * depth + "}").encode()
    assert matches(raw, json.loads(raw), typed=True)
    assert not matches(raw, json.loads(raw.replace(b"1", b"true")), typed=True)
