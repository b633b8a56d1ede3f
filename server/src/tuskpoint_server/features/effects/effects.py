"""Calls on effects: begin, report, decide, read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...archive.archive import Archive
from ...archive.formats.segments import SegmentValue
from ...archive.rows.stored import stored_value
from ...core.effects.decisions import AttemptOutcome, BeginEffect
from ...core.effects.records import EffectState, and_effects, effect_id, effects_of
from ...core.errors import Reason, Refusal
from ...core.limits import KIB
from ...core.model import CheckpointKey, Durability, Value, View
from ...core.values import value_digest
from ..checkpoints.checkpoint_rows import CheckpointRows
from ..checkpoints.completing import Completer, reach
from ..cursors import page
from .effect_rows import Answer, EffectRows, ShownEffect

_PACKED_INLINE = 64 * KIB  # bytes of a result that is packed on the event loop


@dataclass(frozen=True, slots=True)
class EffectAnswer:
    """An effect with its result, and whether the caller must do the work now."""

    effect: ShownEffect
    result: Value | None = None
    run: bool = False


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects of all tenants; changes wait like the changes of `Branches`."""

    _rows: EffectRows
    _checkpoints: CheckpointRows
    _archive: Archive
    _completer: Completer
    _journal_id: str

    async def begin(
        self,
        tenant: str,
        thread_id: str,
        asked: BeginEffect,
        place: tuple[str, str] | None,
        wanted: Durability,
    ) -> EffectAnswer:
        """Decide whether the caller must do the work of an effect; see `EffectRows.begin`."""
        self._archive.backlog(tenant).admit()
        answer = await self._rows.begin(tenant, thread_id, asked, place)
        return await self._answered(tenant, thread_id, answer, wanted)

    async def complete(
        self,
        tenant: str,
        thread_id: str,
        key: str,
        idempotency_key: str,
        result: Value | None,
        wanted: Durability,
    ) -> EffectAnswer:
        """Record that the work of an effect is done; the first recorded result stays."""
        value = await _packed(result)
        answer = await self._rows.complete(tenant, thread_id, key, idempotency_key, value)
        return await self._answered(tenant, thread_id, answer, wanted, result)

    async def fail(
        self,
        tenant: str,
        thread_id: str,
        key: str,
        attempt: int,
        idempotency_key: str,
        outcome: AttemptOutcome,
        error: str,
        wanted: Durability,
    ) -> EffectAnswer:
        """Record how an attempt failed."""
        names = (tenant, thread_id, key, attempt, idempotency_key)
        answer = await self._rows.fail(*names, outcome, error)
        return await self._answered(tenant, thread_id, answer, wanted)

    async def resolve(
        self,
        tenant: str,
        thread_id: str,
        key: str,
        attempt: int,
        result: Value | None,
        resolved_by: str,
        wanted: Durability,
        *,
        done: bool,
    ) -> EffectAnswer:
        """Decide an unknown effect."""
        value = await _packed(result)
        names = (tenant, thread_id, key, attempt, resolved_by)
        answer = await self._rows.resolve(*names, value, done=done)
        return await self._answered(tenant, thread_id, answer, wanted, result)

    async def get(self, tenant: str, thread_id: str, key: str, view: View) -> EffectAnswer:
        """Return an effect; with its result unless the view is `ENTRY`."""
        effect = await self._rows.get(tenant, thread_id, key)
        if view is View.ENTRY or not effect.has_result:
            return EffectAnswer(effect)
        return EffectAnswer(effect, await self._result(tenant, thread_id, key, view))

    async def list(
        self,
        tenant: str,
        thread_id: str,
        states: Collection[EffectState],
        size: int,
        token: str,
    ) -> tuple[Sequence[ShownEffect], str]:
        """Return a page of effects, the latest changed first, and the token of the next page."""

        async def read(after: tuple[int, ...], limit: int) -> list[ShownEffect]:
            below = after[0] if after else 0
            return await self._rows.list(tenant, thread_id, states, below, limit)

        chosen = sorted(int(state) for state in set(states))
        listing: list[str | int] = ["effects", self._journal_id, tenant, thread_id, *chosen]
        return await page(listing, size, token, read, lambda effect: (effect.seq,), int)

    async def _answered(
        self,
        tenant: str,
        thread_id: str,
        answer: Answer,
        wanted: Durability,
        result: Value | None = None,
    ) -> EffectAnswer:
        """Return the answer to a change with the recorded result, once the change is durable."""
        await reach(self._archive, tenant, wanted, and_effects([thread_id]))
        effect = answer.effect
        if not effect.has_result:
            result = None
        elif result is None or not answer.changed:
            result = await self._result(tenant, thread_id, effect.record.key, View.FULL)
        return EffectAnswer(effect, result, answer.run)

    async def _result(self, tenant: str, thread_id: str, key: str, view: View) -> Value:
        """Return the recorded result of an effect.

        Raises:
            Refusal: `EFFECT_NOT_FOUND`: the thread was deleted in between; what reads of evicted or
                damaged values refuse.
        """
        kept = CheckpointKey(effects_of(thread_id), "", effect_id(key))
        loaded = await self._checkpoints.load(tenant, kept, View.FULL)
        if loaded is not None:
            whole = await self._completer.checkpoint(tenant, loaded)
            shown = await self._completer.shown(tenant, whole, view)
            for channel in shown.state.channels if shown.state is not None else ():
                if channel.value is not None:
                    return channel.value
        problem = "the thread was deleted during the call"
        raise Refusal(Reason.EFFECT_NOT_FOUND, thread_id=thread_id, key=key, problem=problem)


async def _packed(result: Value | None) -> SegmentValue | None:
    """Return a result in its stored form."""
    if result is None:
        return None
    if len(result.data) <= _PACKED_INLINE:
        return stored_value(value_digest(result), result)
    return await asyncio.to_thread(lambda: stored_value(value_digest(result), result))
