"""Faults of servers that share a journal, and of their PostgreSQL."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

from tests.kit.servers.processes import ServerProcess
from tests.many.fleet import LEASE_SECONDS, Fleet

FROZEN_SECONDS = 1.5 * LEASE_SECONDS


def _nothing(_victim: ServerProcess) -> None:
    pass


class Trouble:
    """Kills one server at a time, and now and then causes a further fault.

    Args:
        fleet: The servers.
        source: Chooses servers and faults.

    Attributes:
        happened: Number of faults of each kind.
    """

    def __init__(self, fleet: Fleet, source: random.Random) -> None:
        self._fleet = fleet
        self._source = source
        self.happened: Counter[str] = Counter()
        self._more: list[Callable[[ServerProcess], None]] = []

    def strike(self, while_down: Callable[[ServerProcess], None] = _nothing) -> None:
        """Kill a random server and start it again.

        Each kind of further fault comes once in five strikes, in a random order.

        Args:
            while_down: Called with the killed server, before it is started again.
        """
        if not self._more:
            self._more = [_nothing, self._cut, self._freeze, self._crash, self._restart]
            self._source.shuffle(self._more)
        victim = self._source.choice(self._fleet.servers)
        time.sleep(self._source.uniform(0, 0.03))
        victim.kill()
        self.happened["kill"] += 1
        self._more.pop()(victim)
        while_down(victim)
        victim.start()

    def _cut(self, _victim: ServerProcess) -> None:
        self.happened["cut"] += 1
        self._fleet.cut()

    def _freeze(self, victim: ServerProcess) -> None:
        """Freeze another server for longer than its lease."""
        other_servers = [server for server in self._fleet.servers if server is not victim]
        if not other_servers:
            return
        self.happened["freeze"] += 1
        frozen = self._source.choice(other_servers)
        frozen.freeze()
        time.sleep(FROZEN_SECONDS)
        frozen.thaw()

    def _crash(self, _victim: ServerProcess) -> None:
        self.happened["crash of PostgreSQL"] += 1
        self._fleet.cluster.stop("immediate")
        self._fleet.cluster.start()

    def _restart(self, _victim: ServerProcess) -> None:
        self.happened["restart of PostgreSQL"] += 1
        self._fleet.cluster.stop("fast")
        self._fleet.cluster.start()
