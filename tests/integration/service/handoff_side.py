"""One side of a hand-off as a program: a server of its own, and an agent that talks to it.

`python -m tests.integration.service.handoff_side give|take DATA_DIR BLOB_DIR`

`give` saves a run, hands it off, writes a line of JSON with the descriptor and goes on
serving until its input ends. `take` reads such a line, adopts, and writes what it found.
Each line also says in which network namespace the side runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict

from tests.integration.service.handoff_kit import SUBGRAPH, Side, content, save_run
from tests.kit import loopback
from tests.kit.messages import SECOND, THREAD
from tuskpoint.v1 import handoff_service_pb2 as pb

LISTENING = "tuskpoint-server listening on "


@asynccontextmanager
async def own_server(data_dir: Path, blob_dir: Path) -> AsyncIterator[Side]:
    """Run a server in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tuskpoint_server", "--listen", "127.0.0.1:0"),
        *("--data-dir", str(data_dir), "--blob-dir", str(blob_dir)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode().strip()
    assert line.startswith(LISTENING), line
    async with grpc.aio.insecure_channel(line.removeprefix(LISTENING)) as channel:
        yield Side.at(channel, data_dir, blob_dir)
    process.terminate()
    assert await process.wait() == 0


async def give(side: Side) -> None:
    """Hand a run off, and stay until the input ends."""
    await save_run(side)
    descriptor = await side.hand_off(to_agent="writer")
    report(descriptor=as_json(descriptor), found=await found(side, THREAD))
    await asyncio.to_thread(sys.stdin.read)


async def take(side: Side) -> None:
    """Adopt what the input names."""
    line = await asyncio.to_thread(sys.stdin.readline)
    descriptor = ParseDict(json.loads(line), pb.HandoffDescriptor())
    frames = await side.adopt(descriptor)
    report(
        stages=[pb.AdoptStage.Name(frame.stage) for frame in frames],
        adoption=as_json(frames[-1].adoption),
        found=await found(side, "adopted"),
    )


async def found(side: Side, thread_id: str) -> list[str]:
    """Return all that an agent would go on with."""
    root = await side.load(SECOND, thread_id)
    inside = await side.load("", thread_id, SUBGRAPH)
    history = await side.history(SECOND, thread_id, "log")
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
    async with own_server(Path(data_dir), Path(blob_dir)) as side:
        await {"give": give, "take": take}[role](side)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
