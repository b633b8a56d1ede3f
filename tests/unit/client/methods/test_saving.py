"""A save chooses its parent, its versions and the values to send; no server is needed."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint import Client, errors
from tuskpoint._messages.arguments import encode_json, encode_state
from tuskpoint._messages.checkpoints.ids import mint, new_checkpoint_id
from tuskpoint._messages.checkpoints.saving import (
    Draft,
    Memory,
    next_version,
    value_digest,
)
from tuskpoint._messages.requests import ref
from tuskpoint._sync.calls import SyncCalls
from tuskpoint._sync.saving import save_draft
from tuskpoint.v1.checkpoint_pb2 import DURABILITY_JOURNALED, Checkpoint, CheckpointRef
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest, SaveCheckpointResponse
from tuskpoint.v1.value_pb2 import Channel, Value, Version
from tuskpoint_server.core.lineage import mint_checkpoint_id


def draft(state: Mapping[str, Any], **changes: Any) -> Draft:
    fields: dict[str, Any] = {
        "thread_id": "t",
        "checkpoint_ns": "",
        "values": encode_state(state),
        "checkpoint_id": None,
        "parent": None,
        "expected_head": None,
        "metadata_json": b"",
        "summary": "",
        "label": "",
        "agent_id": "",
        "durability": DURABILITY_JOURNALED,
    }
    return Draft(**{**fields, **changes})


class Service:
    """A thread with one namespace, in the form that the service stores."""

    def __init__(self) -> None:
        self.stored: dict[str, Checkpoint] = {}
        self.requests: list[SaveCheckpointRequest] = []
        self.loads = 0
        self.refuse: list[errors.TuskPointError] = []

    @property
    def head(self) -> str:
        return max(self.stored, default="")

    def get_checkpoint(self, ref: CheckpointRef) -> Checkpoint | None:
        self.loads += 1
        return self.stored.get(ref.checkpoint_id or self.head)

    def save_checkpoint(self, request: SaveCheckpointRequest) -> SaveCheckpointResponse:
        sent = SaveCheckpointRequest()
        sent.CopyFrom(request)
        self.requests.append(sent)
        if self.refuse:
            raise self.refuse.pop(0)
        if sent.HasField("expected_head") and sent.expected_head != self.head:
            raise errors.Conflict("moved", status="ABORTED", reason="HEAD_MOVED")
        checkpoint = Checkpoint()
        checkpoint.CopyFrom(sent.checkpoint)
        if sent.continue_latest:
            stored = self.stored.get(checkpoint.ref.checkpoint_id)
            checkpoint.parent_checkpoint_id = stored.parent_checkpoint_id if stored else self.head
        if sent.raise_id and checkpoint.ref.checkpoint_id <= self.head:
            checkpoint.ref.checkpoint_id = new_checkpoint_id(self.head)
        self.stored[checkpoint.ref.checkpoint_id] = checkpoint
        parent = checkpoint.parent_checkpoint_id if sent.continue_latest else ""
        return SaveCheckpointResponse(ref=checkpoint.ref, parent_checkpoint_id=parent)

    def save(self, memory: Memory, state: Mapping[str, Any], **changes: Any) -> Checkpoint:
        return self.stored[save_draft(cast(SyncCalls, self), draft(state, **changes), memory)]


def contents(checkpoint: Checkpoint) -> dict[str, tuple[int, bool]]:
    """Return each channel's version and whether its value was sent."""
    return {
        channel.name: (channel.version.integer, channel.HasField("value"))
        for channel in checkpoint.state.channels
    }


def test_the_first_save_is_a_root() -> None:
    service = Service()
    saved = service.save(Memory(), {"a": 1, "b": None})
    assert saved.parent_checkpoint_id == ""
    assert contents(saved) == {"a": (1, True), "b": (1, True)}
    request = service.requests[0]
    assert (request.continue_latest, request.raise_id) == (True, True)
    assert not request.HasField("expected_head")
    assert service.loads == 0


def test_unchanged_values_are_not_sent_again() -> None:
    service, memory = Service(), Memory()
    first = service.save(memory, {"a": 1, "b": [1], "gone": 0})
    second = service.save(memory, {"a": 1, "b": [1, 2], "new": 0})
    assert second.parent_checkpoint_id == first.ref.checkpoint_id
    assert contents(second) == {"a": (1, False), "b": (2, True), "new": (2, True)}
    assert second.state.channels[0].digest == value_digest("json", b"1")
    assert list(second.state.updated_channels.names) == ["b", "new"]
    assert service.requests[1].checkpoint.parent_checkpoint_id == first.ref.checkpoint_id
    assert service.loads == 0


def test_every_client_follows_the_latest_in_one_call() -> None:
    service, mine, theirs = Service(), Memory(), Memory()
    service.save(mine, {"a": 1})
    other = service.save(theirs, {"a": 2})
    last = service.save(mine, {"a": 2, "b": 1})
    assert last.parent_checkpoint_id == other.ref.checkpoint_id
    assert [len(service.requests), service.loads] == [3, 0]
    assert service.requests[1].checkpoint.parent_checkpoint_id == ""
    # The service chose the parent and so the versions: the next save leaves both to the service.
    service.save(mine, {"a": 2, "b": 2})
    again = service.requests[-1]
    assert (again.continue_latest, again.checkpoint.parent_checkpoint_id) == (True, "")
    assert [channel.HasField("value") for channel in again.checkpoint.state.channels] == [
        False,
        True,
    ]
    assert again.checkpoint.ref.checkpoint_id > last.ref.checkpoint_id


