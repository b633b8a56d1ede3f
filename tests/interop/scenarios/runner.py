"""Plays the interop scenarios with the Python client.

    python -m tests.interop.scenarios.runner scenarios.json world.json

What it reads and prints is in `scenarios/README.md`.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

from tests.interop.scenarios.calls import Player, World
from tests.interop.scenarios.values import Json, Mismatch, at, check, fill
from tuskpoint.errors import TuskPointError

FORMAT = 1


def main(arguments: list[str]) -> int:
    """Play all scenarios; return the exit status."""
    try:
        scenarios, world = (Path(argument) for argument in arguments)
        document = json.loads(scenarios.read_text(encoding="utf-8"))
        player = Player(World.read(world))
        if document["format"] != FORMAT:
            raise ValueError(f"the format is {document['format']}, not {FORMAT}")
    except (ValueError, TypeError, OSError, KeyError) as error:
        print(f"runner: {error}", file=sys.stderr)
        return 2
    failed = False
    try:
        for scenario in document["scenarios"]:
            outcome = play(player, scenario)
            failed = failed or not outcome["ok"]
            print(json.dumps(outcome), flush=True)
    finally:
        player.close()
    return 1 if failed else 0


def play(player: Player, scenario: Json) -> Json:
    """Play the steps of a scenario; return its outcome."""
    variables = {
        "client": player.world.client,
        "target": player.world.target,
        "dead_target": player.world.dead_target,
        "unique": f"{player.world.client}-{uuid.uuid4().hex}",
    }
    for number, step in enumerate(scenario["steps"], start=1):
        problem = play_step(player, step, variables)
        if problem:
            where = f"step {number} ({step.get('rpc') or step.get('do')})"
            return {"name": scenario["name"], "ok": False, "problem": f"{where}: {problem}"}
    outcome = {"name": scenario["name"], "ok": True}
    if "export" in scenario:
        outcome["exports"] = {name: variables[name] for name in scenario["export"]}
    return outcome


def play_step(player: Player, step: Json, variables: dict[str, Json]) -> str:
    """Play a step and bind its variables; return an error message, or an empty text."""
    filled = {
        key: value if key == "bind" else fill(value, variables) for key, value in step.items()
    }
    call = player.rpc if "rpc" in filled else player.do
    try:
        result = call(filled, filled.get("as", "writer"))
    except TuskPointError as error:
        return _unlike(filled.get("expect_error"), error)
    if "expect_error" in filled:
        return f"it should have failed with {filled['expect_error']}"
    try:
        check(filled.get("expect", {"$any": True}), result)
    except Mismatch as mismatch:
        return str(mismatch)
    variables |= {name: at(result, path) for name, path in step.get("bind", {}).items()}
    return ""


def _unlike(expected: Json, error: TuskPointError) -> str:
    """Return the difference between an error and the expected error, or an empty text."""
    reported = {
        "status": error.status,
        "reason": error.reason,
        "metadata": dict(error.metadata),
        "fields": [name for name, _ in error.violations],
    }
    if expected is None:
        return f"it failed with {reported}: {error.message}"
    try:
        check(expected, reported, "error")
    except Mismatch as mismatch:
        return f"{mismatch}; the error is {reported}: {error.message}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
