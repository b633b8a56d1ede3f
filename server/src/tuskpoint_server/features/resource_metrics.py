"""Metrics of the server's resources: disk, memory, processor and open files.

The names `process.*` follow OpenTelemetry's semantic conventions.
"""

from __future__ import annotations

import os
import resource
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from ..archive.archive import Archive
from ..core.errors import Refusal
from ..journal.database.database import Database

_MEMORY = Path("/proc/self/statm")
_DESCRIPTORS = Path("/dev/fd")

Read = Callable[[], Iterable[Observation]]


class ResourceMetrics:
    """Reports sizes on disk and facts of the process, if the system provides them."""

    def __init__(
        self,
        journal: Database,
        archive: Archive,
        data_dir: Path,
        provider: MeterProvider | None = None,
    ) -> None:
        self._journal = journal
        self._journal_bytes: int | None = None
        self._meter = metrics.get_meter("tuskpoint_server.resources", meter_provider=provider)
        self._report_disk(archive, data_dir)
        self._report_process()

    async def measure_journal(self) -> int | None:
        """Measure the journal; the size is reported until the next call.

        Returns:
            The bytes; `None` if the journal cannot be read.
        """
        try:
            self._journal_bytes = await self._journal.size_bytes()
        except Refusal:
            self._journal_bytes = None
        return self._journal_bytes

    def _report_disk(self, archive: Archive, data_dir: Path) -> None:
        def journal() -> Iterable[Observation]:
            return [] if self._journal_bytes is None else [Observation(self._journal_bytes)]

        def spool() -> Iterable[Observation]:
            return [Observation(archive.spool.size_bytes())]

        def cache() -> Iterable[Observation]:
            return [Observation(archive.cache_bytes)]

        def free() -> Iterable[Observation]:
            return [Observation(shutil.disk_usage(data_dir).free)]

        def size() -> Iterable[Observation]:
            return [Observation(shutil.disk_usage(data_dir).total)]

        self._meter.create_observable_gauge(
            "tuskpoint.journal.size", [_safe(journal)], "By", "Bytes of the journal and its log."
        )
        self._meter.create_observable_gauge(
            "tuskpoint.spool.size", [_safe(spool)], "By", "Bytes of packs that are being stored."
        )
        self._meter.create_observable_gauge(
            "tuskpoint.cache.size", [_safe(cache)], "By", "Bytes of the local cache of blobs."
        )
        self._meter.create_observable_gauge(
            "tuskpoint.disk.free", [_safe(free)], "By", "Free bytes of the data directory's disk."
        )
        self._meter.create_observable_gauge(
            "tuskpoint.disk.size", [_safe(size)], "By", "Bytes of the data directory's disk."
        )

    def _report_process(self) -> None:
        started = time.monotonic()

        def memory() -> Iterable[Observation]:
            pages = int(_MEMORY.read_text("ascii").split()[1])
            return [Observation(pages * resource.getpagesize())]

        def processor() -> Iterable[Observation]:
            spent = os.times()
            return [
                Observation(spent.user, {"cpu.mode": "user"}),
                Observation(spent.system, {"cpu.mode": "system"}),
            ]

        def descriptors() -> Iterable[Observation]:
            return [Observation(len(os.listdir(_DESCRIPTORS)) - 1)]  # minus the listing's own

        def uptime() -> Iterable[Observation]:
            return [Observation(time.monotonic() - started)]

        self._meter.create_observable_up_down_counter(
            "process.memory.usage", [_safe(memory)], "By", "Resident memory of the server."
        )
        self._meter.create_observable_counter(
            "process.cpu.time", [_safe(processor)], "s", "Processor time of the server, by mode."
        )
        self._meter.create_observable_up_down_counter(
            "process.unix.file_descriptor.count",
            [_safe(descriptors)],
            "{file_descriptor}",
            "Open files and connections of the server.",
        )
        self._meter.create_observable_gauge(
            "process.uptime", [_safe(uptime)], "s", "Time since the server started."
        )


def _safe(read: Read) -> Callable[[CallbackOptions], Iterable[Observation]]:
    """Return an instrument's callback that reports nothing after an error of the system."""

    def observe(_: CallbackOptions) -> Iterable[Observation]:
        try:
            return read()
        except OSError:
            return []

    return observe
