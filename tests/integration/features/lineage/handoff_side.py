"""One side of a hand-off as a program: a server, and an agent that calls it.

`python -m tests.integration.features.lineage.handoff_side give|take DATA_DIR BLOB_DIR`

`give` saves a run, hands it off, writes a line of JSON with the descriptor, and serves until its
input ends. `take` reads such a line, adopts the thread, and writes its content. Each line also has
the network namespace of the side.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict

from tests.integration.features.lineage.handoff_kit import SUBGRAPH, Side, content, save_run
from tests.integration.features.lineage.handoff_servers import side
from tests.kit.messages import SECOND, THREAD
from tests.kit.servers import loopback
from tuskpoint.v1 import handoff_service_pb2 as pb


async def give(running: Side) -> None:
    """Hand a run off, and serve until the input ends."""
    await save_run(running)
    descriptor = await running.hand_off(to_agent="writer")
    report(descriptor=as_json(descriptor), found=await continuation(running, THREAD))
    await asyncio.to_thread(sys.stdin.read)


async def take(running: Side) -> None:
    """Adopt the thread that the input names."""
    line = await asyncio.to_thread(sys.stdin.readline)
    descriptor = ParseDict(json.loads(line), pb.HandoffDescriptor())
    frames = await running.adopt(descriptor)
    report(
        stages=[pb.AdoptStage.Name(frame.stage) for frame in frames],
        adoption=as_json(frames[-1].adoption),
        found=await continuation(running, "adopted"),
    )


async def continuation(running: Side, thread_id: str) -> list[str]:
    """Return all that an agent needs to continue."""
    root = await running.load(SECOND, thread_id)
    inside = await running.load("", thread_id, SUBGRAPH)
    history = await running.history(SECOND, thread_id, "log")
    return [
        repr(content(root)),
        repr(content(inside)),
        *(frame.SerializeToString(deterministic=True).hex() for frame in history),
    ]


def as_json(message: Any) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True)


def report(**what: Any) -> None:
    print(json.dumps({"network": os.readlink("/proc/self/ns/net"), **what}), flush=True)


async def main(role: str, data_dir: str, blob_dir: str) -> None:
    loopback.bring_up()
    async with side(Path(data_dir), blob_dir=Path(blob_dir)) as running:
        await {"give": give, "take": take}[role](running)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
