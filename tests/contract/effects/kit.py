"""Effects of a journal, for tests."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from tests.kit.archives import House
from tests.kit.drafts import TENANT
from tests.kit.journal import Journal
from tuskpoint_server.archive.formats.segments import SegmentValue
from tuskpoint_server.archive.rows.stored import stored_value
from tuskpoint_server.core.effects.decisions import AttemptOutcome, BeginEffect, OnUnknown
from tuskpoint_server.core.effects.records import EffectState, effect_id, effects_of
from tuskpoint_server.core.model import AbsentValue, CheckpointKey, Value, View
from tuskpoint_server.core.values import value_digest
from tuskpoint_server.features.checkpoints.completing import Completer
from tuskpoint_server.features.effects.effect_rows import Answer, ShownEffect
from tuskpoint_server.features.effects.effects import Effects

_numbers = itertools.count()


def calls_of(home: House) -> Effects:
    """Return the calls of the service, which read evicted results from the blob store."""
    journal, completer = home.journal, Completer(home.journal, home.archive)
    return Effects(journal.effects, journal, home.archive, completer, "journal")


def packed(data: bytes) -> SegmentValue:
    value = Value("json", data)
    return stored_value(value_digest(value), value)


@dataclass
class Agent:
    """An agent that works in a thread of a journal."""

    journal: Journal
    thread_id: str = "t"
    place: tuple[str, str] | None = None
    fields: dict[str, Any] = field(default_factory=dict)

    async def begin(self, key: str = "pay", request_id: str = "", **fields: Any) -> Answer:
        values: dict[str, Any] = {
            "key": key,
            "name": "charge",
            "input_digest": b"",
            "request_id": request_id or f"request {next(_numbers)}",
            "owner": "agent",
            "lease_id": "",
            "timeout_us": 60_000_000,
            "on_unknown": OnUnknown.FAIL,
            **self.fields,
            **fields,
        }
        rows = self.journal.effects
        return await rows.begin(TENANT, self.thread_id, BeginEffect(**values), self.place)

    async def complete(self, answer: Answer, data: bytes | None = b"1") -> Answer:
        record = answer.effect.record
        value = packed(data) if data is not None else None
        names = (self.thread_id, record.key, record.idempotency_key)
        return await self.journal.effects.complete(TENANT, *names, value)

    async def fail(
        self, answer: Answer, outcome: AttemptOutcome = AttemptOutcome.NOT_DONE
    ) -> Answer:
        record = answer.effect.record
        names = (self.thread_id, record.key, record.attempt, record.idempotency_key)
        return await self.journal.effects.fail(TENANT, *names, outcome, "it broke")

    async def resolve(self, key: str, attempt: int, *, done: bool) -> Answer:
        names = (self.thread_id, key, attempt, "ann")
        value = packed(b"2") if done else None
        return await self.journal.effects.resolve(TENANT, *names, value, done=done)

    async def do(self, key: str = "pay", data: bytes | None = b"1", **fields: Any) -> Answer:
        """Begin an effect and report that it is done."""
        answer = await self.begin(key, **fields)
        assert answer.run
        return await self.complete(answer, data)

    async def all(self, *states: EffectState) -> list[ShownEffect]:
        return await self.journal.effects.list(TENANT, self.thread_id, states, 0, 100_000)

    async def states(self) -> dict[str, EffectState]:
        """Return the state of each effect of the thread."""
        return {effect.record.key: effect.state for effect in await self.all()}

    async def result(self, key: str = "pay") -> bytes | None:
        """Return the recorded result of an effect."""
        kept = CheckpointKey(effects_of(self.thread_id), "", effect_id(key))
        loaded = await self.journal.load(TENANT, kept, View.FULL)
        assert loaded is not None
        assert loaded.state is not None
        values = [channel.value for channel in loaded.state.channels]
        is_here = bool(values) and not isinstance(values[0], AbsentValue)
        return values[0].data if is_here and values[0] is not None else None
