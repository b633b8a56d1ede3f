"""Tools of CrewAI do their work once."""

from __future__ import annotations

import pytest
from crewai.tools import tool

from tuskpoint import Client, EffectRefused, effects
from tuskpoint.frameworks.crewai import effect_tool


def test_a_tool_does_its_work_once_for_equal_arguments(client: Client, thread_id: str) -> None:
    keys: list[str] = []

    def charge(order: str, idempotency_key: str) -> str:
        """Charge an order."""
        keys.append(idempotency_key)
        if order == "C":
            raise effects.Refused("the card was declined")
        return f"receipt {len(keys)}"

    wrapped = tool("charge")(effect_tool(charge, client, thread_id))
    assert list(wrapped.args_schema.model_json_schema()["properties"]) == ["order"]
    assert [wrapped.run(order=order) for order in "AAB"] == ["receipt 1", "receipt 1", "receipt 2"]
    with pytest.raises(effects.Refused):
        wrapped.run(order="C")
    with pytest.raises(EffectRefused, match="the card was declined"):
        wrapped.run(order="C")
    assert {effect.idempotency_key for effect in client.list_effects(thread_id)} == set(keys)
    assert len(keys) == 3
