"""The start of a server: it compares journal, pointer file and blob store, as a real server does.

The operator accepts whatever the refusal names. The comparison is the server's own code; this
module knows from the certified catalogs which starts the server must refuse.
"""

from __future__ import annotations

import logging
import random
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from sqlalchemy import Connection

from tests.kit.drafts import TENANT
from tests.simulation.environment.faulty_store import PlainStore
from tests.simulation.environment.memory_database import Disk, MemoryDatabase
from tests.simulation.promises import checks
from tests.simulation.promises.violation import check
from tests.simulation.server import Server
from tuskpoint_server.archive.flush.packs import Pointer
from tuskpoint_server.commands.startup import start_checks
from tuskpoint_server.core.process import EXIT_ARCHIVE, EXIT_JOURNAL, StartError
from tuskpoint_server.features.recovery import compare_start
from tuskpoint_server.journal.sql.sqlite import Sqlite

_log = logging.getLogger(__name__)

Number = tuple[int, int]
"""Generation and number of a catalog."""


class _InMemory(Sqlite):
    """A journal in memory, which no power failure can damage."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(Path("memory"), disk.engine)

    def check(self, connection: Connection) -> None:
        return


class Starts:
    """Starts servers as their operator does.

    Args:
        clock_us: Returns the microseconds since the Unix epoch.
        root: A directory for pointer files.

    Attributes:
        numbers: Certified catalogs of each server: hash and blob ID by number.
        refused: Refused starts, by server and exit code.
    """

    def __init__(self, clock_us: Callable[[], int], root: Path) -> None:
        self._clock_us = clock_us
        self._root = root
        self._rng = random.Random(0)
        self.numbers: dict[str, dict[Number, tuple[bytes, str]]] = {}
        self.refused: list[tuple[str, int]] = []

    def follow(self, server: Server) -> None:
        """Record the newest catalog; no other catalog may have its number."""
        known = checks.newest(server)
        if known is None:
            return
        number = (known.catalog.generation, known.catalog.number)
        here = (known.location.sha256, known.location.blob_id)
        before = self.numbers.setdefault(server.name, {}).setdefault(number, here)
        check(before[0] == here[0], "catalog number", number, "was given twice")
        self.numbers[server.name][number] = here

    async def admit(self, server: Server) -> frozenset[str]:
        """Compare until the start is admitted, and return the catalogs that were given up.

        Raises:
            Violation: The start was admitted although something is newer or lost, or refused
                without such a reason.
        """
        accepted: dict[str, list[str]] = {"missing-blobs": [], "older-journal": []}
        while True:
            lacks, is_older, may_be = self._lacks(server), *self._is_older(server)
            named = server.disk.pointer
            kept = self.kept(server)
            lacks = lacks if lacks not in accepted["missing-blobs"] else ""
            is_older = is_older and named not in accepted["older-journal"]
            may_be = may_be and named not in accepted["older-journal"]
            try:
                await self._compare(server, accepted)
            except StartError as refusal:
                flag = {EXIT_ARCHIVE: "missing-blobs", EXIT_JOURNAL: "older-journal"}[refusal.code]
                due = bool(lacks) if flag == "missing-blobs" else may_be or bool(kept)
                check(due, server.name, "does not start:", refusal)
                given_up = re.findall(rf"--accept-{flag}=([\w-]+)", str(refusal))
                concerned = {lacks} if flag == "missing-blobs" else {named, *kept}
                check(bool(given_up) and concerned.issuperset(given_up), "the line is", refusal)
                check(server.disk.pointer == named, "a refused start changed the pointer file")
                accepted[flag] += given_up
                self.refused.append((server.name, refusal.code))
                continue
            check(not lacks, server.name, "starts although the store lacks catalog", lacks)
            check(not is_older, server.name, "starts although", named, "is newer")
            readable = [blob_id for blob_id in self.kept(server) if server.vault.pack(blob_id)]
            self._forget_unnamed(server, [named, *readable])
            return frozenset(accepted["missing-blobs"])

    def _forget_unnamed(self, server: Server, named: list[str]) -> None:
        """Forget the newest catalogs if neither journal nor pointer files know them; both may be
        older.

        A pointer file cannot be written while the disk is full, and nobody knows the generation of
        a given-up catalog that is not in the store.
        """
        catalogs, known = self.numbers.get(server.name, {}), checks.newest(server)
        left = [number for number, (_, blob_id) in catalogs.items() if blob_id in named]
        if known is not None:
            left.append((known.catalog.generation, known.catalog.number))
        last = max(left, default=(0, 0))
        self.numbers[server.name] = {
            number: at for number, at in catalogs.items() if number <= last
        }

    def kept(self, server: Server) -> list[str]:
        """Return the catalogs that the set-aside pointer files name."""
        folder = self._pointer(server).parent
        files = sorted(folder.glob("catalog+old-*")) if folder.exists() else []
        return [path.read_text("utf-8").strip() for path in files]

    def _lacks(self, server: Server) -> str:
        """Return the newest catalog if the blob store lacks it, else an empty text."""
        known, vault = checks.newest(server), server.vault
        if known is None or not known.location.blob_id:
            return ""
        blob_id = known.location.blob_id
        return blob_id if known.location.sha256 not in vault.pack(blob_id) else ""

    def _is_older(self, server: Server) -> tuple[bool, bool]:
        """Return whether the journal is older than its pointer file, and whether it may be
        older."""
        named, known = server.disk.pointer, checks.newest(server)
        if not named:
            return False, False
        catalogs = self.numbers.get(server.name, {})
        theirs = [number for number, (_, blob_id) in catalogs.items() if blob_id == named]
        if known is None:
            return True, True
        if named == known.location.blob_id:
            return False, False
        ours = (known.catalog.generation, known.catalog.number)
        is_lost = not server.vault.pack(named)
        is_lost = is_lost or any(blob_id == named for blob_id, _ in server.vault.lost)
        is_newer = bool(theirs) and max(theirs) > ours
        return is_newer, is_newer or is_lost or not theirs

    async def _compare(self, server: Server, accepted: dict[str, list[str]]) -> None:
        path, disk = self._pointer(server), server.disk
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        if disk.pointer:
            path.write_text(f"{disk.pointer}\n", "utf-8")
        config: Any = SimpleNamespace(
            pointer=path,
            accept_missing_blobs=accepted["missing-blobs"],
            accept_older_journal=accepted["older-journal"],
            bucket="",
            blob_directory=Path("blobs"),
            walrus_aggregator_url="",
            journal_name=f"journal of {server.name}",
            journal_place=_InMemory(disk.journal),
        )
        database = MemoryDatabase(disk.journal, self._clock_us, self._rng)
        store: Any = PlainStore(server.vault)
        try:
            left = await compare_start.read_earlier_catalogs(Pointer(path), database)
            with _without_chance(self._rng):
                await start_checks._compare(config, database, left, store, server.keys)
        finally:
            await database.close()
        disk.pointer = Pointer(path).named().get(TENANT, "")

    def _pointer(self, server: Server) -> Path:
        return self._root / server.name / "catalog"


@contextmanager
def _without_chance(rng: random.Random) -> Iterator[None]:
    """Let a journal start a new generation in place, with an ID that the seed chooses."""
    with (
        mock.patch.object(start_checks, "backend_of", lambda place: place),
        mock.patch("uuid.uuid4", return_value=uuid.UUID(int=rng.getrandbits(128))),
    ):
        yield
