"""What a pack will change in the journal once it is certified.

The plan is made with the pack's bytes and kept beside them, so that a restart certifies
exactly what was packed. It is internal to one server version and its journal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..domain.catalog import Runs, decode_runs, encode_runs
from ..domain.model import CheckpointKey


class PackKind(StrEnum):
    """What a pack holds, and so what follows when it was read back."""

    LOOSE = "LOOSE"
    """Members that others will refer to; nothing is recorded but where they lie."""
    ENVELOPES = "ENVELOPES"
    """Envelopes; their checkpoints can be told by a later final pack."""
    FINAL = "FINAL"
    """Manifests and the catalog, with the envelopes if all of it fits one put."""


class PackState(StrEnum):
    """How far a pack has come. Its row is removed when it is certified."""

    SPOOLED = "SPOOLED"
    """Its exact bytes are fsynced; it may or may not be stored."""
    STORED = "STORED"
    """The blob store took it and said where it lies."""
    READ_BACK = "READ_BACK"
    """Every member was read back and its hash compared."""


@dataclass(frozen=True, slots=True)
class PlannedEnvelope:
    """An envelope of the pack.

    Attributes:
        sha256: Its hash; of the list of parts if it is stored in parts.
        revision: The revision that is held with it.
        parts: Hashes of its parts, if it has any.
    """

    sha256: bytes
    revision: int
    parts: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedCheckpoint:
    """A checkpoint whose revision the pack certifies.

    Attributes:
        key: The checkpoint.
        incarnation: Incarnation of its thread.
        created_us: Time of its first save; tells it from one saved again after deletion.
        packed_revision: Packed revision that was found.
        revision: Revision that the pack certifies.
        dirty_bytes: Bytes that no longer wait then.
        replaces: The first new envelope is full and replaces those known before.
        envelopes: New envelopes, oldest first.
        left_us: Time of the oldest change that is older than the pack and left; 0: none is.
    """

    key: CheckpointKey
    incarnation: int
    created_us: int
    packed_revision: int
    revision: int
    dirty_bytes: int
    replaces: bool
    envelopes: tuple[PlannedEnvelope, ...]
    left_us: int = 0


@dataclass(frozen=True, slots=True)
class PlannedManifest:
    """The head that a thread's manifest moves to.

    Attributes:
        thread_id: The thread.
        incarnation: Its incarnation.
        generation: Generation of the chain.
        segment: Number of the open segment.
        records: Records in the chain; 0 if nothing of the incarnation was ever stored.
        sha256: Hash of the open segment; empty if there is none.
        rewritten: The open segment is a member of this pack.
        superseded: Hash of the stored segment that nothing refers to any more, or empty.
        ended: The incarnation was deleted.
        segments: Hashes of the segments stored with this move, the open one among them.
    """

    thread_id: str
    incarnation: int
    generation: int
    segment: int
    records: int
    sha256: bytes
    rewritten: bool
    superseded: bytes
    ended: bool
    segments: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedCatalog:
    """The catalog of the pack.

    Attributes:
        generation: Generation of the chain.
        previous_seq: Number of the catalog that it follows; 0: none. With the
            generation it is the fencing token: if another catalog stands there at
            certification, the pack is void.
        sha256: Hash of the catalog.
        run: Number of the run that its changes are.
        runs: The runs that it lists, as their locations were predicted.
        moved: Threads whose newest word moves into another run: (run, thread,
            incarnation).
        members: Members of the catalog that the pack stores: (hash, run).
    """

    generation: int
    previous_seq: int
    sha256: bytes
    run: int
    runs: Runs
    moved: tuple[tuple[int, str, int], ...]
    members: tuple[tuple[bytes, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedFacts:
    """What the catalog of the pack tells of a thread besides its manifest."""

    thread_id: str
    incarnation: int
    agent_id: str
    retention_s: int
    unsearchable: bool = False


@dataclass(frozen=True, slots=True)
class PackPlan:
    """Everything that the journal records once the pack was read back.

    Attributes:
        collected_us: Time at which the pack's content was read from the journal.
        checkpoints: What it certifies; of envelopes alone, what it stores.
        manifests: Heads that move.
        catalog: The catalog; only a final pack has one.
        retractions: Numbers of the retractions that it tells.
        tombstones: Ended incarnations that it tells: (thread, incarnation).
        facts: What it tells of threads that had changed without a checkpoint.
    """

    collected_us: int
    checkpoints: tuple[PlannedCheckpoint, ...] = ()
    manifests: tuple[PlannedManifest, ...] = ()
    catalog: PlannedCatalog | None = None
    retractions: tuple[int, ...] = ()
    tombstones: tuple[tuple[str, int], ...] = ()
    facts: tuple[PlannedFacts, ...] = ()


def encode_plan(plan: PackPlan) -> bytes:
    """Return the form in which the journal keeps a plan."""
    return json.dumps(
        {
            "collected_us": plan.collected_us,
            "checkpoints": [_checkpoint_json(checkpoint) for checkpoint in plan.checkpoints],
            "manifests": [_manifest_json(manifest) for manifest in plan.manifests],
            "catalog": None if plan.catalog is None else _catalog_json(plan.catalog),
            "retractions": plan.retractions,
            "tombstones": plan.tombstones,
            "facts": [
                [
                    told.thread_id,
                    told.incarnation,
                    told.agent_id,
                    told.retention_s,
                    told.unsearchable,
                ]
                for told in plan.facts
            ],
        },
        separators=(",", ":"),
    ).encode()


def decode_plan(data: bytes) -> PackPlan:
    """Return what `encode_plan` wrote."""
    content = json.loads(data)
    catalog = content["catalog"]
    return PackPlan(
        collected_us=content["collected_us"],
        checkpoints=tuple(_planned_checkpoint(*fields) for fields in content["checkpoints"]),
        manifests=tuple(_planned_manifest(*fields) for fields in content["manifests"]),
        catalog=None if catalog is None else _planned_catalog(catalog),
        retractions=tuple(content["retractions"]),
        tombstones=tuple((thread_id, number) for thread_id, number in content["tombstones"]),
        facts=tuple(PlannedFacts(*fields) for fields in content.get("facts", [])),
    )


def _catalog_json(catalog: PlannedCatalog) -> dict[str, object]:
    return {
        "generation": catalog.generation,
        "previous_seq": catalog.previous_seq,
        "sha256": catalog.sha256.hex(),
        "run": catalog.run,
        "runs": encode_runs(catalog.runs).decode(),
        "moved": catalog.moved,
        "members": [[sha256.hex(), run] for sha256, run in catalog.members],
    }


def _planned_catalog(content: dict[str, Any]) -> PlannedCatalog:
    return PlannedCatalog(
        generation=content["generation"],
        previous_seq=content["previous_seq"],
        sha256=bytes.fromhex(content["sha256"]),
        run=content["run"],
        runs=decode_runs(content["runs"].encode()),
        moved=tuple((run, thread_id, number) for run, thread_id, number in content["moved"]),
        members=tuple((bytes.fromhex(digest), run) for digest, run in content.get("members", [])),
    )


def _checkpoint_json(planned: PlannedCheckpoint) -> list[object]:
    key = planned.key
    return [
        [key.thread_id, key.checkpoint_ns, key.checkpoint_id],
        [
            planned.incarnation,
            planned.created_us,
            planned.packed_revision,
            planned.revision,
            planned.dirty_bytes,
            planned.left_us,
        ],
        planned.replaces,
        [
            [envelope.sha256.hex(), envelope.revision, [part.hex() for part in envelope.parts]]
            for envelope in planned.envelopes
        ],
    ]


def _planned_checkpoint(
    key: list[str], numbers: list[int], replaces: bool, envelopes: list[list[Any]]
) -> PlannedCheckpoint:
    incarnation, created_us, packed_revision, revision, dirty_bytes, *left_us = numbers
    return PlannedCheckpoint(
        key=CheckpointKey(*key),
        incarnation=incarnation,
        created_us=created_us,
        packed_revision=packed_revision,
        revision=revision,
        dirty_bytes=dirty_bytes,
        replaces=replaces,
        envelopes=tuple(_planned_envelope(*fields) for fields in envelopes),
        left_us=sum(left_us),
    )


def _planned_envelope(digest: str, revision: int, parts: Sequence[str] = ()) -> PlannedEnvelope:
    return PlannedEnvelope(bytes.fromhex(digest), revision, tuple(map(bytes.fromhex, parts)))


def _manifest_json(planned: PlannedManifest) -> list[object]:
    return [
        planned.thread_id,
        [planned.incarnation, planned.generation, planned.segment, planned.records],
        planned.sha256.hex(),
        planned.rewritten,
        planned.superseded.hex(),
        planned.ended,
        [sha256.hex() for sha256 in planned.segments],
    ]


def _planned_manifest(
    thread_id: str,
    numbers: list[int],
    sha256: str,
    rewritten: bool,
    superseded: str,
    ended: bool,
    segments: Sequence[str] = (),
) -> PlannedManifest:
    incarnation, generation, segment, records = numbers
    return PlannedManifest(
        thread_id=thread_id,
        incarnation=incarnation,
        generation=generation,
        segment=segment,
        records=records,
        sha256=bytes.fromhex(sha256),
        rewritten=rewritten,
        superseded=bytes.fromhex(superseded),
        ended=ended,
        segments=tuple(map(bytes.fromhex, segments)),
    )
