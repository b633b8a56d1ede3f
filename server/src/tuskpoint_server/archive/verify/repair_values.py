"""Repairs values that are damaged in the journal from certified blobs that contain them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from ...core.errors import Reason, Refusal
from ...core.model import BlobLocation, CheckpointKey, Damage, Value
from ...journal.database.database import Connection, Database
from ..read.read import DAMAGE, Segments
from ..telemetry import FlushInstruments
from . import damaged_values

_log = logging.getLogger(__name__)

_Places = dict[bytes, list[BlobLocation]]


@dataclass(frozen=True, slots=True)
class Mender:
    """Repairs damaged values, counts them, and logs the outcomes."""

    _database: Database
    _segments: Segments
    _instruments: FlushInstruments

    async def mend(
        self,
        tenant: str,
        key: CheckpointKey,
        damages: Collection[Damage],
        hints: Sequence[BlobLocation] = (),
    ) -> bool:
        """Repair a checkpoint's damaged values from the blob store; return whether one was.

        A repaired keyframe may make a patch valid again. `hints` are segments that contain the
        checkpoint.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`, `JOURNAL_UNAVAILABLE`.
        """

        def look(connection: Connection) -> tuple[list[Damage], _Places]:
            all_damages = [*damages, *damaged_values.keyframes(connection, damages)]
            return all_damages, damaged_values.holders(connection, tenant, all_damages)

        all_damages, places = await self._database.query(look)
        mended: dict[Damage, Value] = {}
        for damage in dict.fromkeys(all_damages):
            for place in dict.fromkeys((*places.get(damage.digest, ()), *hints)):
                value = await self._read(place, damage.digest)
                if value is not None:
                    mended[damage] = value
                    break
            self._tell(tenant, key, damage, repaired=damage in mended)
        if mended:
            put_back = partial(
                damaged_values.put_back, tenant=tenant, thread_id=key.thread_id, mended=mended
            )
            size = sum(len(value.data) for value in mended.values())
            await self._database.transact(put_back, size)
        return bool(mended)

    async def _read(self, place: BlobLocation, digest: bytes) -> Value | None:
        """Return a value from a segment, or from a segment that it names; `None` if none has it."""
        try:
            [stored] = await self._segments.read([place])
            return (await self._segments.values(stored, [digest])).get(digest)
        except Refusal as refusal:
            if refusal.reason not in (*DAMAGE, Reason.JOURNAL_DAMAGED):
                raise
            return None

    def _tell(self, tenant: str, key: CheckpointKey, damage: Damage, *, repaired: bool) -> None:
        outcome = "repaired" if repaired else "lost"
        self._instruments.damages.add(1, {"tenant": tenant, "outcome": outcome})
        _log.error(
            "value %s of checkpoint '%s' in namespace '%s' of thread '%s' of tenant %s was damaged "
            "in the journal (%s): %s",
            damage.digest.hex(),
            key.checkpoint_id,
            key.checkpoint_ns,
            key.thread_id,
            tenant,
            damage.problem,
            "it was repaired from the blob store"
            if repaired
            else "no certified copy of it can be read, so it is lost",
        )
