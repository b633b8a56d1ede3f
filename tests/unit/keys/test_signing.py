"""Signatures of hand-offs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.lineage import Descriptor
from tuskpoint_server.keys.signing import Signer, check, signed

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
DESCRIPTOR = Descriptor("t:1", "t", "1", "the-blob", "ab" * 32, "writer", "Where it stands. é")
SIGNED = ("thread_id", "checkpoint_id", "blob_id", "blob_sha256", "to_agent", "summary")


def problem(descriptor: Descriptor, *required: str) -> str:
    with pytest.raises(Refusal) as caught:
        check(descriptor, required)
    assert caught.value.reason is Reason.SIGNATURE_REFUSED
    assert caught.value.metadata["signer"] == descriptor.signer
    return str(caught.value)


def test_a_signature_is_of_the_first_key_and_always_the_same() -> None:
    signer = Signer([NEW, OLD])
    made = signer.sign(DESCRIPTOR)
    assert made == signer.sign(DESCRIPTOR)
    assert made.signer == signer.public[0] != signer.public[1]
    assert signer.public[1] == Signer([OLD]).public[0]
    check(made)
    check(made, [signer.public[1], made.signer])


def test_what_is_signed_is_what_the_contract_says() -> None:
    said = signed(Descriptor("a:b", "a", "b", "c", "d", "", "é"))
    assert said == (
        b"tuskpoint handoff v1\n\0\0\0\1a\0\0\0\1b\0\0\0\1c\0\0\0\1d\0\0\0\0\0\0\0\2\xc3\xa9"
    )


@pytest.mark.parametrize("field", SIGNED)
def test_a_changed_field_is_found(field: str) -> None:
    made = Signer([NEW]).sign(DESCRIPTOR)
    changed = replace(made, **{field: getattr(made, field) + "x"})
    assert "its signature is not that of" in problem(changed)


def test_text_that_moves_to_the_next_field_is_found() -> None:
    made = Signer([NEW]).sign(replace(DESCRIPTOR, thread_id="ab", checkpoint_id="c"))
    assert "is not that of" in problem(replace(made, thread_id="a", checkpoint_id="bc"))


def test_another_signer_is_found_and_so_is_a_signature_that_is_none() -> None:
    made = Signer([NEW]).sign(DESCRIPTOR)
    [other] = Signer([OLD]).public
    assert f"is not that of {other}" in problem(replace(made, signer=other))
    assert "is not that of" in problem(replace(made, signature="00" * 64))
    assert "is not that of" in problem(replace(made, signer="ff" * 32))


def test_who_is_required_has_to_have_signed() -> None:
    [other] = Signer([OLD]).public
    made = Signer([NEW]).sign(DESCRIPTOR)
    assert f"it is signed by {made.signer}, and another signer" in problem(made, other)
    assert "it is not signed, and another signer" in problem(DESCRIPTOR, other)
    check(DESCRIPTOR)


def test_a_key_may_be_added_without_invalidating_the_signature() -> None:
    check(replace(Signer([NEW]).sign(DESCRIPTOR), key="cd" * 32))
    check(replace(Signer([NEW]).sign(DESCRIPTOR), sealed_key="YWdl"))
