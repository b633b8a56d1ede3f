"""Random calls on effects: an outcome "done" that was acknowledged stays, and is not repeated."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.kit.drafts import TENANT
from tests.simulation.at_rest.damage import tainted
from tests.simulation.server import Server
from tuskpoint_server.archive.rows.stored import stored_value
from tuskpoint_server.core.effects.decisions import BeginEffect, OnUnknown
from tuskpoint_server.core.effects.records import effects_of
from tuskpoint_server.core.model import Value
from tuskpoint_server.core.values import value_digest

KEY = "x"  # the only effect of each thread, so that agents often ask for one that is done
AGENTS = 3


async def ask(
    server: Server,
    name: str,
    rng: random.Random,
    make_value: Callable[[], Value],
    changes: Callable[[], AbstractContextManager[None]],
) -> list[str]:
    """Let agents ask for an effect of a thread, and perhaps do it; return the problems.

    `changes` checks that the lease of the thread allows a change.
    """
    for _ in range(AGENTS):
        asked = BeginEffect(
            key=KEY,
            name="",
            input_digest=b"",
            request_id=str(rng.getrandbits(62)),
            owner="",
            lease_id="",
            timeout_us=rng.choice((1, 10**9)),
            on_unknown=OnUnknown.RETRY,
        )
        with changes():
            begun = await server.effects.begin(TENANT, name, asked, None)
        effect = (name, server.shadow.threads[name].incarnation, KEY)
        is_unclear = bool(tainted(server).keys() & {name, effects_of(name)})
        if begun.run and effect in server.model.done and not is_unclear:
            return [f"effect {effect} was done and is done again"]
        if rng.random() < 0.5:
            value, idempotency_key = make_value(), begun.effect.record.idempotency_key
            packed = stored_value(value_digest(value), value)
            await server.effects.complete(TENANT, name, KEY, idempotency_key, packed)
            server.model.done.add(effect)
    return []
