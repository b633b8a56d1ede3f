"""One schedule, which a seed chooses, from the first step to the last check."""

from __future__ import annotations

import asyncio
import hashlib
import random
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.kit.drafts import TENANT
from tests.simulation.at_rest.damage import concerns
from tests.simulation.at_rest.faults import AtRest, names_an_edit, with_faults_at_rest
from tests.simulation.at_rest.losses import Losses
from tests.simulation.clients import EXPECTED, Clients
from tests.simulation.coordination.calls import Coordination, with_coordination
from tests.simulation.environment.crashes import Crash, Life, failpoints_visit
from tests.simulation.environment.faulty_store import (
    EPOCH_S,
    StoreFaults,
    Vault,
)
from tests.simulation.environment.keys import keys_of
from tests.simulation.environment.memory_database import JournalFaults
from tests.simulation.environment.virtual_loop import Deadlock, VirtualLoop
from tests.simulation.plan import Plan, make_plan
from tests.simulation.promises import checks
from tests.simulation.promises.checks import Look
from tests.simulation.promises.violation import Violation, check
from tests.simulation.server import Server
from tests.simulation.starting import Starts
from tuskpoint_server.archive.renew import unneeded
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import CheckpointKey
from tuskpoint_server.core.threads import is_reserved

_BEGIN_US = 1_700_000_000_000_000
_MOST_LIVES = 12
_BESIDE = ("flush", "evict", "sweep", "index", "look")
"""Work of the server itself, which may continue while clients make calls."""


@dataclass
class Outcome:
    """The outcome of a schedule."""

    lives: int = 0
    catalogs: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    fingerprint: str = ""


