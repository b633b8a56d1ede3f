"""One schedule from its seed: faults and calls, then calm, then the last checks."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulation import checks
from tests.simulation.clients import Clients
from tests.simulation.crashes import Crash, crashing_at_failpoints
from tests.simulation.faulty_store import EPOCH_S, EPOCHS, Shape
from tests.simulation.plan import DESCENTS, make_plan
from tests.simulation.virtual_loop import Deadlock, VirtualLoop
from tests.simulation.walk import PlainStore, Unreadable
from tests.simulation.world import TENANT, DefectLog, Violation, World
from tuskpoint_server.archive.recovery import Recovery
from tuskpoint_server.domain.errors import Refusal
from tuskpoint_server.journal import archive_status

_SMALL = {
    "SEGMENT_RECORDS": 5,
    "FAN_OUT": 3,
    "PAGE_HEADS": 2,
    "INDEX_PAGES": 2,
    "_MERGE_HEADS": 1,
    "_MERGE_HEADS_PER_CHANGE": 1,
}
"""Sizes that a short schedule outgrows."""

_AFTER_RECOVERY = ("save", "save_and_wait", "writes_and_wait", "label", "copy", "prune", "evict")

_PATIENCE_S = 6 * 3600.0
"""Virtual time in which a server whose store works has to finish."""

_MONTHS_S = 3 * EPOCHS * EPOCH_S
"""Virtual time after which nothing is left that was not renewed."""


@dataclass(frozen=True)
class Outcome:
    """What a schedule without violation did: its trace, and how much of what."""

    fingerprint: str
    lives: int
    catalogs: int
    points: frozenset[str]


def run_schedule(seed: int, *, shape: Shape | None = None, plain: bool = False) -> Outcome:
    """Run the schedule of a seed.

    Args:
        seed: The seed.
        shape: The store's shape; `None`: the seed chooses.
        plain: Leave lineage and snapshots alone.

    Raises:
        Violation: A promise was broken.
    """
    loop = VirtualLoop()
    with (
        tempfile.TemporaryDirectory(dir=_fast_disk()) as directory,
        _small_sizes(),
        _seeded(seed),
    ):
        root = Path(directory)
        plan = make_plan(random.Random(f"plan {seed}"), root, shape, plain=plain)
        world = World(seed, root, loop, plan)
        world.on_commit = checks.catalogs_follow_one_another
        world.on_put = checks.only_spooled_bytes_are_put
        loop.set_exception_handler(lambda _, context: _tell(world, context))
        with crashing_at_failpoints(world.disk), _listening(DefectLog(world)):
            try:
                loop.run_until_complete(_Driver(world).run())
            except Deadlock as deadlock:
                world.violate("waiters never hang", str(deadlock))
            finally:
                _close(world)
        world.verify()
        return Outcome(world.fingerprint, world.life.number, len(world.certified), world.points)


class _Driver:
    """Makes the calls of a schedule and ends the server's lives."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng
        self._clients = Clients(world)
        self._calls: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        world = self._world
        await world.live()
        names, weights = list(world.plan.weights), list(world.plan.weights.values())
        for _ in range(world.plan.steps):
            [name] = self._rng.choices(names, weights)
            await self._step(name)
            world.verify()
        await self._finish()

    async def _step(self, name: str) -> None:
        world, rng = self._world, self._rng
        if name == "crash":
            world.life.end("idle")
        elif name == "restart":
            await self._restart()
        elif name == "outage":
            now = world.loop.time()
            world.vault.outage = (now, now + 3600.0)
        else:
            call = asyncio.create_task(self._clients.call(name))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
            await self._until(call, rng.choice((0.0, 0.001, 20.0)))
        if rng.random() >= world.plan.hurry:
            longest = EPOCH_S if world.plan.months else 1800.0
            await self._until(None, rng.choice((0.05, 1.0, 5.0, 90.0, longest)))
        if not world.life.alive:
            await self._bury()

    async def _until(self, call: asyncio.Task[None] | None, seconds: float) -> None:
        """Let time pass until the call is done or the life is over."""
        if not seconds:
            await asyncio.sleep(0)
            return
        awaited: set[asyncio.Future[None]] = {self._world.death, *([call] if call else [])}
        await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def _restart(self) -> None:
        """Stop the server as SIGTERM does, and start it again."""
        world = self._world
        try:
            await world.archive.stop()
        except Crash:
            await self._bury()
            return
        if world.life.alive:
            world.life.end("stopped")
            await self._bury()

    async def _bury(self) -> None:
        world = self._world
        world.points |= {world.life.last}
        world.trace("crash", world.life.last)
        await world.bury()
        await checks.the_journal_holds_what_was_acknowledged(world)
        await world.live()

    async def _finish(self) -> None:
        """End the faults, give the server time, and check; then do so after a recovery."""
        world = self._world
        if not world.life.alive:
            await self._bury()
        world.calm_down()
        await self._check_at_rest()
        if world.plan.recovers and world.certified:
            await self._recover()
            names = _AFTER_RECOVERY if world.plan.plain else (*_AFTER_RECOVERY, *DESCENTS)
            for _ in range(3):
                await self._step(self._rng.choice(names))
            await self._check_at_rest()
        await world.archive.stop()

    async def _check_at_rest(self) -> None:
        world = self._world
        await self._until_done("waiters never hang", self._calls)
        world.verify()
        await self._until_flushed()
        await asyncio.sleep(_MONTHS_S if world.plan.months else _PATIENCE_S)
        world.verify()
        await checks.the_journal_holds_what_was_acknowledged(world)
        checks.all_is_certified(world)
        checks.the_store_alone_holds_everything(world)
        checks.the_pointer_names_the_newest_catalog(world)
        world.verify()

    async def _recover(self) -> None:
        """Lose the server with its disk, and go on with what a recovery brings back."""
        world = self._world
        known = archive_status.catalog(world.database.connection, TENANT)
        assert known is not None
        await world.archive.stop()
        world.life.end("recovery")
        await world.bury()
        await world.lose_disk()
        recovery = Recovery(TENANT, world.journal, PlainStore(world.vault), clock_us=world.clock)  # type: ignore[arg-type] # it only reads
        try:
            await recovery.from_catalog(known.location)
        except (Refusal, Unreadable) as problem:
            world.violate("recovery brings everything back", str(problem))
        world.verify()
        rows = world.database.ask("SELECT thread_id, incarnation, deleted FROM threads")
        world.model.forget_what_no_catalog_tells({row[0]: (row[1], bool(row[2])) for row in rows})
        await checks.recovery_brings_everything_back(world, world.database.connection)
        world.verify()
        await world.live()

    async def _until_done(self, promise: str, tasks: set[asyncio.Task[None]]) -> None:
        waiting = set(tasks)
        if not waiting:
            return
        _, hung = await asyncio.wait(waiting, timeout=_PATIENCE_S)
        if hung:
            self._world.violate(promise, f"{len(hung)} calls do not end")

    async def _until_flushed(self) -> None:
        call = asyncio.create_task(self._clients.call("flush"))
        await self._until_done("a flush ends once the store works", {call})


