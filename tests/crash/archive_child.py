"""Saves and flushes until its environment kills it; prints what was acknowledged.

Arguments: the directory. Each line is a thread and a checkpoint ID, or "done".
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.integration.archive_kit import TENANT, open_kit, write
from tuskpoint_server.domain.model import CheckpointKey, PruneStrategy


async def run(root: Path) -> None:
    async with open_kit(root) as kit:
        for round_number in range(3):
            for number in range(5):
                name = f"{round_number}-{number}"
                await kit.save(name, thread_id="a", content=name.encode() * 100)
                print("a", name, flush=True)
            if round_number:
                await kit.save_writes(f"{round_number - 1}-4", write(b"late"), thread_id="a")
            await kit.save(str(round_number), thread_id=f"gone-{round_number}")
            await kit.archive.certify_all(TENANT)
            await kit.journal.delete_thread(TENANT, f"gone-{round_number}")
            await kit.journal.set_label(
                TENANT, CheckpointKey("a", "", f"{round_number}-0"), "labelled"
            )
        await kit.save("1", thread_id="pruned")
        await kit.save("2", "1", thread_id="pruned")
        await kit.archive.certify_all(TENANT)
        await kit.journal.prune_thread(TENANT, "pruned", PruneStrategy.KEEP_LATEST)
        await kit.archive.certify_all(TENANT)
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
