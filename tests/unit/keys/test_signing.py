"""Only the right key verifies the signature of a hand-off."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.lineage import Descriptor
from tuskpoint_server.keys.signing import Signer, check, signed_bytes

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
    said = signed_bytes(Descriptor("a:b", "a", "b", "c", "d", "", "é"))
    assert said == (
        b"tuskpoint handoff v1\n\0\0\0\1a\0\0\0\1b\0\0\0\1c\0\0\0\1d\0\0\0\0\0\0\0\2\xc3\xa9"
    )


@pytest.mark.parametrize("field", SIGNED)
def test_a_changed_field_is_found(field: str) -> None:
    made = Signer([NEW]).sign(DESCRIPTOR)
    changed = replace(made, **{field: getattr(made, field) + "x"})
    assert "its signature was not made by" in problem(changed)


def test_text_that_moves_to_the_next_field_is_found() -> None:
    made = Signer([NEW]).sign(replace(DESCRIPTOR, thread_id="ab", checkpoint_id="c"))
    assert "was not made by" in problem(replace(made, thread_id="a", checkpoint_id="bc"))


_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
Point = tuple[int, int]


def _sum(first: Point, second: Point) -> Point:
    """Add points of the curve of RFC 8032, section 5.1."""
    (x1, y1), (x2, y2) = first, second
    product = _D * x1 * x2 * y1 * y2 % _P
    x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, _P)
    return x % _P, (y1 * y2 + x1 * x2) * pow(1 - product, -1, _P) % _P


def _with_ordinate(y: int) -> Point | None:
    """Return a point with this second coordinate; `None` if the curve has no such point."""
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    for root in (1, pow(2, (_P - 1) // 4, _P)):
        x = pow(square, (_P + 3) // 8, _P) * root % _P
        if x * x % _P == square:
            return x, y
    return None


def _of_small_order() -> set[int]:
    """Return the second coordinates of the points whose order divides 8."""
    ordinates = set[int]()
    order = 2**252 + 27742317777372353535851937790883648493
    # half of all numbers belong to a point, and most of these points have a large order
    for y in range(2, 40):
        point = _with_ordinate(y)
        if point is None:
            continue
        torsion, factor = (0, 1), order
        while factor:
            if factor & 1:
                torsion = _sum(torsion, point)
            point, factor = _sum(point, point), factor >> 1
        ordinates.add(torsion[1])
    return ordinates


def test_a_key_of_small_order_verifies_nothing() -> None:
    ordinates = _of_small_order()
    assert len(ordinates) == 5
    assert all((point := _with_ordinate(y)) and _doubled(point, 3) == (0, 1) for y in ordinates)
    encodings = {y + more for y in ordinates for more in (0, _P) if y + more < 1 << 255}
    for ordinate in encodings:
        for sign in (0, 1 << 255):
            signer = (ordinate + sign).to_bytes(32, "little").hex()
            # one of these signatures fits some messages, or all
            for begin in (signer, f"01{'00' * 31}"):
                forged = replace(DESCRIPTOR, signer=signer, signature=begin + "00" * 32)
                for number in range(8):
                    assert "was not made by" in problem(replace(forged, to_agent=str(number)))


def _doubled(point: Point, times: int) -> Point:
    for _ in range(times):
        point = _sum(point, point)
    return point


def test_another_signer_is_found_and_so_is_a_signature_that_is_none() -> None:
    made = Signer([NEW]).sign(DESCRIPTOR)
    [other] = Signer([OLD]).public
    assert f"was not made by {other}" in problem(replace(made, signer=other))
    assert "was not made by" in problem(replace(made, signature="00" * 64))
    assert "was not made by" in problem(replace(made, signer="ff" * 32))


def test_who_is_required_has_to_have_signed() -> None:
    [other] = Signer([OLD]).public
    made = Signer([NEW]).sign(DESCRIPTOR)
    assert f"it is signed by {made.signer}, and another signer" in problem(made, other)
    assert "it is not signed, and another signer" in problem(DESCRIPTOR, other)
    check(DESCRIPTOR)


def test_a_key_may_be_added_without_invalidating_the_signature() -> None:
    check(replace(Signer([NEW]).sign(DESCRIPTOR), key="cd" * 32))
    check(replace(Signer([NEW]).sign(DESCRIPTOR), sealed_key="YWdl"))
