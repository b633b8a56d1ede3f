"""Parsing a form returns the parts that the form was built from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint_emulators.walrus.requests.multipart import MalformedForm, Part, boundary_of, parts

BOUNDARY = b"b"

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters='"\\\r\n'), max_size=20)
# Line breaks, dashes and the boundary itself, in all orders, but never a delimiter.
CONTENTS = (
    st.lists(st.sampled_from([b"\r", b"\n", b"-", b"b", b"x"]), max_size=12)
    .map(b"".join)
    .filter(lambda content: b"\r\n--b" not in b"\r\n" + content + b"\r\n")
)


def form(pairs: list[tuple[str, bytes]]) -> bytes:
    pieces = [
        b'--b\r\nContent-Disposition: form-data; name="' + name.encode() + b'"\r\n\r\n' + content
        for name, content in pairs
    ]
    return b"\r\n".join([*pieces, b"--b--\r\n"])


@given(st.lists(st.tuples(NAMES, CONTENTS), max_size=5))
def test_parts_are_what_went_in(pairs: list[tuple[str, bytes]]) -> None:
    assert parts(form(pairs), BOUNDARY) == [Part(name, content) for name, content in pairs]


@given(st.lists(st.tuples(NAMES, CONTENTS), min_size=1, max_size=3), st.data())
def test_form_without_its_end_is_refused(
    pairs: list[tuple[str, bytes]], data: st.DataObject
) -> None:
    whole = form(pairs)
    end = data.draw(st.integers(0, len(whole) - len("--\r\n") - 1))
    with pytest.raises(MalformedForm):
        parts(whole[:end], BOUNDARY)


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('form-data; name="a b"', "a b"),
        ("form-data; name=plain; filename=x", "plain"),
        ('form-data; filename="name=no"; name="yes"', "yes"),
        ('form-data; name="a\\"b"', 'a"b'),
        ('form-data; filename="x"', ""),
    ],
)
def test_name_is_found_among_the_parameters(disposition: str, name: str) -> None:
    body = f"--b\r\nX: y\r\ncontent-disposition: {disposition}\r\n\r\n1\r\n--b--".encode()
    assert parts(body, BOUNDARY) == [Part(name, b"1")]


def test_text_before_the_first_delimiter_is_skipped() -> None:
    assert parts(b"preamble\r\n" + form([("a", b"1")]), BOUNDARY) == [Part("a", b"1")]


@pytest.mark.parametrize(
    "body", [b"", b"no form", b"--bx\r\n", b"--b\r\n\r\n1\r\n--b--", b"--b\r\nX: y\r\n--b--"]
)
def test_what_is_no_form_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedForm):
        parts(body, BOUNDARY)


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data; charset=utf-8; Boundary="a b"', b"a b"),
    ],
)
def test_boundary_is_read_from_the_content_type(content_type: str, boundary: bytes) -> None:
    assert boundary_of(content_type) == boundary


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain; boundary=b", "multipart/form-data", "multipart/form-data; x=y"],
)
def test_content_type_of_another_kind_is_refused(content_type: str) -> None:
    with pytest.raises(MalformedForm):
        boundary_of(content_type)
