"""Faults at rest: changed rows and values, and reads of everything they affect.

A separate generator draws the edits from the schedule's seed, so that a schedule without faults at
rest has the same steps as without this package.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

from tests.kit.drafts import TENANT
from tests.simulation.at_rest.damage import Reader, concerns
from tests.simulation.at_rest.edits import Editor
from tests.simulation.at_rest.losses import LOOK_S, pause
from tests.simulation.clients import Clients
from tests.simulation.plan import Plan
from tests.simulation.promises.violation import check
from tests.simulation.server import Server
from tuskpoint_server.archive.verify.scrub import Scrubber
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import CheckpointKey
from tuskpoint_server.core.threads import is_reserved

EDITS, BLOBS, JOURNAL = "edits", "blobs", "journal"
"""Kinds of faults: changed rows and values; lost blobs; a rolled-back journal."""

_WEIGHTS = {
    EDITS: {"edit": 5.0, "edit_and_restart": 1.0, "remember": 3.0, "inspect": 5.0, "scrub": 1.0},
    BLOBS: {"wipe": 1.5, "mount": 1.0, "inspect": 3.0},
    JOURNAL: {"copy_journal": 3.0, "roll_back": 1.5, "inspect": 1.0},
}
_KINDS = ((), (), (EDITS,), (EDITS,), (BLOBS,), (JOURNAL,))


def with_faults_at_rest(plan: Plan, seed: int) -> Plan:
    """Add the faults at rest that a seed chooses; a third of the schedules has none."""
    rng = random.Random(f"{seed} at rest")
    kinds = rng.choice(_KINDS)
    for kind in kinds:
        plan = with_kind(plan, kind, rng.choice((0.5, 1.0, 2.0)))
    return plan


def with_kind(plan: Plan, kind: str, often: float) -> Plan:
    """Add faults of a kind, with a factor of their frequency."""
    added = {name: usual * often for name, usual in _WEIGHTS[kind].items()}
    settings = {"look_interval_s": LOOK_S} if kind == BLOBS else {}
    return replace(
        plan,
        weights=plan.weights | added,
        settings=plan.settings | settings,
        at_rest=plan.at_rest | {kind},
    )


class AtRest:
    """Makes edits at rest in the journals of servers, and reads the affected threads.

    Args:
        clients: The clients, with all sent values.
        seed: Draws the edits.
    """

    def __init__(self, clients: Clients, seed: int) -> None:
        self._clients = clients
        self._rng = random.Random(f"{seed} edits")
        self._editors: dict[str, Editor] = {}

    def editor(self, server: Server) -> Editor:
        """Return the editor of a server's journal."""
        ledger = server.disk.journal.ledger
        return self._editors.setdefault(server.name, Editor(ledger, self._rng))

    def forget(self, server: Server) -> None:
        """Forget the copies of rows, because the journal was replaced."""
        self._editors.pop(server.name, None)

    async def remember(self, server: Server) -> None:
        """Keep copies of some rows."""
        self.editor(server).remember()

    async def edit(self, server: Server) -> None:
        """Edit a row, and in half of the cases read threads at once."""
        self.change(server)
        if self._rng.random() < 0.5:
            await self.inspect(server)

    def change(self, server: Server) -> None:
        """Edit a row."""
        self.editor(server).edit()
        server.edited |= concerns(server).keys()

    def heal(self, server: Server) -> None:
        """Take the content of threads that are no longer tainted from the journal."""
        ledger = server.disk.journal.ledger
        ledger.tainted()
        healed, ledger.healed = ledger.healed, set()
        threads = server.shadow.threads.items() if healed else ()
        if names := [name for name, thread in threads if thread.number in healed]:
            server.shadow.follow(names)
            server.believe(names)

    async def inspect(
        self, server: Server, *, whole: bool = False, stored: bool = False, may_fail: bool = True
    ) -> None:
        """Read threads by all kinds of calls.

        Args:
            server: The server with the threads.
            whole: Whether to read all threads and all checkpoints.
            stored: Whether to verify their stored blobs, too.
            may_fail: Whether the blob store or the journal may fail at the moment.
        """
        self.heal(server)
        reader = Reader(server, self._clients.values, may_fail)
        names = sorted({name for name, _ in server.model.users() if not is_reserved(name)})
        edited = sorted(concerns(server).keys() & set(names))
        if not whole:
            names = [*edited[:3], *self._rng.sample(names, min(2, len(names)))]
        for name in names:
            if name in server.model.doubtful:
                continue
            places = sorted(server.model.stories[name].known)
            if not whole:
                places = self._rng.sample(places, min(4, len(places)))
            for place in places:
                await reader.load(CheckpointKey(name, *place))
            for replayed in (False, True):
                await reader.list(name, replayed=replayed)
            await reader.verify(name, whole=stored)

    async def scrub(self, server: Server) -> None:
        """Let a pass of the scrub end, and compare the threads that it names with the damaged
        ones."""
        before = concerns(server)
        scrubber: Scrubber = server.archive.scrubber(1 << 30)
        scrubbed = (await server.archive.status(TENANT)).scrubbed_us
        task = asyncio.get_running_loop().create_task(scrubber.run())
        try:
            for _ in range(20):
                await pause(300.0)
                status = await server.archive.status(TENANT)
                if task.done() or status.scrubbed_us != scrubbed:
                    break
        finally:
            task.cancel()
            [ended] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ended, Exception):
            raise ended
        after, named = concerns(server), set(status.damaged_threads)
        if status.scrubbed_us != scrubbed:
            unnamed = before.keys() & after.keys() - named
            check(not unnamed, "the scrub does not name", unnamed, [*map(str, after.values())])
        sound = named - server.edited
        check(not sound, "the scrub names", sound, "which are sound")

    def events(self) -> dict[str, Any]:
        """Return the possible events, by name."""
        return {
            "edit": self.edit, "remember": self.remember, "inspect": self.inspect,
            "scrub": self.scrub,
        }  # fmt: skip


def names_an_edit(refusal: Refusal, server: Server) -> bool:
    """Return whether a refusal names a thread that was edited at rest."""
    named = refusal.metadata.get("thread_id")
    return refusal.reason is Reason.JOURNAL_DAMAGED and named in server.edited