class World:
    """Servers, their clients, and the store, in one loop with a virtual clock."""

    def __init__(self, plan: Plan, rng: random.Random, root: Path) -> None:
        self.plan = plan
        self.rng = rng
        self.loop = VirtualLoop()
        self.life = Life()
        self.vault = Vault(plan.limits, self.loop.time, plan.epoch_s)
        names = ("main", "other")[: plan.servers]
        self.servers = [Server(name, self.vault, rng, root, sealed=plan.sealed) for name in names]
        self.looks = {name: Look() for name in names}
        self.clients = Clients(rng, self.clock_us)
        self.at_rest = AtRest(self.clients, plan.seed)
        self.coordination = Coordination(self.clients, plan.seed)
        self.starts = Starts(self.clock_us, root)
        self.losses = Losses(self.clients, self.vault, self.looks, plan.seed)
        self.outcome = Outcome()
        self.calm = False
        self._events: dict[str, Callable[[Server], Awaitable[None]]] = {
            "crash": self._crash, "restart": self.restart, "outage": self._outage,
            "lose": self._lose, "pause": self._pause, "reborn": self._reborn, "month": self._month,
            "collect": self._collect, "edit_and_restart": self._edit_and_restart,
            "roll_back": self._roll_back, **self.at_rest.events(), **self.losses.events(),
            **self.coordination.events(),
        }  # fmt: skip
        self._related = False
        self._left = plan.steps
        self._acts: Callable[[], Awaitable[None]] | None = None
        self._trace = hashlib.sha256()
        self._beside: set[asyncio.Task[None]] = set()

    def clock_us(self) -> int:
        """Return the virtual time, in microseconds since the Unix epoch."""
        return _BEGIN_US + int(self.loop.time() * 1e6)

    def visit(self, place: str) -> None:
        """Visit a place in the current life."""
        self.life.visit(place)

    def run(self) -> Outcome:
        """Run the schedule.

        Raises:
            Violation: A promise was broken.
        """
        ended = False
        while not ended:
            self.outcome.lives += 1
            self.life = self._new_life()
            ended = self._live()
        self.loop.close()
        self.outcome.fingerprint = self._trace.hexdigest()[:12]
        return self.outcome

    def play(self, acts: Callable[[], Awaitable[None]]) -> None:
        """Run `acts` on started servers; `acts` causes every fault."""
        self._acts = acts
        if not self._live():
            raise Violation("the servers crashed")
        self.loop.close()

    def _new_life(self) -> Life:
        ends = self.outcome.lives < _MOST_LIVES and self.rng.random() < self.plan.crashes
        return Life(self.rng.choice((5, 20, 60, 150)) if ends and not self.calm else None)

    def _live(self) -> bool:
        """Run a life; return whether it was the last one."""
        over: asyncio.Future[None] = self.loop.create_future()
        self.life.on_end = lambda: _soon(self.loop, over)
        main = self.loop.create_task(self._main())
        try:
            self.loop.run_until_complete(asyncio.wait({main, over}, return_when="FIRST_COMPLETED"))
            if main.done() and not main.cancelled():
                error = main.exception()
                if error is None:
                    return True
                if not isinstance(error, Crash):
                    raise error
            return False
        except Deadlock as stuck:
            raise Violation(f"the schedule is stuck: {stuck}") from stuck
        finally:
            self.life.alive = False
            over.cancel()
            self._beside.clear()
            self.loop.forget_turns()
            left = self.loop.living()
            for task in left:
                task.cancel()
            if left:
                self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))

    async def _main(self) -> None:
        await self._start()
        for server in self.servers:
            await self.check(server)
        if self._acts is not None:
            await self._acts()
        while self._left > 0:
            self._left -= 1
            await self._step()
        await self._end()

    async def _start(self) -> None:
        store = StoreFaults() if self.calm else self.plan.store
        journal = JournalFaults() if self.calm else self.plan.journal
        for server in self.servers:
            server.disk.fails = 0.0 if self.calm else self.plan.disk_fails
            accepts = self.losses.operator_accepts()
            given_up = await self.starts.admit(server) | self._corrupted(server)
            if given_up and accepts:
                self.losses.accept(server)
            settings = {**self.plan.settings, "given_up": given_up}
            while True:
                try:
                    await server.start(self.life, self.clock_us, store, journal, **settings)
                    break
                except (Refusal, OSError):  # An operator starts the server again.
                    await server.database.close()

    def _corrupted(self, server: Server) -> frozenset[str]:
        """Accept, as an operator does, that the newest catalog is corrupted."""
        known = checks.newest(server)
        lost = known and (known.location.blob_id, known.location.sha256) in self.vault.lost
        return frozenset({known.location.blob_id} if known and lost else ())

    # --- steps ---------------------------------------------------------------------------

    async def _step(self) -> None:
        names = list(self.plan.weights)
        name = self.rng.choices(names, [self.plan.weights[name] for name in names])[0]
        server = self.servers[0 if self.rng.random() < 0.7 else -1]
        self.outcome.steps[name] += 1
        self._note(name, server.name)
        self.loop.forget_turns()
        if name in self._events:
            await self._call(self._events[name], server)
        elif name in _BESIDE and self.rng.random() < 0.6:
            self._start_beside(self._call(getattr(self.clients, name), server))
        elif name == "save_and_wait":
            saved = await self._call(self.clients.save, server)
            if saved is not None:
                self._start_beside(
                    self._call(lambda target: self.clients.wait(target, saved), server)
                )
        else:
            await self._call(getattr(self.clients, name), server)
        await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.1, 1.0, 5.0)))
        for peer in self.servers:
            await self.check(peer)

    def _start_beside(self, call: Any) -> None:
        task: asyncio.Task[None] = self.loop.create_task(call)
        self._beside.add(task)

    async def _call(self, call: Callable[[Server], Awaitable[Any]], server: Server) -> Any:
        try:
            return await call(server)
        except Refusal as refusal:
            self._note(refusal.reason)
            malformed = refusal.reason is Reason.BLOB_MALFORMED and self.vault.lost
            if not (refusal.reason in EXPECTED or malformed or names_an_edit(refusal, server)):
                raise Violation(f"a call was refused: {refusal}") from refusal
        except OSError:
            self._note("OSError")
        return None

    async def _crash(self, server: Server) -> None:
        self.life.end()
        raise Crash

    async def restart(self, server: Server | None = None) -> None:
        """Stop all servers and start them again."""
        for peer in self.servers:
            await peer.stop()
        await self._start()

    async def _edit_and_restart(self, server: Server) -> None:
        """Edit a row while no server runs."""
        for peer in self.servers:
            await peer.stop()
        self.at_rest.change(server)
        await self._start()

    async def _roll_back(self, server: Server) -> None:
        """Replace the journal with an older journal, or with an empty one."""
        for peer in self.servers:
            await peer.stop()
        if self._beside:
            await asyncio.wait(self._beside, timeout=60.0)
        given_up = self.losses.put_back(server)
        self.at_rest.forget(server)
        before = self.starts.kept(server)
        named = server.disk.pointer
        await self._start()
        known, kept = given_up.known, self.starts.kept(server)[len(before) :]
        is_kept = not named or server.disk.pointer == named or named in kept
        check(is_kept, named, "was given up, and is named nowhere")
        if known is not None and not self.vault.lost and known.location.blob_id in kept:
            look = Look()
            await checks.recover(server, known, self.clock_us(), look)
            same = given_up.threads is None or look.threads == given_up.threads
            check(same, "what was given up is not recovered as it was")

    async def _reborn(self, server: Server) -> None:
        """Restart a server with a journal recovered from its catalog, or from another server's
        catalog."""
        origin = self.rng.choice(self.servers)
        known = checks.newest(origin)
        if known is not None and not self.vault.lost:
            # A catalog from before the last recovery leads to the generation of that recovery.
            rises = origin is server and known.catalog.generation >= server.database.generation
            for peer in self.servers:
                await peer.stop()
            with self.clients.ledgers.recovery(server, rises=rises):
                await server.recover(known, self.clock_us)
            self.at_rest.forget(server)
            self.losses.forget_copies(server)
            self.losses.accepted.pop(server.name, None)
            self.starts.numbers.pop(server.name, None)
            self._related = self._related or origin is not server
            self.looks[server.name] = Look()
            await self._start()

    async def _collect(self, server: Server) -> None:
        """Remove unneeded blobs of a directory, unless a journal recovered from another catalog may
        need them."""
        if self.vault.epoch_s is None and not self.vault.lost and not self._related:
            await self._sleep(unneeded.MIN_AGE_S + 1)
            for peer in self.servers:
                await peer.stop()
            of_others = len(self.servers) == 1
            self.losses.forget_copies()
            removed = await server.collect(self.clock_us, of_others=of_others)
            self.outcome.steps["blobs collected"] += removed
            await self._start()

    async def _outage(self, server: Server) -> None:
        now = self.loop.time()
        self.vault.outage = (now, now + self.rng.choice((10.0, 600.0, 2 * 24 * 3600.0)))

    async def _pause(self, server: Server) -> None:
        await self._sleep(self.rng.choice((1.0, 60.0, 1000.0)))

    async def _month(self, server: Server) -> None:
        self.losses.forget_copies()
        await self._sleep(EPOCH_S)

    async def _sleep(self, seconds: float) -> None:
        """Sleep; the server retries damaged threads all the time."""
        parts = 14 if self.plan.at_rest else 1
        for _ in range(parts):
            self.loop.forget_turns()
            await asyncio.sleep(seconds / parts)

    async def _lose(self, server: Server) -> None:
        members = [
            (blob, sha256) for blob, pack in sorted(self.vault.packs.items()) for sha256 in pack
        ]
        if members:
            harm = self.rng.choice((self.vault.lose, self.vault.corrupt))
            harm(*self.rng.choice(members))

    # --- checks --------------------------------------------------------------------------

    async def check(self, server: Server) -> None:
        if self.clients.problems:
            raise Violation("; ".join(self.clients.problems))
        for task in [task for task in self._beside if task.done()]:
            self._beside.discard(task)
            if not task.cancelled():
                task.result()
        self.loop.forget_turns()
        self.at_rest.heal(server)
        self.starts.follow(server)
        checks.journal_holds_what_was_acknowledged(server)
        self.clients.ledgers.compare(server)
        checks.marks_are_consistent(server)
        look = self.looks[server.name]
        self.outcome.catalogs += await checks.recovery_brings_back_what_is_certified(
            server, look, self.clock_us(), self.rng, self.clients.values
        )
        self._note(look.catalog.hex())

    async def _end(self) -> None:
        """End all faults: everything becomes certified, or is a gap, in little time."""
        self.calm = True
        self.vault.outage = (0.0, 0.0)
        for server in self.servers:
            server.calm()
        if self._beside and not self.vault.lost:
            waiting = self._beside
            for _ in range(12 if waiting else 0):
                self.loop.forget_turns()
                if waiting:
                    _, waiting = await asyncio.wait(waiting, timeout=900.0)
            if waiting:
                raise Violation("somebody waits for ever")
        await self.restart()
        for server in self.servers:
            self.loop.forget_turns()
            problem = None
            for _ in range(4):
                try:
                    async with asyncio.timeout(3600.0):
                        problem = await server.flushed()
                except TimeoutError:
                    raise Violation("a flush does not end") from None
                await asyncio.sleep(60.0)
            lost = bool(self.vault.lost or concerns(server)) and problem is not None
            if problem is not None and not (lost and problem.reason is Reason.CERTIFICATION_FAILED):
                raise Violation(f"a flush fails without faults: {problem}")
            await self.check(server)
            accepted = self.losses.accepted.get(server.name, set())
            checks.losses_are_named(server, self.looks[server.name], accepted)
            whole = not self.vault.lost
            await self.at_rest.inspect(server, whole=True, stored=whole, may_fail=False)
            if not self.vault.lost:
                await self._everything_is_there(server)
        for server in self.servers:
            await server.stop()

    async def _everything_is_there(self, server: Server) -> None:
        left = {
            name
            for name, thread in server.shadow.threads.items()
            if thread.certified_seq < thread.seq
        }
        edited = concerns(server)
        if left - edited.keys():
            raise Violation(f"a flush left {left} uncertified")
        if edited:
            return
        if server.archive._flusher(TENANT).backlog.size_bytes or server.disk.spooled:
            raise Violation("everything is certified, and something waits or is spooled")
        for name, place in server.model.users():
            if not is_reserved(name):
                await self.clients.compare(server, CheckpointKey(name, *place))
        await self.check(server)

    def _note(self, *what: object) -> None:
        self._trace.update(f"{self.loop.time()} {what}\n".encode())


def _soon(loop: VirtualLoop, over: asyncio.Future[None]) -> None:
    loop.call_soon(over.cancel)


def run_schedule(seed: int, change: Callable[[Plan], Plan] = lambda plan: plan) -> Outcome:
    """Run one schedule.

    Args:
        seed: Chooses everything.
        change: Changes the plan.

    Raises:
        Violation: A promise was broken.
    """
    rng = random.Random(seed)
    random.seed(seed)
    plan = replace(make_plan(rng), sealed=seed % 2 == 1, seed=seed)
    plan = change(with_coordination(with_faults_at_rest(plan, seed), seed))
    with tempfile.TemporaryDirectory() as root:
        world = World(plan, rng, Path(root))
        with failpoints_visit(world.visit), keys_of(seed):
            return world.run()


__all__ = ["Outcome", "Plan", "Violation", "World", "make_plan", "run_schedule"]
