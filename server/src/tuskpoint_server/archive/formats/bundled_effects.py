"""Effects in bundles: rows like checkpoints, in namespaces that no thread can have.

The names contain NUL, so a server that does not know effects refuses the whole bundle as malformed
instead of adopting the thread without its effects and repeating their work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf.message import DecodeError

from ...core.effects.records import (
    RESULT,
    STATE,
    EffectsMode,
    EffectState,
    decode_record,
    effect_id,
)
from ...core.limits import LIMITS
from ...core.model import NO_LINEAGE
from ...core.state import decode_channels, encode_state
from .segments import SegmentCheckpoint

NAMESPACES = {EffectsMode.COPY: "\0effects", EffectsMode.ANSWER: "\0answers"}
"""Namespaces of the rows of effects, by what the adopted thread does with its effects."""


def is_effect(row: SegmentCheckpoint) -> bool:
    """Return whether a row of a bundle is an effect."""
    return row.checkpoint_ns in NAMESPACES.values()


def problems(rows: Iterable[SegmentCheckpoint]) -> Iterator[str]:
    """Yield how the rows of effects differ from rows that a server writes."""
    ids, namespaces = set[str](), set[str]()
    for row in rows:
        if problem := _problem(row):
            yield f"effect '{row.checkpoint_id}': {problem}"
        if row.checkpoint_id in ids:
            yield f"effect '{row.checkpoint_id}' is in it twice"
        ids.add(row.checkpoint_id)
        namespaces.add(row.checkpoint_ns)
    if len(ids) > LIMITS.max_thread_effects:
        yield f"it has more than {LIMITS.max_thread_effects} effects"
    if len(namespaces) > 1:
        yield "its effects are of two kinds"


def _problem(row: SegmentCheckpoint) -> str:
    if len(row.metadata) > LIMITS.max_metadata:
        return "its record is too large"
    try:
        record = decode_record(row.metadata)
        channels = decode_channels(row.state)
    except (ValueError, RecursionError, DecodeError) as error:
        return f"its record cannot be read: {error}"
    if row.checkpoint_id != effect_id(record.key):
        return "its ID does not belong to its key"
    if row.parent_id or row.label or row.summary or row.delta_base or row.lineage != NO_LINEAGE:
        return "it has parts that no effect has"
    if encode_state(STATE, channels) != row.state:
        return "its state has parts that no effect has"
    if not channels:
        return ""
    if len(channels) > 1 or channels[0].name != RESULT or channels[0].version != 1:
        return "it has another channel than its result"
    if channels[0].size > LIMITS.max_effect_result:
        return f"its result must be at most {LIMITS.max_effect_result} bytes"
    return "" if record.state is EffectState.DONE else "it has a result and is not done"
