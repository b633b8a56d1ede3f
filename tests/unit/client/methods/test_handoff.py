"""Descriptors are read in all their forms, and adoptions survive a lost connection."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest

from tests.unit.client.faces import Face
from tests.unit.client.scripted_services import Refuse, ScriptedServices
from tuskpoint import (
    Adoption,
    AdoptProgress,
    Descriptor,
    InvalidDescriptor,
    InvalidRequest,
    ServerError,
)
from tuskpoint._messages.lineage.handoffs import KEYS, adopting, read_descriptor
from tuskpoint.v1 import handoff_service_pb2 as pb
from tuskpoint.v1.checkpoint_pb2 import (
    DURABILITY_CERTIFIED,
    DURABILITY_JOURNALED,
    CheckpointRef,
)

SAID = {
    "source": "t:1:2",
    "thread_id": "t:1",
    "checkpoint_id": "2",
    "blob_id": "blob",
    "blob_sha256": "0123456789abcdef" * 4,
    "to_agent": "",
    "summary": "Wrote “it” down.",
}
MESSAGE = pb.HandoffDescriptor(**SAID)
DESCRIPTOR = Descriptor(**SAID)
LOST = Refuse(grpc.StatusCode.UNAVAILABLE, "DRAINING")


def stage(kind: pb.AdoptStage, fetched: int = 0) -> pb.AdoptHandoffResponse:
    frame = pb.AdoptHandoffResponse(stage=kind, fetched_bytes=fetched)
    if kind == pb.ADOPT_STAGE_ADOPTED:
        frame.adoption.CopyFrom(
            pb.Adoption(
                adopted_from="t:1:2",
                new_thread_id="n",
                checkpoint_id="2",
                blob_id="own",
                verified=True,
            )
        )
    return frame


FETCHING = [stage(pb.ADOPT_STAGE_FETCHING, fetched) for fetched in (0, 10)]
FETCHED = stage(pb.ADOPT_STAGE_FETCHED, 20)
VERIFIED = stage(pb.ADOPT_STAGE_VERIFIED, 20)
ADOPTED = stage(pb.ADOPT_STAGE_ADOPTED, 20)
ADOPTION = Adoption("t:1:2", "n", "2", "own", verified=True)


FORMS: list[Any] = [
    DESCRIPTOR,
    SAID,
    json.dumps(SAID),
    json.dumps(SAID, ensure_ascii=False).encode(),
    DESCRIPTOR.to_json(),
    MESSAGE,
]


@pytest.mark.parametrize("given", FORMS, ids=lambda form: type(form).__name__)
def test_a_descriptor_is_taken_in_all_its_forms(given: Any) -> None:
    assert read_descriptor(given) == DESCRIPTOR


def test_a_descriptor_has_exactly_the_keys_of_the_contract() -> None:
    fields = [field.name for field in pb.HandoffDescriptor.DESCRIPTOR.fields]
    assert [*KEYS, "key", "signer", "signature", "sealed_key"] == fields
    assert DESCRIPTOR.as_dict() == SAID
    assert json.loads(DESCRIPTOR.to_json()) == SAID
    with_key = {**SAID, "key": "ab" * 32}
    assert read_descriptor(with_key).as_dict() == with_key
    assert "abab" not in repr(read_descriptor(with_key))
    signed = {**SAID, "signer": "cd" * 32, "signature": "ef" * 64}
    assert read_descriptor(signed).as_dict() == signed
    assert adopting(signed, None, "certified").descriptor.signature == signed["signature"]
    sealed = {**SAID, "sealed_key": "YWdlLQ=="}
    assert read_descriptor(json.dumps(sealed)).as_dict() == sealed
    assert adopting(sealed, None, "certified").descriptor.sealed_key == "YWdlLQ=="


WRONG: list[tuple[Any, str]] = [
    *(({key: text for key, text in SAID.items() if key != lost}, lost) for lost in KEYS),
    *(({**SAID, key: ""}, key) for key in KEYS if key not in ("to_agent", "summary")),
    *(({**SAID, key: 7}, key) for key in KEYS),
    ({**SAID, "vouched": "x"}, "vouched"),
    ({**SAID, "signer": "cd" * 32}, "signature"),
    ({**SAID, "signature": "ef" * 64}, "signature"),
    ({**SAID, "signer": "CD" * 32, "signature": "ef" * 64}, "signer"),
    ({**SAID, "signer": "cd" * 32, "signature": "ef" * 32}, "signature"),
    ({**SAID, "key": "ab"}, "64 lowercase hex"),
    ({**SAID, "sealed_key": "AAA"}, "sealed_key: it must be base64"),
    ({**SAID, "sealed_key": "AAAA\n"}, "sealed_key: it must be base64"),
    ({**SAID, "sealed_key": "AA-_"}, "sealed_key: it must be base64"),
    ({**SAID, "sealed_key": 7}, "sealed_key: it must be base64"),
    ({**SAID, "sealed_key": "AAAA" * 1025}, "at most 4096"),
    ({**SAID, "key": 7}, "64 lowercase hex"),
    ({**SAID, "blob_sha256": "0123456789ABCDEF" * 4}, "64 lowercase hex"),
    ({**SAID, "blob_sha256": SAID["blob_sha256"] + "\n"}, "64 lowercase hex"),
    ({**SAID, "blob_sha256": "ab"}, "64 lowercase hex"),
    ({**SAID, "source": "t:1:3"}, "source"),
    ({**SAID, "summary": "\ud800"}, "summary"),
    ("", "not JSON"),
    ("{", "not JSON"),
    ("[" * 100_000, "not JSON"),
    (b"\xff", "not JSON"),
    (DESCRIPTOR.to_json()[:-1] + ', "summary": ""}', "twice"),
    ("[]", "object"),
    ("null", "object"),
    (None, "object"),
    (7, "object"),
    (pb.HandoffDescriptor(), "source"),
]


@pytest.mark.parametrize(("given", "named"), WRONG)
def test_an_invalid_descriptor_is_refused_with_its_reason(given: Any, named: str) -> None:
    with pytest.raises(InvalidDescriptor, match=named) as caught:
        read_descriptor(given)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, InvalidRequest)
    assert caught.value.reason == "INVALID_FIELD"


async def test_an_invalid_descriptor_is_never_sent(services: ScriptedServices, face: Face) -> None:
    with pytest.raises(InvalidDescriptor):
        await face.call("adopt", {**SAID, "blob_sha256": ""}, "n")
    assert services.requests == []


async def test_a_handoff(services: ScriptedServices, face: Face) -> None:
    services.on("CreateHandoff", LOST)
    services.on("CreateHandoff", pb.CreateHandoffResponse(descriptor=MESSAGE))
    services.on("CreateHandoff", pb.CreateHandoffResponse(descriptor=MESSAGE))
    assert await face.call("handoff", "t:1", "2", "writer") == DESCRIPTOR
    assert await face.call("handoff", "t:1", None, None) == DESCRIPTOR
    first, second, third = services.requests
    assert first == second
    assert (first.ref, first.to_agent) == (
        CheckpointRef(thread_id="t:1", checkpoint_id="2"),
        "writer",
    )
    assert (third.ref.checkpoint_id, third.to_agent) == ("", "")
    assert first.request_id != third.request_id != ""


async def test_a_handoff_to_a_recipient(services: ScriptedServices, face: Face) -> None:
    sealed = pb.HandoffDescriptor(**SAID, sealed_key="YWdlLQ==")
    services.on("CreateHandoff", pb.CreateHandoffResponse(descriptor=sealed))
    made = await face.call("handoff", "t:1", recipient="age1...")
    assert made == read_descriptor({**SAID, "sealed_key": "YWdlLQ=="})
    (request,) = services.requests
    assert (request.recipient, request.include_key) == ("age1...", False)


async def test_a_descriptor_is_given_under_one_of_two_names(
    services: ScriptedServices, face: Face
) -> None:
    services.on("AdoptHandoff", VERIFIED, ADOPTED)
    assert await face.call("adopt", handoff_json=DESCRIPTOR.to_json()) == ADOPTION
    (request,) = services.requests
    assert (request.descriptor, request.new_thread_id) == (MESSAGE, "")
    assert request.durability == DURABILITY_CERTIFIED
    with pytest.raises(InvalidDescriptor, match="given twice"):
        await face.call("adopt", DESCRIPTOR, handoff_json=DESCRIPTOR)
    with pytest.raises(InvalidDescriptor, match="it is missing"):
        await face.call("adopt", new_thread_id="n")


async def test_an_adoption_is_sent_again_and_reports_nothing_twice(
    services: ScriptedServices, face: Face
) -> None:
    services.on("AdoptHandoff", *FETCHING, FETCHED, LOST)
    services.on("AdoptHandoff", LOST)
    services.on("AdoptHandoff", *FETCHING, FETCHED, VERIFIED, ADOPTED)
    reported: list[AdoptProgress] = []
    adopted = await face.call(
        "adopt", DESCRIPTOR.to_json(), on_progress=reported.append, durability="journaled"
    )
    assert adopted == ADOPTION
    assert reported == [
        AdoptProgress("fetching", 0),
        AdoptProgress("fetching", 10),
        AdoptProgress("fetched", 20),
        AdoptProgress("verified", 20),
        AdoptProgress("adopted", 20),
    ]
    first, second, third = services.requests
    assert first == second == third
    assert first.request_id
    assert (first.new_thread_id, first.durability) == ("", DURABILITY_JOURNALED)


async def test_an_adoption_is_complete_and_verified_or_none(
    services: ScriptedServices, face: Face
) -> None:
    services.on("AdoptHandoff", *FETCHING, FETCHED, VERIFIED)
    with pytest.raises(ServerError, match="without an adoption"):
        await face.call("adopt", DESCRIPTOR)
    unverified = pb.AdoptHandoffResponse()
    unverified.CopyFrom(ADOPTED)
    unverified.adoption.verified = False
    services.on("AdoptHandoff", unverified)
    with pytest.raises(ServerError, match="without an adoption"):
        await face.call("adopt", DESCRIPTOR)
