"""Records of a thread fold to the same manifest in any order of reading."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.formats.log import Log
from tests.unit.core.formats.rows import sha
from tuskpoint_server.archive.formats.manifests import (
    Manifest,
    decode_manifest,
    encode_manifest,
    fold,
    live_facts,
)
from tuskpoint_server.archive.formats.records import CheckpointRecord, MemberRecord, Record
from tuskpoint_server.core.model import BlobLocation

keys = st.tuples(st.sampled_from(["", "sub"]), st.sampled_from("abc"))
steps: st.SearchStrategy[Callable[[Log], None]] = st.one_of(
    keys.map(lambda key: lambda log: log.save(key)),
    keys.map(lambda key: lambda log: log.write(key)),
    keys.map(lambda key: lambda log: log.remove(key)),
    keys.map(lambda key: lambda log: log.fail(key)),
    keys.map(lambda key: lambda log: log.fill(key)),
    st.sampled_from("abc").map(lambda through: lambda log: log.end(through)),
    st.sampled_from("xy").map(lambda agent: lambda log: log.set_agent(agent)),
    st.sampled_from(
        [
            Log.flush,
            Log.flush,
            Log.flush,
            Log.hand_off,
            Log.relocate,
            Log.recover,
        ]
    ),
)


def played(chosen: list[Callable[[Log], None]]) -> Log:
    log = Log()
    for step in chosen:
        step(log)
    log.flush()
    return log


logs = st.lists(steps, max_size=40).map(played)
untimed = settings(deadline=None, max_examples=60)


def joined(runs: list[list[Record]]) -> list[Record]:
    return list(itertools.chain.from_iterable(runs))


@untimed
@given(logs)
def test_a_manifest_holds_the_last_flush(log: Log) -> None:
    log.expected.matches(fold("t", joined(log.runs)))


@untimed
@given(logs, st.randoms(use_true_random=False))
def test_the_order_of_records_decides_only_between_equals(
    log: Log, shuffler: random.Random
) -> None:
    expected = fold("t", joined(log.runs))
    places: dict[object, int] = {}
    numbered = []
    for record in joined(log.runs):
        same = (record.incarnation, record.identity, record.rank)
        places[same] = places.get(same, -1) + 1
        numbered.append((places[same], record))
    shuffler.shuffle(numbered)
    # of equal records, the older record stays before the later record
    numbered.sort(key=lambda pair: pair[0])
    assert fold("t", [record for _, record in numbered]) == expected


@untimed
@given(logs, st.data())
def test_records_merged_in_any_way_fold_to_the_same(log: Log, data: st.DataObject) -> None:
    expected = fold("t", joined(log.runs))
    runs = [list(run) for run in log.runs]
    while len(runs) > 1:
        first = data.draw(st.integers(0, len(runs) - 2))
        last = data.draw(st.integers(first + 1, len(runs) - 1))
        merged = live_facts(joined(runs[first : last + 1]))
        if first == 0:
            merged = [record for record in merged if not record.passing]
        runs[first : last + 1] = [merged]
        assert fold("t", joined(runs)) == expected


@untimed
@given(logs)
def test_a_stored_manifest_is_equal(log: Log) -> None:
    manifest = fold("t", joined(log.runs))
    data = encode_manifest(manifest, "tenant")
    assert decode_manifest(data, "b") == manifest
    assert encode_manifest(decode_manifest(data, "b"), "tenant") == data


def checkpoint(seq: int, segment: object, **changes: object) -> CheckpointRecord:
    made = ("t", 1, 1, seq, "", f"c{seq}", "", 1, sha(segment), sha("state"))
    return CheckpointRecord(*made)


def stored(segment: object, blob_id: str, *needs: object) -> MemberRecord:
    location = BlobLocation(sha(segment), 1, blob_id, "")
    return MemberRecord("t", 1, 1, 1, location, needs=tuple(sha(need) for need in needs))


def folded(*records: Record) -> Manifest:
    return fold("t", records)


def test_needed_members_are_those_of_checkpoints_and_those_that_these_name() -> None:
    manifest = folded(
        checkpoint(5, "young"),
        stored("young", "b1", "old", "older"),
        stored("old", "b2"),
        stored("idle", "b3"),
    )
    assert manifest.needed() == {sha("young"), sha("old"), sha("older")}
    place = manifest.location(sha("young"))
    assert place is not None
    assert place.blob_id == "b1"
    assert manifest.location(sha("older")) is None


def test_nothing_folds_to_an_empty_manifest() -> None:
    manifest = folded()
    assert (manifest.incarnation, manifest.generation, manifest.seq) == (0, 0, 0)
    assert not manifest.entries
    assert not manifest.ended
