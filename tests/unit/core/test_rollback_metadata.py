"""A rollback keeps the spelling of the earlier checkpoint's metadata, without its run."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.lineage import rollback_metadata
from tuskpoint_server.core.state import parse_metadata

texts = st.text(st.characters(codec="utf-8"), max_size=8)
documents = st.dictionaries(
    st.one_of(texts, st.sampled_from(["run_id", "parents", "source", ""])),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=6,
    ).filter(lambda document: "inf" not in repr(document)),
)


@given(documents, st.booleans(), st.sampled_from([None, 1]))
def test_all_but_the_run_stays(
    document: dict[str, object], ascii_only: bool, indent: int | None
) -> None:
    raw = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode()
    made = json.loads(rollback_metadata(raw, "", ""))
    assert made == {name: value for name, value in document.items() if name != "run_id"}


@given(documents)
def test_a_subgraph_is_tied_to_the_new_root(document: dict[str, object]) -> None:
    made = rollback_metadata(json.dumps(document).encode(), "keeper", "root")
    parents = document.get("parents")
    before = parents if isinstance(parents, dict) else {}
    assert json.loads(made)["parents"] == {**before, "": "root"}
    assert parse_metadata(made, "metadata_json").root_id == "root"


@pytest.mark.parametrize("spelled", ["1e999", "-1e999", "1.10", "0.1000000000000000055511151231"])
def test_numbers_stay_as_they_are_spelled(spelled: str) -> None:
    raw = f'{{"run_id": "r", "cost": {spelled}, "parents": {{"a": {spelled}}}}}'.encode()
    assert f'"cost":{spelled},'.encode() in rollback_metadata(raw, "", "")
    assert f'{{"a":{spelled},"":"root"}}'.encode() in rollback_metadata(raw, "keeper", "root")


def test_metadata_at_its_limit_does_not_outgrow_it() -> None:
    around = b'{"note":""}'
    raw = around[:-2] + "語".encode() * ((LIMITS.max_metadata - len(around)) // 3) + around[-2:]
    assert len(rollback_metadata(raw, "", "")) <= LIMITS.max_metadata


def test_half_of_a_surrogate_pair_stays() -> None:
    raw = b'{"\\ud800": "\\udfff", "run_id": "r"}'
    assert json.loads(rollback_metadata(raw, "", "")) == json.loads(b'{"\\ud800": "\\udfff"}')
