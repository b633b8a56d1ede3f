"""Losses of whole stores: the blob directory is lost or unmounted, the journal is rolled back.

While the newest catalog is lost, nothing becomes certified and the status says why. A start is
refused until the operator brings the blobs back, or accepts the loss.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.kit.drafts import TENANT
from tests.simulation.clients import Clients
from tests.simulation.environment.faulty_store import Vault
from tests.simulation.environment.virtual_loop import VirtualLoop
from tests.simulation.promises import checks
from tests.simulation.promises.checks import Look
from tests.simulation.promises.committed_rows import Shadow, Thread
from tests.simulation.promises.model import Model, Story
from tests.simulation.promises.violation import check
from tests.simulation.server import Server
from tuskpoint_server.archive.rows.status import NewestCatalog
from tuskpoint_server.blobs.api import BlobMember
from tuskpoint_server.core.errors import Reason, Refusal

LOOK_S = 600.0
"""Seconds between two checks of a server that its blob store has the newest catalog."""


@dataclass
class _Copy:
    """A copy of a journal, with the expected content."""

    data: bytes
    stories: dict[str, Story]
    doubtful: set[str]
    shadow: Shadow
    recovered_seqs: dict[str, int]
    captured: dict[tuple[str, str], Any]


@dataclass
class GivenUp:
    """Content that an older journal gives up at an accepted start; it can still be recovered."""

    known: NewestCatalog | None
    threads: dict[str, Thread] | None


class Losses:
    """Loses blobs and journals.

    Args:
        clients: The clients, with their snapshots in each journal.
        vault: The content of the blob store.
        looks: Result of the last recovery from each server's newest catalog.
        seed: Chooses the losses.

    Attributes:
        accepted: Blobs that each server gave up for good, by blob ID and hash.
    """

    def __init__(self, clients: Clients, vault: Vault, looks: dict[str, Look], seed: int) -> None:
        self._clients = clients
        self._vault = vault
        self._looks = looks
        self._rng = random.Random(f"{seed} losses")
        self._copies: dict[str, list[_Copy]] = {}
        self._away: dict[str, dict[bytes, BlobMember]] = {}
        self._emptied = 0
        self._given_up: set[tuple[str, bytes]] = set()
        self.accepted: dict[str, set[tuple[str, bytes]]] = {}

    @property
    def is_away(self) -> bool:
        """Whether blobs are lost that may come back."""
        return bool(self._away)

    # --- blobs ---------------------------------------------------------------------------

    async def wipe(self, server: Server) -> None:
        """Lose all blobs, or the newest catalog; the status and certification must report it."""
        known = checks.newest(server)
        if known is None or self._vault.lost:
            return
        blobs = [known.location.blob_id] if self._rng.random() < 0.4 else list(self._vault.packs)
        for blob_id in blobs:
            pack = self._vault.packs.get(blob_id, {})
            self._away[blob_id] = dict(pack)
            for sha256 in list(pack):
                self._vault.lose(blob_id, sha256)
        if self._vault.epoch_s is None:
            # During an outage, the store cannot report a blob as lost.
            self._vault.outage = (0.0, 0.0)
            await self._is_said(server)

    async def _is_said(self, server: Server) -> None:
        """Check that a running server reports its lost blobs, and certifies nothing."""
        before, said = checks.newest(server), ""
        for _ in range(20):
            await pause(LOOK_S + 1)
            if checks.newest(server) != before:
                return  # The catalog was in flight, and the store has it.
            said = (await server.archive.status(TENANT)).last_error
            if "it lacks catalog" in said:
                break
        check("it lacks catalog" in said, "blobs are lost, and the status says", repr(said))
        try:
            saved = await self._clients.save(server)
            async with asyncio.timeout(24 * 3600.0):
                await server.archive.certify(TENANT, saved.key, saved.seq)
        except TimeoutError:
            check(False, "blobs are lost, and nobody who waits for certification is told")
        except Refusal as refusal:
            if refusal.reason is not Reason.CERTIFICATION_FAILED:
                raise
        else:
            check(False, "blobs are lost, and a change was certified")
        check(checks.newest(server) == before, "blobs are lost, and a catalog was certified")

    async def mount(self, server: Server) -> None:
        """Bring the lost blobs back."""
        self.bring_back()

    def bring_back(self) -> None:
        """Bring the lost blobs back."""
        for blob_id, pack in self._away.items():
            self._vault.packs.setdefault(blob_id, {}).update(pack)
            self._vault.lost -= {(blob_id, sha256) for sha256 in pack}
        self._away.clear()

    def accept(self, server: Server) -> None:
        """Accept the loss of the lost blobs."""
        self._given_up |= {
            (blob_id, sha256) for blob_id, pack in self._away.items() for sha256 in pack
        }
        self.accepted[server.name] = set(self._given_up)
        self._away.clear()

    def operator_accepts(self) -> bool:
        """Return whether the operator accepts the loss at a start, or else bring the blobs back."""
        if self._away and self._rng.random() < 0.5:
            self.bring_back()
            return False
        return True

    # --- journals ------------------------------------------------------------------------

    async def copy_journal(self, server: Server) -> None:
        """Keep a copy of the journal."""
        model, known = server.model, self._clients.captured.items()
        stories = {name: _copied(story) for name, story in model.stories.items()}
        self._copies.setdefault(server.name, []).append(
            _Copy(
                server.disk.journal.driver.serialize(),
                stories,
                set(model.doubtful),
                server.shadow.copy(),
                dict(server.recovered_seqs),
                {at: made for at, made in known if at[0] == server.name},
            )
        )

    def forget_copies(self, server: Server | None = None) -> None:
        """Forget copies, because the journal was replaced, or blobs that they need may be gone."""
        for name in [server.name] if server is not None else list(self._copies):
            self._copies.pop(name, None)

    def put_back(self, server: Server) -> GivenUp:
        """Replace the journal of a stopped server with a copy, or with an empty journal."""
        copies = self._copies.get(server.name, [])
        chosen = self._rng.choice([*copies, None]) if self._rng.random() < 0.8 else None
        known, look, name = checks.newest(server), self._looks[server.name], server.name
        is_known = known is not None and look.catalog == known.location.sha256
        given_up = GivenUp(known, look.threads if is_known else None)
        disk, captured = server.disk.journal, self._clients.captured
        for at in [at for at in captured if at[0] == name]:
            del captured[at]
        if chosen is None:
            self._emptied += 1
            disk.format(f"journal-{name}-empty-{self._emptied}")
            server.model, server.shadow, server.recovered_seqs = Model(), Shadow(disk), {}
            self.forget_copies(server)
        else:
            disk.driver.deserialize(chosen.data)
            server.model, server.shadow = Model(), chosen.shadow.copy()
            server.model.stories = {name: _copied(story) for name, story in chosen.stories.items()}
            server.model.doubtful = set(chosen.doubtful)
            server.recovered_seqs = dict(chosen.recovered_seqs)
            captured.update(chosen.captured)
        self._looks[name] = Look()
        self.accepted.pop(name, None)
        return given_up

    def events(self) -> dict[str, Callable[[Server], Any]]:
        """Return the possible events, by name."""
        return {"wipe": self.wipe, "mount": self.mount, "copy_journal": self.copy_journal}


def _copied(story: Story) -> Story:
    return Story(story.incarnation, dict(story.known), copy.deepcopy(story.early))


async def pause(seconds: float) -> None:
    """Sleep; meanwhile the server retries damaged threads all the time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.forget_turns()
    await asyncio.sleep(seconds)