def test_versions_that_the_service_chose_are_loaded_for_a_save_that_names_its_parent() -> None:
    service, memory = Service(), Memory()
    service.save(Memory(), {"a": 1})
    head = service.save(memory, {"a": 2}).ref.checkpoint_id
    service.save(memory, {"a": 2}, parent=head)
    assert service.loads == 1
    service.save(memory, {"a": 2}, parent=service.head)
    assert service.loads == 1


def test_an_id_that_the_caller_chose_is_not_raised() -> None:
    service = Service()
    service.save(Memory(), {"a": 1}, checkpoint_id="cp-1")
    assert (service.requests[0].continue_latest, service.requests[0].raise_id) == (True, False)


@pytest.mark.parametrize("refusal", [errors.ThreadDeleted, errors.Conflict])
def test_a_refused_save_is_not_sent_again(refusal: type[errors.TuskPointError]) -> None:
    service, memory = Service(), Memory()
    service.save(memory, {"a": 1})
    service.refuse = [refusal("no")]
    with pytest.raises(refusal):
        service.save(memory, {"a": 1})
    assert len(service.requests) == 2
    assert memory.get("t", "") is None


def test_the_callers_own_expectation_is_kept() -> None:
    service, memory = Service(), Memory()
    service.save(memory, {"a": 1})
    with pytest.raises(errors.Conflict):
        service.save(memory, {"a": 2}, expected_head="1")
    assert len(service.requests) == 2
    head = service.save(Memory(), {"a": 2}).ref.checkpoint_id
    saved = service.save(memory, {"a": 2}, expected_head=head)
    assert (saved.parent_checkpoint_id, contents(saved)) == (head, {"a": (1, False)})
    with pytest.raises(errors.Conflict):
        service.save(memory, {"a": 2}, expected_head="")


def test_a_named_parent_is_followed_without_a_guard() -> None:
    service, memory = Service(), Memory()
    first = service.save(memory, {"a": 1})
    service.save(memory, {"a": 2})
    fork = service.save(memory, {"a": 1}, parent=first.ref.checkpoint_id)
    assert fork.parent_checkpoint_id == first.ref.checkpoint_id
    assert contents(fork) == {"a": (1, False)}
    assert not service.requests[-1].HasField("expected_head")
    root = service.save(memory, {"a": 1}, parent="")
    assert (root.parent_checkpoint_id, contents(root)) == ("", {"a": (1, True)})
    unknown = service.save(memory, {"a": 1}, parent="0-not-there")
    assert (unknown.parent_checkpoint_id, contents(unknown)) == ("0-not-there", {"a": (1, True)})


def test_saving_an_id_again_does_not_make_it_its_own_parent() -> None:
    service, memory = Service(), Memory()
    service.save(memory, {"a": 0}, checkpoint_id="1")
    service.save(memory, {"a": 1}, checkpoint_id="2")
    again = service.save(memory, {"a": 1}, checkpoint_id="2")
    assert (again.parent_checkpoint_id, contents(again)) == ("1", {"a": (2, False)})
    again = service.save(Memory(), {"a": 1}, checkpoint_id="2")
    assert again.parent_checkpoint_id == "1"


def test_missing_values_are_sent_inline_unnoticed() -> None:
    service, memory = Service(), Memory()
    service.save(memory, {"a": 1, "b": 2, "c": 3})
    service.refuse = [errors.ValuesMissing("m", channels=["a"])]
    assert contents(service.save(memory, {"a": 1, "b": 2, "c": 3})) == {
        "a": (1, True),
        "b": (1, False),
        "c": (1, False),
    }
    service.refuse = [errors.ValuesMissing("m", channels=["a"]), errors.ValuesMissing("m")]
    saved = service.save(memory, {"a": 1, "b": 2, "c": 3})
    assert all(sent for _, sent in contents(saved).values())


def test_a_thread_of_langgraph_is_continued_in_its_versioning() -> None:
    service = Service()
    text = f"{7:032}.0.123"
    channels = [
        Channel(name="a", version=Version(text=text), value=Value(type="msgpack", data=b"\x01")),
        Channel(name="b", version=Version(text=f"{3:032}.0.5")),
    ]
    head = Checkpoint(ref=CheckpointRef(thread_id="t", checkpoint_id="1"))
    head.state.channels.extend(channels)
    service.stored["1"] = head
    saved = service.save(Memory(), {"a": 1}, parent="1")
    (version,) = [channel.version.text for channel in saved.state.channels]
    assert version > text
    assert version.startswith(f"{8:032}.")


