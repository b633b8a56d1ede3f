"""Catalogs: the root of what a tenant has stored.

Every flush stores one. It names the live runs by hash, and the catalog before it: so the
history is linked by hashes, and every record hangs from one blob ID.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..model import BlobLocation
from .merging import FAN_OUT, LiveRuns, Merge
from .runs import BRANCH_RUNS, RunRef, read_position, read_ref, ref_json
from .stored_json import Fields, JsonObject, Kind, dump_document, location_json

_MAX_LEVELS = 32
NO_RUNS = LiveRuns()


@dataclass(frozen=True, slots=True)
class Catalog:
    """A stored catalog."""

    tenant: str
    journal_id: str  # of the journal that wrote it
    generation: int  # of the logs; recovery begins a new one
    number: int  # in its generation, from 1
    created_us: int
    previous: BlobLocation | None = None  # the catalog before it
    runs: LiveRuns = NO_RUNS


def encode_catalog(catalog: Catalog) -> bytes:
    """Return the stored bytes."""
    return dump_document(
        Kind.CATALOG,
        {
            "tenant": catalog.tenant,
            "journal_id": catalog.journal_id,
            "generation": catalog.generation,
            "number": catalog.number,
            "create_time_us": catalog.created_us,
            "previous": location_json(catalog.previous) if catalog.previous else None,
            "levels": _lists_json(catalog.runs.levels),
            "merges": [
                {
                    "level": merge.level,
                    "after": list(merge.after),
                    "ended": merge.ended,
                    "made": _lists_json(merge.made),
                }
                for merge in catalog.runs.merges
            ],
        },
    )


def _lists_json(lists: Iterable[Iterable[RunRef]]) -> list[JsonObject]:
    return [{"runs": [ref_json(ref) for ref in one]} for one in lists]


def decode_catalog(data: bytes, name: str) -> Catalog:
    """Return what stored bytes hold."""
    fields = Fields.document(data, name, Kind.CATALOG)
    return Catalog(
        tenant=fields.name("tenant"),
        journal_id=fields.name("journal_id"),
        generation=fields.number("generation"),
        number=fields.number("number"),
        created_us=fields.number("create_time_us"),
        previous=fields.child("previous").settled() if fields.has("previous") else None,
        runs=_read_runs(fields),
    )


def _read_runs(fields: Fields) -> LiveRuns:
    levels = _read_lists(fields, "levels")
    merges = tuple(_read_merge(merge) for merge in fields.children("merges"))
    if len(levels) > _MAX_LEVELS:
        raise fields.fail(f"it has more than {_MAX_LEVELS} levels of runs")
    numbers = [merge.level for merge in merges]
    if numbers != sorted(set(numbers)):
        raise fields.fail("its merges are not in order, or two are of one level")
    for number in numbers:
        if number >= len(levels) or len(levels[number]) < FAN_OUT:
            raise fields.fail(f"it merges level {number}, which has fewer than {FAN_OUT} runs")
    return LiveRuns(levels, merges)


def _read_merge(fields: Fields) -> Merge:
    made = _read_lists(fields, "made")
    if any(len(height) >= BRANCH_RUNS for height in made) or len(made) > _MAX_LEVELS:
        raise fields.fail("a merge has made more runs than it could")
    return Merge(
        level=fields.number("level"),
        after=read_position(fields, "after"),
        ended=fields.number("ended") if fields.has("ended") else None,
        made=made,
    )


def _read_lists(fields: Fields, key: str) -> tuple[tuple[RunRef, ...], ...]:
    return tuple(tuple(map(read_ref, one.children("runs"))) for one in fields.children(key))
