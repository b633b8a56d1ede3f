"""Hand-offs over the Walrus emulator use standalone blobs and parts, and survive epochs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import httpx
import pytest
from backports import zstd
from google.protobuf.json_format import MessageToDict

from tests.integration.features.lineage.handoff_kit import Side, content, save_run
from tests.integration.features.lineage.handoff_servers import side
from tests.kit.messages import FIRST, SECOND, THREAD, refused
from tuskpoint.storage.v1 import segment_pb2
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint.v1 import handoff_service_pb2 as pb
from tuskpoint_emulators.walrus.encoding.blob_id import from_text
from tuskpoint_emulators.walrus.faults import Fault, FaultKind, Operation
from tuskpoint_emulators.walrus.server import WalrusEmulator

MIB = 1 << 20
LARGE = 20 * MIB

Code = grpc.StatusCode


@pytest.fixture
async def emulator() -> AsyncIterator[WalrusEmulator]:
    async with WalrusEmulator() as running:
        yield running


@pytest.fixture
async def sides(tmp_path: Path, emulator: WalrusEmulator) -> AsyncIterator[tuple[Side, Side]]:
    """Two servers that share only Walrus."""
    walrus = {
        "walrus_publisher_url": (emulator.url,),
        "public": True,
        "walrus_aggregator_url": (emulator.url,),
    }
    async with (
        side(tmp_path / "giver", **walrus) as giver,
        side(tmp_path / "taker", **walrus) as taker,
    ):
        yield giver, taker


async def fetched(emulator: WalrusEmulator, blob_id: str) -> bytes:
    """Fetch a blob as anyone can."""
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{emulator.url}/v1/blobs/{blob_id}")
    assert answer.status_code == 200
    return answer.content


def bundle_of(stored: bytes) -> segment_pb2.ThreadSegment:
    """Unpack a bundle as anyone can: zstd skips its header."""
    return segment_pb2.ThreadSegment.FromString(zstd.decompress(stored))


# --- over the network ------------------------------------------------------------------


async def test_two_servers_share_nothing_but_walrus(
    sides: tuple[Side, Side], emulator: WalrusEmulator
) -> None:
    giver, taker = sides
    await save_run(giver)
    descriptor = await giver.hand_off()
    stored = await fetched(emulator, descriptor.blob_id)
    assert hashlib.sha256(stored).hexdigest() == descriptor.blob_sha256
    assert bundle_of(stored).handoff.checkpoint_id == SECOND

    adoption = (await taker.adopt(descriptor))[-1].adoption
    assert adoption.blob_id not in ("", descriptor.blob_id)
    assert content(await taker.load("", "adopted")) == content(await giver.load(SECOND))
    assert await taker.history(SECOND, "adopted", "log") == await giver.history(
        SECOND, THREAD, "log"
    )
    proven = await taker.load("", "adopted", source=checkpoint_pb2.SOURCE_BLOB)
    assert proven.location.blob_id == adoption.blob_id


async def test_a_bundle_that_is_larger_than_a_blob_goes_in_parts(
    sides: tuple[Side, Side], emulator: WalrusEmulator
) -> None:
    giver, taker = sides
    await save_run(giver, LARGE)
    descriptor = await giver.hand_off()
    stored = await fetched(emulator, descriptor.blob_id)
    assert hashlib.sha256(stored).hexdigest() == descriptor.blob_sha256
    listed = json.loads(stored)
    assert len(listed["parts"]) == 3
    whole = b"".join([await fetched(emulator, part["blob_id"]) for part in listed["parts"]])
    assert hashlib.sha256(whole).hexdigest() == listed["sha256"]
    assert await giver.hand_off() == descriptor

    frames = await taker.adopt(descriptor)
    counts = [frame.fetched_bytes for frame in frames if frame.stage == pb.ADOPT_STAGE_FETCHING]
    assert counts == sorted(counts)
    assert len(counts) > LARGE // MIB // 2
    assert frames[-1].fetched_bytes == len(whole)
    assert content(await taker.load("", "adopted")) == content(await giver.load(SECOND))

    emulator.ledger.tamper(from_text(listed["parts"][1]["blob_id"]), whole[: 8 * MIB])
    reported = await taker.refuses(descriptor, "again")
    assert (reported.code, reported.reason) == (Code.DATA_LOSS, "BLOB_HASH_MISMATCH")
    assert reported.metadata["expected"] == listed["parts"][1]["sha256"]


async def test_a_bundle_that_walrus_refuses_is_not_handed_off(
    sides: tuple[Side, Side], emulator: WalrusEmulator
) -> None:
    giver, _ = sides
    await save_run(giver)
    emulator.faults.add(Operation.PUT_BLOB, Fault(kind=FaultKind.REFUSE, status=451))
    reported = await refused(giver.hand_off(request_id="r"))
    assert (reported.code, reported.reason) == (Code.FAILED_PRECONDITION, "BLOB_REJECTED")
    assert (await giver.hand_off(request_id="r")).blob_id


# --- without a server ------------------------------------------------------------------

HANDBOOK = Path(__file__).parents[4] / "docs" / "threads" / "handoff-bundle.md"
TOOLS = ("bash", "curl", "jq", "sha256sum")


def instructions(emulator: WalrusEmulator) -> tuple[str, str]:
    """Return the commands of the page, for a bundle and for its parts."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", HANDBOOK.read_text(encoding="utf-8"), re.M | re.S)
    whole, parts = (block for block in blocks if "curl " in block)
    aggregator = f"AGGREGATOR={emulator.url}\n"
    return aggregator + whole.partition("\n")[2], aggregator + parts


async def typed(commands: str, folder: Path) -> int:
    shell = await asyncio.create_subprocess_exec(
        *("bash", "-c", commands), cwd=folder, env={**os.environ, "no_proxy": "127.0.0.1"}
    )
    return await shell.wait()


@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"not all of {TOOLS} are here")
async def test_anybody_can_check_a_descriptor_by_hand(
    sides: tuple[Side, Side], emulator: WalrusEmulator, tmp_path: Path
) -> None:
    giver, _ = sides
    whole, parts = instructions(emulator)
    await save_run(giver, LARGE)
    descriptors = [await giver.hand_off(FIRST), await giver.hand_off()]
    for descriptor in descriptors:
        as_json = MessageToDict(descriptor, preserving_proto_field_name=True)
        (tmp_path / "descriptor.json").write_text(json.dumps(as_json))
        assert await typed(whole, tmp_path) == 0
    assert await typed(parts, tmp_path) == 0
    assert bundle_of((tmp_path / "whole").read_bytes()).handoff.checkpoint_id == SECOND

    listed = json.loads((tmp_path / "bundle").read_bytes())
    emulator.ledger.tamper(from_text(listed["parts"][1]["blob_id"]), b"other bytes")
    assert await typed(parts, tmp_path) != 0
    emulator.ledger.tamper(from_text(descriptors[1].blob_id), b"other bytes")
    assert await typed(whole, tmp_path) != 0
