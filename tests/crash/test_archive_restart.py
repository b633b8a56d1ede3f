"""The archive is killed between any two steps; the next start brings all to certainty."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.integration.archive_kit import TENANT, Kit, open_kit
from tuskpoint_server.domain.catalog import ThreadHead
from tuskpoint_server.domain.model import CheckpointKey, View

pytestmark = pytest.mark.crash

ROOT = Path(__file__).parents[2]
FAILPOINTS = (
    "archive.after_collect",
    "archive.after_spool_file",
    "archive.after_spooled",
    "archive.after_put",
    "archive.after_stored",
    "archive.after_read_back",
    "archive.after_certified",
    "archive.after_pointer",
)


@pytest.mark.parametrize("visit", [1, 3])
@pytest.mark.parametrize("failpoint", FAILPOINTS)
async def test_restart_after_kill(tmp_path: Path, failpoint: str, visit: int) -> None:
    acknowledged = await killed_at(tmp_path, f"{failpoint}:{visit}")
    async with open_kit(tmp_path, start=False) as kit:
        before = await certified_by_now(kit, acknowledged)
        await kit.archive.start()
        outcome = await kit.archive.certify_all(TENANT)
        assert outcome.catalog is not None
        for name in acknowledged:
            entry = await kit.entry(name, "a")
            assert entry.certified_revision == entry.revision >= before[name]
            stored, journaled = await kit.stored(name, "a"), await kit.journaled(name, "a")
            assert (stored.state, stored.writes) == (journaled.state, journaled.writes)
        manifest = await kit.manifest("a")
        assert set(acknowledged) <= set(manifest)
        assert all(head.ended == name.startswith("gone") for name, head in await visible(kit))
        assert await kit.archive.chain_problem(TENANT, "a") == ""
        assert (tmp_path / "catalog").read_text() == f"{outcome.catalog.blob_id}\n"
        assert list((tmp_path / "spool").iterdir()) == []
        status = await kit.archive.status(TENANT)
        assert (status.backlog_checkpoints, status.spool_bytes) == (0, 0)


async def killed_at(root: Path, failpoint: str) -> list[str]:
    """Run the child until it is killed; return the acknowledged IDs of thread `a`."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.crash.archive_child",
        str(root),
        cwd=ROOT,
        env={**os.environ, "TUSKPOINT_FAILPOINT": failpoint},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await child.communicate()
    assert child.returncode == -signal.SIGKILL
    assert b"done" not in output
    return [line.split()[1] for line in output.decode().splitlines()]


async def certified_by_now(kit: Kit, names: list[str]) -> dict[str, int]:
    """Return certified revisions; whatever has one must be readable from the blobs alone."""
    found: dict[str, int] = {}
    for name in names:
        entry = await kit.entry(name, "a")
        found[name] = entry.certified_revision
        if entry.certified_revision:
            stored, journaled = await kit.stored(name, "a"), await kit.journaled(name, "a")
            assert stored.state == journaled.state
            if entry.certified_revision == entry.revision:
                assert stored.writes == journaled.writes
    return found


async def visible(kit: Kit) -> list[tuple[str, ThreadHead]]:
    """Return the catalog's heads, less threads that were still alive when the child died."""
    alive = []
    for name, head in (await kit.heads()).items():
        loaded = await kit.journal.load(
            TENANT, CheckpointKey(name, "", name.removeprefix("gone-")), View.ENTRY
        )
        if not (name.startswith("gone") and loaded is not None):
            alive.append((name, head))
    return alive
