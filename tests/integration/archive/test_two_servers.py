"""Two server processes that share only the blob store can hand off."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kit.messages import SECOND, THREAD

SECONDS = 60
NEW_NETWORKS: tuple[tuple[str, ...], ...] = (
    ("unshare", "--user", "--map-root-user", "--net"),
    ("unshare", "--net"),
)
"""Ways to run a program in a new network namespace; the first way that works is used."""


def new_network() -> tuple[tuple[str, ...], str]:
    """Return the prefix of a command, or none and the reason why no network can be created."""
    if shutil.which("unshare") is None:
        return (), "there is no 'unshare' here to make network namespaces with"
    problems = []
    for prefix in NEW_NETWORKS:
        probe = [*prefix, sys.executable, "-m", "tests.kit.servers.loopback"]
        tried = subprocess.run(probe, capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return prefix, ""
        problems.append(tried.stderr.strip().rpartition("\n")[2])
    return (), f"this machine lets nobody make network namespaces: {'; '.join(problems)}"


async def start(prefix: Sequence[str], *arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *prefix,
        *(sys.executable, "-m", "tests.integration.features.lineage.handoff_side"),
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if "TUSKPOINT" not in name},
    )


async def reported(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), SECONDS)
    report: dict[str, Any] = json.loads(line)
    return report


async def end(process: asyncio.subprocess.Process) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return await asyncio.wait_for(process.wait(), SECONDS)


async def test_two_servers_share_nothing_but_the_blob_store(tmp_path: Path) -> None:
    """Each server has its own network; where no network can be created, both run on one network."""
    prefix, lacking = await asyncio.to_thread(new_network)
    blobs = tmp_path / "blobs"
    giver = await start(prefix, "give", tmp_path / "giver", blobs)
    taker = await start(prefix, "take", tmp_path / "taker", blobs)
    try:
        giver_report = await reported(giver)
        assert taker.stdin is not None
        taker.stdin.write(json.dumps(giver_report["descriptor"]).encode() + b"\n")
        taker_report = await reported(taker)
        assert [await end(taker), await end(giver)] == [0, 0]
    finally:
        for process in (giver, taker):
            if process.returncode is None:
                process.kill()
                await process.communicate()

    assert taker_report["found"] == giver_report["found"]
    adoption = taker_report["adoption"]
    assert adoption.pop("blob_id")
    assert adoption == {
        "adopted_from": f"{THREAD}:{SECOND}",
        "new_thread_id": "adopted",
        "checkpoint_id": SECOND,
        "verified": True,
        "signer": adoption["signer"],
    }
    assert adoption["signer"]
    stages = [stage.removeprefix("ADOPT_STAGE_") for stage in taker_report["stages"]]
    assert stages == ["FETCHING", "FETCHED", "VERIFIED", "ADOPTED"]
    journals = [tmp_path / name / "journal.db" for name in ("giver", "taker")]
    assert all(journal.stat().st_size for journal in journals)
    if lacking:
        pytest.skip(f"checked on one network only: {lacking}")
    networks = {giver_report["network"], taker_report["network"], os.readlink("/proc/self/ns/net")}
    assert len(networks) == 3
