"""Every client plays the same scenarios on the same server, and hands a run to the next client."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.integration.access.tls_kit import SecureServer, running_secure_server
from tests.interop.scenarios.clients import (
    CLIENTS,
    CannotBuildError,
    ScenarioClient,
    play,
    world_of,
)
from tests.interop.scenarios.runner import FORMAT

SCENARIOS = Path(__file__).with_name("scenarios.json")
STATE = {
    "plan": ["lire", "écrire 🐘"],
    "budget": 12.5,
    "nested": {"deep": [None, True, {"n": -7}]},
}

# The first compilation of a client takes long.
pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(900)]

Step = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    with running_secure_server(tmp_path_factory.mktemp("scenarios")) as running:
        yield running


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runners")


@cache
def built(client: ScenarioClient, directory: Path) -> Sequence[str]:
    """Return the command of a client's runner, or skip with the reason."""
    try:
        return client.build(directory)
    except CannotBuildError as lacking:
        pytest.skip(str(lacking))


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_scenario_holds(
    client: ScenarioClient, server: SecureServer, directory: Path
) -> None:
    command = built(client, directory)
    outcomes = play(command, world_of(client.name, server), SCENARIOS, directory)
    problems = [
        f"{outcome['name']}: {outcome['problem']}" for outcome in outcomes if not outcome["ok"]
    ]
    assert not problems, "\n".join(problems)
    wanted = json.loads(SCENARIOS.read_text(encoding="utf-8"))["scenarios"]
    assert [outcome["name"] for outcome in outcomes] == [scenario["name"] for scenario in wanted]


def test_a_run_is_handed_from_language_to_language(server: SecureServer, directory: Path) -> None:
    """Each client adopts the hand-off of the client before it, and continues; Python gets it
    back."""
    names = ("python", "go", "typescript", "python")
    commands = {client.name: built(client, directory) for client in CLIENTS if client.name in names}
    state: dict[str, Any] = dict(STATE)
    descriptor: dict[str, str] | None = None
    for place, name in enumerate(names):
        thread_id = f"relay-{place}-{name}"
        steps = [] if descriptor is None else adopting(descriptor, thread_id, state)
        state = state | {f"step_{place}": name}
        steps += going_on(thread_id, state)
        descriptor = played(commands[name], name, server, directory, steps, "descriptor")
    assert state == STATE | {f"step_{place}": name for place, name in enumerate(names)}


@pytest.mark.parametrize("first", ["python", "go"])
def test_a_thread_is_driven_by_every_language(
    first: str, server: SecureServer, directory: Path
) -> None:
    """Each client continues with the kind of versions that the first client gave the thread."""
    names = (first, "typescript", "python", "go")
    commands = {client.name: built(client, directory) for client in CLIENTS if client.name in names}
    thread_id = f"shared-{first}"
    kept, raised = [], []
    for turn, name in enumerate(names):
        state = {"kept": "écrire", "turn": turn}
        steps = saving(thread_id, state)
        channels = played(commands[name], name, server, directory, steps, "channels")
        versions = {channel["name"]: channel["version"] for channel in channels}
        kept.append(versions["kept"])
        raised.append(versions["turn"])
    assert kept == [raised[0]] * len(names)
    (kind,) = {kind for version in raised for kind in version}
    counted = [int(version[kind].split(".")[0]) for version in raised]
    assert counted == [counted[0] + turn for turn in range(len(names))]


def saving(thread_id: str, state: dict[str, Any]) -> list[Step]:
    """Return steps that save a state and read its stored channels."""
    return [
        {"do": "save", "with": {"thread_id": thread_id, "state": state}},
        {
            "rpc": "CheckpointService/GetCheckpoint",
            "request": {"ref": {"thread_id": thread_id}, "view": "VIEW_FULL"},
            "bind": {"channels": "checkpoint.state.channels"},
        },
    ]


def adopting(descriptor: dict[str, str], thread_id: str, state: dict[str, Any]) -> list[Step]:
    """Return steps that adopt a hand-off, and expect exactly this state."""
    return [
        {
            "do": "adopt",
            "with": {"descriptor": descriptor, "new_thread_id": thread_id},
            "expect": {"new_thread_id": thread_id, "verified": True},
        },
        {
            "do": "load",
            "with": {"thread_id": thread_id},
            "expect": {"state": state},
        },
        {
            "do": "load",
            "with": {"thread_id": thread_id},
            "expect": {"state": {"$length": len(state)}},
        },
    ]


def going_on(thread_id: str, state: dict[str, Any]) -> list[Step]:
    """Return steps that save a state and hand it off."""
    return [
        {"do": "save", "with": {"thread_id": thread_id, "state": state, "summary": "Continued."}},
        {
            "do": "handoff",
            "with": {"thread_id": thread_id, "to_agent": "the next"},
            "expect": {"thread_id": thread_id, "to_agent": "the next", "summary": "Continued."},
            "bind": {"descriptor": ""},
        },
    ]


def played(
    command: Sequence[str],
    name: str,
    server: SecureServer,
    directory: Path,
    steps: list[Step],
    variable: str,
) -> Any:
    """Let a client play steps, and return the value that they bound to a variable."""
    scenario = {"name": "a leg of the relay", "steps": steps, "export": [variable]}
    file = directory / "relay.json"
    document = {"format": FORMAT, "scenarios": [scenario]}
    file.write_text(json.dumps(document), encoding="utf-8")
    (outcome,) = play(command, world_of(name, server), file, directory)
    assert outcome["ok"], f"{name}: {outcome['problem']}"
    return outcome["exports"][variable]
