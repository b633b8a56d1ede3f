"""The tool that lists the effects of a thread."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ..._messages.effects import Effect, EffectStateName
from ...aio import AsyncClient
from ..reading import PAGE_CHARS, Limit, first, json_text, moment
from ..results import Effects
from .checkpoints import ThreadId


async def effect_list(
    client: AsyncClient,
    thread_id: ThreadId,
    state: Annotated[
        EffectStateName | None,
        Field(description='"unknown": the work may be done.'),
    ] = None,
    limit: Limit = 50,
) -> Effects:
    """List work of a thread in the outside world, such as payments, the last changed first.

    Never repeat work that is unknown or done.
    """
    effects = client.list_effects(thread_id, states=() if state is None else state)
    records = await first(effects, limit + 1, lambda effect: False)
    shown: list[dict[str, str | int]] = []
    room = PAGE_CHARS
    for effect in records:
        entry = _entry(effect)
        room -= len(json_text(entry))
        if len(shown) == limit or (shown and room < 0):
            break
        shown.append(entry)
    return Effects(effects=shown, truncated=len(shown) < len(records))


def _entry(effect: Effect) -> dict[str, str | int]:
    return {
        "key": effect.key,
        "name": effect.name,
        "state": effect.state,
        "attempt": effect.attempt,
        "begun": moment(effect.begun) if effect.begun else "",
        "owner": effect.owner,
        "error": effect.error,
        "idempotency_key": effect.idempotency_key,
    }