# --- making the process depend on the seed alone --------------------------------------------


def _fast_disk() -> str | None:
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() else None


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed what the server draws by itself."""
    names = random.Random(f"names {seed}")
    before, uuid.uuid4 = uuid.uuid4, lambda: uuid.UUID(int=names.getrandbits(128), version=4)
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        uuid.uuid4 = before
        random.setstate(state)


@contextmanager
def _small_sizes() -> Iterator[None]:
    """Make sizes small in every module that knows them."""
    changed: list[tuple[Any, str, Any]] = []
    for name, module in list(sys.modules.items()):
        if name.startswith("tuskpoint_server"):
            for constant, value in _SMALL.items():
                if constant in vars(module):
                    changed.append((module, constant, getattr(module, constant)))
                    setattr(module, constant, value)
    try:
        yield
    finally:
        for module, constant, value in changed:
            setattr(module, constant, value)


@contextmanager
def _listening(handler: logging.Handler) -> Iterator[None]:
    """Hear the server's errors, and nothing else of its log."""
    logger = logging.getLogger("tuskpoint_server")
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def _tell(world: World, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if not isinstance(error, Crash):
        world.violate("no task fails unseen", f"{context['message']}: {error!r}")


def _close(world: World) -> None:
    """End what is left, so that nothing of it is heard of later."""
    loop = world.loop
    world.life.end("closed")
    loop.forget_turns()
    left = loop.living()
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()


__all__ = ["Outcome", "Violation", "run_schedule"]
