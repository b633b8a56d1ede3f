"""Cost of sealing for saves and flushes."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio

from bench.measures.certification.flush import fill, flush
from bench.report import Table, number, ratio
from bench.running.servers import Server, running_tuskpoint
from bench.setting import Setting
from tuskpoint_server.keys import key_file

TITLE = "Cost of sealing"
_NOTHING = "nothing"
_SEALED = {"TUSKPOINT_SEAL_JOURNAL": "1"}


@dataclass
class _Spent:
    """Costs of a server's saves and flushes, for each checkpoint."""

    save_us: list[float] = field(default_factory=list)
    save_cpu_us: list[float] = field(default_factory=list)
    flush_us: list[float] = field(default_factory=list)
    flush_cpu_us: list[float] = field(default_factory=list)

    def medians(self) -> list[float]:
        """Return the median of each."""
        return [sorted(values)[len(values) // 2] for values in vars(self).values()]


async def measure(setting: Setting) -> Table:
    """Save and flush in turn on servers with different sealing."""
    rounds = 2 if setting.quick else 8
    folder = setting.place("sealing")
    keys = folder / "tuskpoint.keys"
    key_file.make(keys)
    sealed = {"TUSKPOINT_KEY_FILE": str(keys)}
    kinds = {_NOTHING: {}, "blobs": sealed, "blobs and journal": {**sealed, **_SEALED}}
    spent = {name: _Spent() for name in kinds}
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(_server(folder / str(number_of), settings))
            for number_of, (name, settings) in enumerate(kinds.items())
        }
        for turn in range(rounds):
            for name, server in servers.items():
                await _once(server, turn, spent[name])
    medians = {name: costs.medians() for name, costs in spent.items()}
    rows = [
        [
            name,
            *(
                cell
                for figure, bare in zip(figures, medians[_NOTHING], strict=True)
                for cell in (number(figure), ratio(figure, bare))
            ),
        ]
        for name, figures in medians.items()
    ]
    notes = [
        f"Medians of {rounds} rounds, the servers in turn, for each checkpoint with 4 KiB of new "
        "values. A flush stores, reads back and records 900 checkpoints of 18 threads in a "
        "directory. 18 callers save concurrently. CPU is the processor time of the server. Each "
        "ratio compares with the server that seals nothing."
    ]
    columns = ("save µs", "save CPU µs", "flush µs", "flush CPU µs")
    header = ("sealed", *(name for column in columns for name in (column, "ratio")))
    return Table(TITLE, header, rows, notes)


def _server(folder: Path, settings: dict[str, str]) -> AbstractContextManager[Server]:
    folder.mkdir()
    return running_tuskpoint(folder, {"TUSKPOINT_FLUSH_INTERVAL": "3600", **settings})


async def _once(server: Server, turn: int, spent: _Spent) -> None:
    async with grpc.aio.insecure_channel(server.target) as channel:
        began, used = time.perf_counter(), server.cpu_seconds()
        count = await fill(channel, turn)
        saved, used_saving = time.perf_counter(), server.cpu_seconds()
        certified, seconds = await flush(channel)
        assert certified == count
        flushing = server.cpu_seconds() - used_saving
    spent.save_us.append((saved - began) * 1e6 / count)
    spent.save_cpu_us.append((used_saving - used) * 1e6 / count)
    spent.flush_us.append(seconds * 1e6 / count)
    spent.flush_cpu_us.append(flushing * 1e6 / count)
