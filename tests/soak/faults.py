"""Faults of a soak; each kind follows its own random schedule."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from tests.kit.servers.processes import ServerEndedError, WalrusProcess
from tests.soak.background import Background
from tests.soak.machine import Disk, SoakServer
from tests.soak.wire import Wire
from tuskpoint_server.core.process import EXIT_DEFECT

RESTART_SECONDS = 120.0
DAY_SECONDS = 23 * 3600  # One hour more is still less than the day after which the server forgets.
HOUR_SECONDS = 50 * 60
WATCH_SECONDS = 0.2
CLOCK_SECONDS = 1.0  # how often the server checks its clock, so that the jumps have an effect

Strike = Callable[[random.Random], tuple[str, AbstractContextManager[None]]]
"""Draws a fault: its name, and a context that lasts as long as the fault."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Attributes:
        name: The part that fails.
        strike: Draws a fault.
        pause_s: Least and greatest seconds between two faults.
        lasts_s: Least and greatest seconds that a fault lasts.
        least_s: Least seconds that a fault lasts at any pace.
    """

    name: str
    strike: Strike
    pause_s: tuple[float, float]
    lasts_s: tuple[float, float]
    least_s: float = 0.0


class Faults(Background):
    """Causes faults until it is closed; then everything works again.

    Args:
        kinds: The kinds of faults.
        seed: Chooses faults and moments.
        pace: Factor of all times.

    Attributes:
        happened: Number of faults, by name.
        log: Lines with the time of each fault.
    """

    def __init__(self, kinds: list[Kind], seed: str, pace: float) -> None:
        super().__init__()
        self._began = time.monotonic()
        self._pace = pace
        self.happened: Counter[str] = Counter()
        self.log: list[str] = []
        for kind in kinds:
            self.add(partial(self._run, kind, random.Random(f"{seed} {kind.name}")))

    def _run(self, kind: Kind, source: random.Random) -> None:
        while not self.over.wait(self._pace * source.uniform(*kind.pause_s)):
            name, fault = kind.strike(source)
            seconds = max(kind.least_s, self._pace * source.uniform(*kind.lasts_s))
            self.happened[name] += 1
            self.log.append(f"{time.monotonic() - self._began:7.1f} {name} for {seconds:.1f} s")
            with fault:
                self.over.wait(seconds)


def wire_kind(name: str, wire: Wire) -> Kind:
    """Return the faults of a connection."""

    def strike(source: random.Random) -> tuple[str, AbstractContextManager[None]]:
        return source.choice(
            [
                (f"{name}: broken", wire.breaking()),
                (f"{name}: stalled", wire.stalled()),
                (f"{name}: slow", wire.slow()),
            ]
        )

    return Kind(name, strike, (10, 40), (2, 8))


BLOB_FAULTS: Mapping[str, tuple[tuple[str, float, Mapping[str, object]], ...]] = {
    "refused": (
        ("put_quilt", 0.6, {"kind": "refuse", "status": 503}),
        ("put_blob", 0.6, {"kind": "refuse", "status": 503}),
    ),
    "down": (
        ("put_quilt", 1.0, {"kind": "gateway", "status": 502}),
        ("put_blob", 1.0, {"kind": "gateway", "status": 502}),
        ("get_blob", 1.0, {"kind": "gateway", "status": 502}),
        ("get_patch", 1.0, {"kind": "gateway", "status": 502}),
    ),
    "dropped after storing": (
        ("put_quilt", 0.5, {"kind": "drop", "stage": "certified"}),
        ("put_blob", 0.5, {"kind": "drop", "stage": "certified"}),
    ),
    "slow": (
        ("put_quilt", 1.0, {"kind": "delay", "latency_s": 2.0}),
        ("get_blob", 0.5, {"kind": "delay", "latency_s": 1.0}),
        ("get_patch", 0.5, {"kind": "delay", "latency_s": 1.0}),
    ),
    "reads cut": (
        ("get_blob", 0.4, {"kind": "cut"}),
        ("get_patch", 0.4, {"kind": "cut"}),
        ("get_patch", 0.2, {"kind": "short"}),
        ("get_blob", 0.2, {"kind": "corrupt"}),
    ),
    "hidden": (("put_quilt", 0.5, {"kind": "hide", "hidden_reads": 2}),),
}
"""Faults of the emulator: for each name the operations, the probability, and the effect."""


def blob_kind(walrus: WalrusProcess) -> Kind:
    """Return the faults of the blob store."""

    @contextmanager
    def striking(name: str) -> Iterator[None]:
        for operation, probability, fault in BLOB_FAULTS[name]:
            walrus.strike(operation, probability, **fault)
        yield
        walrus.calm()

    def strike(source: random.Random) -> tuple[str, AbstractContextManager[None]]:
        name = source.choice(sorted(BLOB_FAULTS))
        return f"blob store: {name}", striking(name)

    return Kind("blob store", strike, (5, 25), (5, 25))


def disk_kind(server: SoakServer, disk: Disk | None) -> Kind:
    """Return the faults of the server's disk; without `disk`, the disk is never full."""

    def strike(source: random.Random) -> tuple[str, AbstractContextManager[None]]:
        if disk is not None and source.random() < 0.6:
            return "disk: full", disk.full()
        return "disk: writes fail", server.failing_writes()

    return Kind("disk", strike, (20, 60), (3, 12))