@pytest.mark.parametrize("name", ["thread_id", "checkpoint_ns", "summary", "label", "agent_id"])
def test_text_that_is_not_unicode_is_refused(name: str) -> None:
    half = "Gr\ud83d"
    arguments: dict[str, Any] = {"thread_id": "t", "state": {"a": 1}, name: half}
    with Client("127.0.0.1:1") as client, pytest.raises(errors.InvalidRequest) as caught:
        client.save(**arguments)
    assert caught.value.metadata == {"field": name}
    with pytest.raises(errors.InvalidRequest, match="surrogate"):
        ref(half, "", None)


def test_versions_that_cannot_be_counted_are_refused() -> None:
    with pytest.raises(errors.InvalidRequest, match="framework"):
        next_version([Version(text="v1")])
    with pytest.raises(errors.InvalidRequest, match="framework"):
        next_version([Version(text="1"), Version(integer=1)])


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1))
def test_a_new_version_is_above_all(numbers: list[int]) -> None:
    assert next_version([Version(integer=number) for number in numbers]).integer > max(numbers)
    floats = [number / 8 for number in numbers]
    assert next_version([Version(number=number) for number in floats]).number > max(floats)


def test_the_memory_is_bounded_and_forgets_threads() -> None:
    from tuskpoint._messages.checkpoints.saving import KnownCheckpoint

    memory = Memory(size=2)
    for number in range(3):
        memory.put("t", str(number), KnownCheckpoint(str(number)))
    assert memory.get("t", "0") is None
    assert memory.get("t", "2") == KnownCheckpoint("2")
    memory.put("u", "", KnownCheckpoint("3"))
    assert memory.get("t", "1") is None
    memory.forget("t")
    assert memory.get("t", "2") is None
    assert memory.get("u", "") == KnownCheckpoint("3")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(json_values)
def test_a_value_is_read_as_it_was_written(value: Any) -> None:
    assert json.loads(encode_json("state", value)) == value


@pytest.mark.parametrize(
    "state",
    [
        {"a": object()},
        {"a": float("nan")},
        {"a": b"bytes"},
        {"a": "\ud800"},
        {"": 1},
        {1: 1},
        {"\ud800": 1},
        None,
        [("a", 1)],
    ],
)
def test_a_state_that_is_not_json_is_refused(state: Any) -> None:
    with pytest.raises(errors.InvalidRequest, match="state"):
        encode_state(state)


looped: dict[str, Any] = {"x": [1]}
looped["x"].append(looped)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1: "x"}, "state['a']: the key 1 is not a string, as keys in JSON are"),
        ([{"b": {None: 1}}], "state['a'][0]['b']: the key None is not a string"),
        ([{"b": {(1, 2): 1}}], "state['a'][0]['b']: the key (1, 2) is not a string"),
        ((0, {True: 1}), "state['a'][1]: the key True is not a string"),
        ({"b": [1, {2}]}, "state['a']['b'][1]: it cannot be written as JSON: Object of type set"),
        ({"b": [1.0, float("nan")]}, "state['a']['b'][1]: it cannot be written as JSON"),
        ({"b": {"c": "\ud800"}}, "state['a']['b']['c']: it cannot be written as JSON"),
        (looped, "state['a']: it cannot be written as JSON: Circular"),
        ([10**5000], "state['a']: it cannot be written as JSON: Exceeds the limit"),
    ],
)
def test_the_refusal_of_a_state_has_the_path(value: Any, message: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=re.escape(message)):
        encode_state({"before": 1, "a": value})


def test_a_state_that_is_too_deep_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(errors.InvalidRequest, match=r"state\['a'\]: it cannot be written"):
        encode_state({"a": deep})


class Text(str):
    """A subclass of `str`."""


@pytest.mark.parametrize(("value", "path"), [([{"b": (1, 2)}], "[0]['b']"), ((), "")])
def test_only_a_strict_save_refuses_tuples(value: Any, path: str) -> None:
    listed = json.loads(json.dumps(value))
    assert json.loads(encode_state({"a": value})["a"]) == listed
    message = f"state['a']{path}: it is a tuple, which would come back as a list"
    with pytest.raises(errors.InvalidRequest, match=re.escape(message)):
        encode_state({"a": value}, strict=True)
    plain = {Text("k"): [Text("v"), OrderedDict(k=1)]}
    assert json.loads(encode_state({"a": plain}, strict=True)["a"]) == plain


def test_an_id_of_ones_own_is_followed_too() -> None:
    assert new_checkpoint_id("") > "1"
    first = new_checkpoint_id("cp-001")
    second = new_checkpoint_id(first)
    assert "cp-001" < first < second < "cp-002"
    assert len(first) == len(second)
    with pytest.raises(errors.InvalidRequest, match="set checkpoint_id"):
        new_checkpoint_id("z" * 92)


@given(st.integers(0, 2**55), st.integers(0, 2**62 - 1), st.text("1fz-", max_size=91))
def test_the_server_mints_the_same(now_us: int, entropy: int, above: str) -> None:
    ticks = now_us * 10 + 0x01B21DD213814000
    for _ in range(3):
        minted = mint(ticks, entropy, above)
        assert minted == mint_checkpoint_id(now_us, entropy, above)
        above = minted
