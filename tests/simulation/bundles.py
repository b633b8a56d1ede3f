"""Bundles of checkpoints, as the service of hand-offs stores them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from tests.kit.drafts import TENANT
from tests.simulation.promises.committed_rows import Place
from tests.simulation.promises.model import Known
from tests.simulation.server import Server
from tuskpoint_server.core.model import BlobLocation, CheckpointKey


class Bundle(NamedTuple):
    """A stored bundle; `parts` is `None` if the journal keeps the bundle already.

    `seq` is the last change of the thread in the bundle, and `known` the thread's content.
    """

    location: BlobLocation
    parts: tuple[BlobLocation, ...] | None
    seq: int
    known: Mapping[Place, Known]


async def store_bundle(server: Server, key: CheckpointKey) -> Bundle | None:
    """Store the bundle of a checkpoint, unless it is stored; `None`: the checkpoint is gone."""
    known = dict(server.model.stories[key.thread_id].known)
    unchanged = await server.handoffs.unchanged(TENANT, key)
    if unchanged is not None:
        return Bundle(unchanged[0], None, unchanged[1], known)
    closure = await server.completer.supplied(TENANT, partial(server.lineage.closure, TENANT, key))
    if closure is None:
        return None
    stored = await server.archive.standalone.store_bundle(TENANT, closure)
    return Bundle(stored.location, stored.parts, closure.seq, known)
