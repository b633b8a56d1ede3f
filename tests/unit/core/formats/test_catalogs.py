"""Catalogs are read back as they were stored; malformed catalogs are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.formats.rows import place, refused_or_read
from tuskpoint_server.archive.formats.catalogs import (
    FAN_OUT,
    Catalog,
    LiveRuns,
    Merge,
    decode_catalog,
    encode_catalog,
)
from tuskpoint_server.archive.formats.runs import RunRef
from tuskpoint_server.core.errors import Reason, Refusal

untimed = settings(deadline=None, max_examples=40)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
numbers = st.integers(0, 2**63 - 1)
positions = st.tuples(texts, texts, texts, texts)


@st.composite
def refs(draw: st.DrawFn) -> RunRef:
    first, last = sorted((draw(positions), draw(positions)))
    location = place(draw(names), draw(st.sampled_from(["", "b"])))
    return RunRef(location, first, last, draw(numbers), draw(numbers), draw(st.integers(0, 16)))


@st.composite
def catalogs(draw: st.DrawFn) -> Catalog:
    levels = draw(st.lists(st.lists(refs(), max_size=2), max_size=3))
    merges = []
    for number, level in enumerate(levels):
        if draw(st.booleans()):
            level += [draw(refs())] * FAN_OUT
            made = draw(st.lists(st.lists(refs(), max_size=2).map(tuple), max_size=2))
            ended = draw(st.one_of(st.none(), numbers))
            merges.append(Merge(number, draw(positions), ended, tuple(made)))
    return Catalog(
        draw(names),
        draw(names),
        draw(numbers),
        draw(numbers),
        draw(numbers),
        draw(st.one_of(st.none(), names.map(place))),
        LiveRuns(tuple(tuple(level) for level in levels), tuple(merges)),
    )


POSITION = ("t", "checkpoint", "", "c")
REF = RunRef(place("run"), POSITION, POSITION, 3, 900)
MERGED = LiveRuns(((REF,) * FAN_OUT,), (Merge(0, POSITION, 4, ((REF,), (REF,))),))
CATALOG = Catalog("tenant", "journal", 1, 7, 1_700, place("previous", "older"), MERGED)


@untimed
@given(catalogs())
def test_a_catalog_comes_back_with_its_places_settled(catalog: Catalog) -> None:
    data = encode_catalog(catalog)
    assert decode_catalog(data, "") == catalog
    assert encode_catalog(decode_catalog(data, "")) == data
    settled = encode_catalog(decode_catalog(data, "holder"))
    assert settled == data.replace(b'"blob_id":""', b'"blob_id":"holder"')


def test_a_catalog_spells_out_its_fields() -> None:
    ref = {
        "blob_id": "",
        "identifier": REF.location.identifier,
        "sha256": REF.location.sha256.hex(),
        "size_bytes": 3,
        "first": list(POSITION),
        "last": list(POSITION),
        "records": 3,
        "plain_bytes": 900,
        "height": 0,
    }
    assert json.loads(encode_catalog(CATALOG)) == {
        "format_version": 2,
        "kind": "catalog",
        "tenant": "tenant",
        "journal_id": "journal",
        "generation": 1,
        "number": 7,
        "create_time_us": 1_700,
        "previous": {
            "blob_id": "older",
            "identifier": place("previous").identifier,
            "sha256": place("previous").sha256.hex(),
            "size_bytes": 8,
        },
        "levels": [{"runs": [ref] * FAN_OUT}],
        "merges": [
            {
                "level": 0,
                "after": list(POSITION),
                "ended": 4,
                "made": [{"runs": [ref]}, {"runs": [ref]}],
            }
        ],
    }


@untimed
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        decode_catalog(data, "b")
    assert refused.value.reason is Reason.BLOB_MALFORMED


@untimed
@given(st.data())
def test_changed_and_cut_catalogs_are_refused_or_read(data: st.DataObject) -> None:
    whole = encode_catalog(CATALOG)
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with refused_or_read():
        decode_catalog(bytes(changed), "b")
    with pytest.raises(Refusal):
        decode_catalog(whole[: data.draw(st.integers(0, len(whole) - 1))], "b")


@pytest.mark.parametrize(
    ("catalog", "problem"),
    [
        (replace(CATALOG, tenant=""), "'tenant' is empty"),
        (replace(CATALOG, journal_id=""), "'journal_id' is empty"),
        (replace(CATALOG, runs=LiveRuns(MERGED.levels, MERGED.merges * 2)), "not in order"),
        (replace(CATALOG, runs=LiveRuns((), MERGED.merges)), "fewer than 8 runs"),
        (replace(CATALOG, runs=LiveRuns(((),) * 33)), "more than 32 levels"),
        (
            replace(CATALOG, runs=LiveRuns(((replace(REF, first=("u", "", "", "")),),))),
            "ends before it begins",
        ),
        (replace(CATALOG, runs=LiveRuns(((replace(REF, height=17),),))), "too high"),
        (replace(CATALOG, runs=LiveRuns(((replace(REF, first=("a",)),),))), "not a position"),
        (
            replace(
                CATALOG, runs=LiveRuns(MERGED.levels, (Merge(0, POSITION, 4, ((REF,) * 64,)),))
            ),
            "more runs than it could",
        ),
    ],
)
def test_contradictions_are_refused(catalog: Catalog, problem: str) -> None:
    with pytest.raises(Refusal, match=problem) as refused:
        decode_catalog(encode_catalog(catalog), "b")
    assert refused.value.reason is Reason.BLOB_MALFORMED


def test_another_document_or_version_is_refused() -> None:
    data = encode_catalog(CATALOG)
    with pytest.raises(Refusal, match="of kind 'manifest' where 'catalog' was expected"):
        decode_catalog(data.replace(b'"kind":"catalog"', b'"kind":"manifest"'), "b")
    with pytest.raises(Refusal, match="format_version is 3"):
        decode_catalog(data.replace(b'"format_version":2', b'"format_version":3'), "b")
