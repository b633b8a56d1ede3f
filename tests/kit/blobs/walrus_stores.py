"""Walrus stores for one test each, on peers that fail on demand or on emulators."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
)

from tests.kit.blobs.walrus_peer import Fault, Peer, World, problem
from tuskpoint_emulators.walrus.server import WalrusEmulator
from tuskpoint_emulators.walrus.settings import EmulatorSettings
from tuskpoint_server.blobs.walrus.settings import WalrusSettings
from tuskpoint_server.blobs.walrus.store import WalrusStore

SECRET = b"a secret that is as long as the hash of the algorithm"
HTML = {"Content-Type": "text/html"}
NOT_FOUND = problem(404, "NOT_FOUND", "BLOB_NOT_FOUND")
INTERNAL = problem(500, "INTERNAL", "INTERNAL_ERROR")
MALFORMED = problem(400, "INVALID_ARGUMENT", "MALFORMED_REQUEST")


class Time:
    """A clock that advances only by pauses."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Kit:
    """Stores, and the time that their pauses add up to."""

    def __init__(self) -> None:
        self.time = Time()
        self._stores: list[WalrusStore] = []

    def open(self, urls: Sequence[str], settings: dict[str, Any], **options: Any) -> WalrusStore:
        """Open a store on publishers and aggregators, unless the settings name others."""
        chosen = {"publishers": tuple(urls), "aggregators": tuple(urls), **settings}
        store = WalrusStore(WalrusSettings(**chosen), sleep=self.time.sleep, **options)
        self._stores.append(store)
        return store

    async def end(self) -> None:
        for store in self._stores:
            await store.close()


class PeerKit(Kit):
    """Peers of one world, and stores on them."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.peers: list[Peer] = []
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider([self._reader])

    async def peer(self, *script: Fault) -> Peer:
        peer = await Peer(self.world).start()
        peer.script.extend(script)
        self.peers.append(peer)
        return peer

    def store(self, *peers: Peer | str, **settings: object) -> WalrusStore:
        return self.open(
            [peer if isinstance(peer, str) else peer.url for peer in peers],
            settings,
            clock=self.time.clock,
            now=lambda: 1_700_000_000.5,
            random=lambda: 1.0,
            provider=self._provider,
        )

    def metric(self, name: str) -> dict[tuple[object, ...], float]:
        """Return the counts of a metric by the values of its attributes."""
        data = self._reader.get_metrics_data()
        counts: dict[tuple[object, ...], float] = {}
        if data is None:
            return counts
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        for point in metric.data.data_points:
                            assert isinstance(point, HistogramDataPoint | NumberDataPoint)
                            counts[tuple((point.attributes or {}).values())] = (
                                point.count
                                if isinstance(point, HistogramDataPoint)
                                else point.value
                            )
        return counts

    async def end(self) -> None:
        await super().end()
        for peer in self.peers:
            await peer.stop()
        self._provider.shutdown()


class EmulatorKit(Kit):
    """Emulators of one network, and stores on them."""

    def __init__(self) -> None:
        super().__init__()
        self.emulators: list[WalrusEmulator] = []

    async def emulator(self, **settings: Any) -> WalrusEmulator:
        world = self.emulators[0].world if self.emulators else None
        emulator = WalrusEmulator(EmulatorSettings(**settings), world=world)
        await emulator.start()
        self.emulators.append(emulator)
        return emulator

    def store(self, *emulators: WalrusEmulator, **settings: object) -> WalrusStore:
        urls = [emulator.url for emulator in emulators]
        return self.open(urls, settings, random=random.Random(1).random)

    async def end(self) -> None:
        await super().end()
        for emulator in self.emulators:
            await emulator.stop()