def clock_kind(server: SoakServer, seed: str) -> Kind:
    """Return the jumps of the server's clock; after each jump the clock jumps back.

    The clock jumps by up to 50 minutes forwards or backwards, or by hours up to nearly a day. The
    long jumps of one seed have one direction, so that two moments never differ by a day: after a
    day the server may forget request IDs and writes without a checkpoint.
    """
    direction = random.Random(f"{seed} direction").choice((1, -1))

    @contextmanager
    def jump(seconds: int) -> Iterator[None]:
        server.set_clock(seconds)
        yield
        server.set_clock(0)

    def strike(source: random.Random) -> tuple[str, AbstractContextManager[None]]:
        if source.random() < 0.5:
            seconds = direction * source.randint(HOUR_SECONDS, DAY_SECONDS)
        else:
            seconds = source.choice((1, -1)) * source.randint(60, HOUR_SECONDS)
        way = "forwards" if seconds > 0 else "backwards"
        distance = "hours" if abs(seconds) >= 3600 else "minutes"
        return f"clock: {distance} {way}", jump(seconds)

    return Kind("clock", strike, (10, 40), (8, 30), least_s=CLOCK_SECONDS)


class Leader(Background):
    """Restarts the server whenever it ends; also kills and freezes the server.

    Args:
        server: The running server.
        source: Chooses the moments.
        pace: Factor of all times.
        kills_s: Seconds after which the server is killed once more, and frozen only from then on.

    Attributes:
        settled: Set once the last process of the server listens.
        kills: Number of kills.
        freezes: Number of freezes.
        failed_starts: Messages of the server when it could not start.
        problems: Events that must not happen.
    """

    def __init__(
        self, server: SoakServer, source: random.Random, pace: float, *, kills_s: float
    ) -> None:
        super().__init__()
        self.add(self._keep)
        self._server = server
        self._source = source
        self._pace = pace
        self._kills_s = kills_s
        self.settled = threading.Event()
        self.kills = 0
        self.freezes = 0
        self.failed_starts: list[str] = []
        self.problems: list[str] = []

    def _kill(self) -> None:
        self._server.kill()
        self.kills += 1
        self._start()

    def _keep(self) -> None:
        due, last = self._next(), time.monotonic() + self._kills_s
        kills_now = True
        while not self.over.wait(WATCH_SECONDS):
            now = time.monotonic()
            if self._server.pid is None:
                code = self._server.ended(0)
                self.problems.append(f"the server ended by itself with {code}")
                self._start()
            elif kills_now and (now > last or (now > due and self._source.random() < 0.7)):
                kills_now = now <= last
                self._kill()
                if not kills_now:
                    self.settled.set()
            elif now > due:
                self._freeze()
            if now > due:
                due = self._next()

    def _next(self) -> float:
        return time.monotonic() + self._pace * self._source.uniform(8, 25)

    def _freeze(self) -> None:
        self.freezes += 1
        self._server.freeze()
        self.over.wait(self._pace * self._source.uniform(1, 8))
        self._server.thaw()

    def _start(self) -> None:
        """Start the server, and retry while its disk prevents the start."""
        deadline = time.monotonic() + RESTART_SECONDS
        while True:
            try:
                self._server.start()
                return
            except ServerEndedError as error:
                code = self._server.give_up()
                self.failed_starts.append(f"{code}: {str(error).strip().splitlines()[-1]}")
                if code == EXIT_DEFECT:
                    self.problems.append(f"a start ended with {code}: {error}")
                if time.monotonic() > deadline:
                    raise
                time.sleep(WATCH_SECONDS)
