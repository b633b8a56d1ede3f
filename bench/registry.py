"""The measures by their names for `python -m bench NAME`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from bench.measures import start
from bench.measures.agents import (
    fan_out,
    flood,
    graphs,
    growth,
    latency,
    over_network,
    peer_settings,
    server_cost,
    sleepers,
    steps,
)
from bench.measures.certification import (
    background,
    flush,
    idle_threads,
    sealing,
    walrus_certified,
    walrus_cost,
)
from bench.measures.cost import calls, memory, scale
from bench.measures.journal import on_postgres, stored_bytes, writer
from bench.measures.reading import replay, search
from bench.report import Table
from bench.setting import Setting


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure.

    Attributes:
        about: One line that says what it measures.
        run: Runs the measure.
        compares_postgres: Whether the measure compares with PostgreSQL, if there is one.
    """

    about: str
    run: Callable[[Setting], Coroutine[Any, Any, Table]]
    compares_postgres: bool = False


MEASURES: dict[str, Measure] = {
    "steps": Measure(steps.TITLE, steps.measure, compares_postgres=True),
    "latency": Measure(latency.TITLE, latency.measure, compares_postgres=True),
    "network": Measure(over_network.TITLE, over_network.measure),
    "sleepers": Measure(sleepers.TITLE, sleepers.measure, compares_postgres=True),
    "peer-settings": Measure(peer_settings.TITLE, peer_settings.measure, compares_postgres=True),
    "graphs": Measure(graphs.TITLE, graphs.measure, compares_postgres=True),
    "calls": Measure(calls.TITLE, calls.measure, compares_postgres=True),
    "memory": Measure(memory.TITLE, memory.measure),
    "start": Measure(start.TITLE, start.measure),
    "growth": Measure(growth.TITLE, growth.measure),
    "fan-out": Measure(fan_out.TITLE, fan_out.measure, compares_postgres=True),
    "idle-threads": Measure(idle_threads.TITLE, idle_threads.measure),
    "journal-bytes": Measure(stored_bytes.TITLE, stored_bytes.measure),
    "journal-writer": Measure(writer.TITLE, writer.measure),
    "postgres-journal": Measure(on_postgres.TITLE, on_postgres.measure, compares_postgres=True),
    "scale": Measure(scale.TITLE, scale.measure, compares_postgres=True),
    "replay": Measure(replay.TITLE, replay.measure, compares_postgres=True),
    "search": Measure(search.TITLE, search.measure),
    "flush": Measure(flush.TITLE, flush.measure),
    "sealing": Measure(sealing.TITLE, sealing.measure),
    "flood": Measure(flood.TITLE, flood.measure),
    "background": Measure(background.TITLE, background.measure),
    "server-cost": Measure(server_cost.TITLE, server_cost.measure),
    "walrus-cost": Measure(walrus_cost.TITLE, walrus_cost.measure),
    "walrus-certified": Measure(walrus_certified.TITLE, walrus_certified.measure),
}
