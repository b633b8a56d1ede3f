"""No effect is done twice, and none is lost in silence, however often agents are killed.

`TUSKPOINT_EFFECT_KILLS=n` sets the number of kills of each test (5), `TUSKPOINT_EFFECT_FLEET=1`
adds tests with three servers over one PostgreSQL, which are killed too, and
`TUSKPOINT_KILL_SEED=text` repeats the moments of an earlier run.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash.effects import agents
from tests.crash.effects.receiver import Receiver
from tests.kit.databases import journal_of
from tests.kit.servers.forking import Forked
from tests.kit.servers.processes import ServerProcess, own_environment
from tests.many.fleet import running_fleet

KILLS = int(os.environ.get("TUSKPOINT_EFFECT_KILLS", "5"))
ENOUGH_KILLS = 50  # that many kills interrupt an effect at least once
SEED = os.environ.get("TUSKPOINT_KILL_SEED") or secrets.token_hex(4)

pytestmark = [
    pytest.mark.crash,
    pytest.mark.timeout(120 + 10 * KILLS),
]


@pytest.fixture(scope="module")
def target(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp(f"effects-{database}")
    journal = journal_of(folder / "server" / "data")
    with ServerProcess(folder / "server", {"TUSKPOINT_JOURNAL": str(journal)}) as server:
        server.start()
        yield server.target


@pytest.mark.parametrize("honours_keys", [True, False])
def test_killed_agents_do_each_effect_once(
    target: str, database: str, tmp_path: Path, honours_keys: bool
) -> None:
    with running_agents(target, tmp_path, honours_keys=honours_keys) as run:
        code = run.program.wait(60 + 10 * KILLS)
    check(run, code, database)


@dataclass
class Run:
    """A run of the agents."""

    program: Forked
    receiver: Receiver
    folder: Path
    honours_keys: bool


@contextmanager
def running_agents(target: str, folder: Path, *, honours_keys: bool) -> Iterator[Run]:
    """Run the agents, which are killed `KILLS` times."""
    print(f"TUSKPOINT_KILL_SEED={SEED}")
    with Receiver(honours_keys=honours_keys) as receiver:
        arguments = {
            "--target": target,
            "--world": receiver.address,
            "--folder": str(folder),
            "--seed": SEED,
            "--kills": str(KILLS),
            "--on-unknown": "retry" if honours_keys else "fail",
            "--prefix": "honours" if honours_keys else "ignores",
        }
        words = [word for pair in arguments.items() for word in pair]
        log = folder / "agents.log"
        with Forked(agents.main, words, own_environment(), log) as program:
            yield Run(program, receiver, folder, honours_keys)


def check(run: Run, code: int, where: str) -> None:
    """Check that the agents finished, and that the world did the work of each effect once."""
    assert code == 0, (run.folder / "agents.log").read_text()
    finished = sum(path.stat().st_size for path in run.folder.glob("agent-*"))
    unknown = sum(len(path.read_text().splitlines()) for path in run.folder.glob("unknown-*"))
    counts = {"kills": KILLS, "threads": finished, "requests": run.receiver.requests}
    print(json.dumps({"where": where, "honours": run.honours_keys, **counts, "unknown": unknown}))
    done = run.receiver.done
    assert {name: count for name, count in done.items() if count != 1} == {}
    assert len(done) == finished * len(agents.EFFECTS)
    if run.honours_keys:
        assert unknown == 0
    elif KILLS >= ENOUGH_KILLS:
        assert unknown > 0


if "TUSKPOINT_EFFECT_FLEET" in os.environ:

    @pytest.mark.parametrize("honours_keys", [True, False])
    def test_killed_agents_and_servers_do_each_effect_once(
        tmp_path: Path, honours_keys: bool
    ) -> None:
        moments = random.Random(f"{SEED} servers")
        with (
            running_fleet(tmp_path) as fleet,
            running_agents(",".join(fleet.targets), tmp_path, honours_keys=honours_keys) as run,
        ):
            kills = 0
            while (code := run.program.poll()) is None:
                server = moments.choice(fleet.servers)
                time.sleep(moments.uniform(0.5, 3))
                server.kill()
                time.sleep(moments.uniform(0, 1))
                server.start()
                kills += 1
            check(run, code, f"three servers, killed {kills} times")
