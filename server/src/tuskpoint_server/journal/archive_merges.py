"""Which heads move into merged runs of the catalog next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from ..domain.catalog import Runs, ThreadHead, encode_page
from ..domain.manifest import ManifestHead
from ..domain.model import BlobLocation
from .schema import manifests, placements, threads

_MERGE_HEADS = 1000
_MERGE_HEADS_PER_CHANGE = 4


@dataclass(frozen=True, slots=True)
class MergeStep:
    """Heads that move into the merged run of a level; `done` if none are left behind."""

    level: int
    heads: tuple[ThreadHead, ...]
    done: bool


def merge_steps(
    connection: Connection, tenant: str, runs: Runs, changes: int, max_bytes: int
) -> Iterator[MergeStep]:
    """Take a bounded number of heads for unfinished merges, the lowest level first.

    Their pages take at most `max_bytes`, and one head at least.

    Every change is merged once per level, so a multiple of what changed keeps up however
    many threads there are. Heads that were taken list the merged run from then on, so
    the next step finds the rest.
    """
    left = _MERGE_HEADS + _MERGE_HEADS_PER_CHANGE * changes
    for level, merge in sorted(runs.merges.items()):
        if left <= 0:
            return
        heads = _heads_of_runs(connection, tenant, merge.inputs, left + 1)
        taken: list[ThreadHead] = []
        for head in heads[:left]:
            max_bytes -= len(encode_page([head]))
            if taken and max_bytes < 0:
                break
            taken.append(head)
        yield MergeStep(level, tuple(taken), done=len(heads) == len(taken))
        if max_bytes <= 0:
            return
        left -= len(heads)


def _heads_of_runs(
    connection: Connection, tenant: str, inputs: Sequence[int], limit: int
) -> list[ThreadHead]:
    rows = connection.execute(
        select(
            manifests,
            placements.c.size,
            placements.c.blob_id,
            placements.c.identifier,
            threads.c.deleted_through,
            threads.c.incarnation.label("current"),
            threads.c.agent_id,
            threads.c.retention_s,
            threads.c.unsearchable,
        )
        .join(
            placements,
            (placements.c.tenant == manifests.c.tenant)
            & (placements.c.sha256 == manifests.c.sha256),
            isouter=True,
        )
        .join(
            threads,
            (threads.c.tenant == manifests.c.tenant)
            & (threads.c.thread_id == manifests.c.thread_id),
            isouter=True,
        )
        .where(manifests.c.tenant == tenant, manifests.c.run.in_(inputs))
        .limit(limit)
    )
    return [
        ThreadHead(
            thread_id=row.thread_id,
            incarnation=row.incarnation,
            ended=row.ended,
            deleted_through=row.deleted_through or "",
            manifest=ManifestHead(
                BlobLocation(row.sha256, row.size, row.blob_id, row.identifier),
                row.segment,
                row.generation,
                row.records,
            )
            if row.sha256
            else None,
            agent_id=row.agent_id if _is_current(row) else "",
            retention_s=row.retention_s if _is_current(row) else 0,
            unsearchable=_is_current(row) and row.unsearchable,
        )
        for row in rows
    ]


def _is_current(row: Any) -> bool:
    """Tell whether the facts of a thread are those of this incarnation."""
    return bool(row.current == row.incarnation and not row.ended)
