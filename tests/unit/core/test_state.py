"""The stored form of a state is read back unchanged, and digests distinguish values."""

import hashlib
import math

from hypothesis import given
from hypothesis import strategies as st

from tuskpoint.v1 import checkpoint_pb2
from tuskpoint_server.core.model import Channel, Value, Version
from tuskpoint_server.core.state import decode_channels, decode_state, encode_state
from tuskpoint_server.core.values import value_digest

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
VERSION = (
    TEXT
    | st.integers(min_value=-(2**63), max_value=2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUE = st.builds(Value, TEXT, st.binary())
CONTENT = st.none() | VALUE


def channel(name: str, version: Version | None, value: Value | None) -> Channel:
    if value is None:
        return Channel(name, version, None)
    return Channel(name, version, value_digest(value), len(value.data), value)


@given(st.dictionaries(TEXT, st.tuples(st.none() | VERSION, CONTENT)))
def test_round_trip(described: dict[str, tuple[Version | None, Value | None]]) -> None:
    frame = checkpoint_pb2.CheckpointState(schema_version=4, ts="now")
    frame.versions_seen["node"].channels["a"].integer = 3
    channels = tuple(channel(name, *content) for name, content in described.items())
    stored = encode_state(frame.SerializeToString(), channels)
    values = {value_digest(value): value for _, value in described.values() if value}

    state = decode_state(stored, values)
    assert state.channels == channels
    assert [type(channel.version) for channel in state.channels] == [
        type(version) for version, _ in described.values()
    ]
    assert checkpoint_pb2.CheckpointState.FromString(state.frame) == frame
    assert [channel.digest for channel in decode_channels(stored)] == [
        channel.digest for channel in channels
    ]


def test_an_integer_version_and_a_float_one_stay_apart() -> None:
    stored = encode_state(b"", [Channel("a", 1, None), Channel("b", 1.0, None)])
    first, second = decode_channels(stored)
    assert isinstance(first.version, int)
    assert isinstance(second.version, float)
    assert math.isclose(second.version, 1.0)


@given(VALUE, VALUE)
def test_different_values_have_different_digests(first: Value, second: Value) -> None:
    assert (value_digest(first) == value_digest(second)) is (first == second)


def test_the_digest_is_the_documented_one() -> None:
    assert value_digest(Value("json", b"1")) == hashlib.sha256(b"json\x001").digest()
