"""What a server left behind before it was stopped, and short ways to audit and damage it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from tests.crash.processes import ServerProcess
from tests.kit.member_file import MemberFile, blob_path
from tuskpoint import Client
from tuskpoint._handoff import Descriptor, read_descriptor
from tuskpoint.audit import catalog, descriptor, manifest, roots
from tuskpoint.audit.formats.manifests import ManifestHead
from tuskpoint.audit.formats.stored import Location
from tuskpoint.audit.reading import Bounds, Progress, Reader
from tuskpoint.audit.sources import DirectorySource, Source
from tuskpoint.audit.verdicts import Findings, Item
from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as cpb
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

LONG, SHORT, FORK, COPY, GONE = "long", "short", "fork", "copy", "gone"
NOT_CERTIFIED_BY_ITSELF = {"TUSKPOINT_FLUSH_INTERVAL": "3600"}


@dataclass(frozen=True)
class House:
    """What is known of a server that is not there any more.

    Attributes:
        blobs: Its blob directory, or where a copy of it is.
        catalog: Its newest catalog.
        handoff: The descriptor of a hand-off.
        ids: Thread to the IDs of its checkpoints, oldest first.
    """

    blobs: Path
    catalog: Location
    handoff: Descriptor
    ids: Mapping[str, list[str]] = field(default_factory=dict)

    def copied(self, folder: Path) -> House:
        """Return the same with a blob directory that may be damaged."""
        shutil.copytree(self.blobs, folder / "blobs")
        return House(folder / "blobs", self.catalog, self.handoff, self.ids)

    def stored(self, at: Location | Mapping[str, Any]) -> MemberFile:
        """What lies at a location, or where a reference leads."""
        return MemberFile.at(self.blobs, at if isinstance(at, Location) else located(at))

    def json(self, at: Location) -> dict[str, Any]:
        """The JSON at a location; its references lead there from everywhere."""
        found = json.loads(self.stored(at).read_bytes(), object_hook=partial(_seen_from, at))
        assert isinstance(found, dict)
        return found

    def heads(self) -> dict[str, dict[str, Any]]:
        """Thread to what the catalogs say of it, read in the plainest way."""
        found = self.json(self.catalog)
        heads = {head["thread_id"]: head for head in found["changes"]}
        for level in found["runs"]:
            for run in reversed(level):
                for head in self.json(located(run))["changes"]:
                    heads.setdefault(head["thread_id"], head)
        return heads

    def segments(self, thread_id: str) -> list[Location]:
        """Where the segments of a thread lie, the newest first."""
        found = [located(self.heads()[thread_id]["manifest"])]
        while previous := self.json(found[-1])["previous"]:
            found.append(located(previous))
        return found

    def envelopes(self, thread_id: str) -> list[Location]:
        """Where the full envelopes of a thread lie, oldest first."""
        return [
            located(record["envelope"])
            for segment in reversed(self.segments(thread_id))
            for record in self.json(segment)["records"]
            if record["type"] == "PUT"
        ]

    # --- damage ------------------------------------------------------------------------

    def put(self, data: bytes) -> dict[str, Any]:
        """Store bytes as the server would have, and return their location."""
        digest = hashlib.sha256(data).digest()
        blob_id = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        path = blob_path(self.blobs, blob_id)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return {
            "blob_id": blob_id,
            "identifier": "",
            "sha256": digest.hex(),
            "size_bytes": len(data),
        }

    def forge(
        self, thread_id: str, change: Callable[[dict[str, Any]], object], *, fewer: int = 0
    ) -> Location:
        """Change the head segment of a thread and all that leads to it; return the catalog.

        The catalog then tells of so many records fewer.

        What comes of it has right hashes everywhere: only what it says is wrong.
        """
        head = self.heads()[thread_id]
        segment = self.json(located(head["manifest"]))
        change(segment)
        head["manifest"]["records"] -= fewer
        head["manifest"].update(self.put(stored_json(segment)))
        return self.forged_catalog({"changes": [head], "runs": []})

    def forged_catalog(self, changes: Mapping[str, Any]) -> Location:
        """Store a catalog that differs from the newest."""
        found = self.put(stored_json({**self.json(self.catalog), **changes}))
        return Location(found["blob_id"], "", found["sha256"])


def located(reference: Mapping[str, Any]) -> Location:
    """The location that a reference names."""
    return Location(reference["blob_id"], reference["identifier"], reference["sha256"])


def _seen_from(holder: Location, content: dict[str, Any]) -> dict[str, Any]:
    """Let a reference to "this pack" name the pack."""
    return {**content, "blob_id": holder.blob_id} if content.get("blob_id") == "" else content


def stored_json(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


# --- filling ---------------------------------------------------------------------------


def left_behind(folder: Path, settings: Mapping[str, str], steps: int) -> House:
    """Run a server, fill it, stop it, and return what is known of it.

    Args:
        folder: Where it keeps its things.
        settings: Variables of the server besides.
        steps: Checkpoints of the long thread.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ServerProcess(folder, {**NOT_CERTIFIED_BY_ITSELF, **settings}) as server:
        server.start()
        with Client(server.target) as client:
            ids = _filled(client, server.target, steps)
            handoff = client.handoff(SHORT, ids[SHORT][1], to_agent="writer")
            client.flush()
            found = client.status().catalog
        assert found is not None
        assert server.stop() == 0
    location = Location(found.blob_id, found.identifier, found.sha256)
    return House(server.data_dir / "blobs", location, handoff, ids)


def _filled(client: Client, target: str, steps: int) -> dict[str, list[str]]:
    ids = {
        LONG: [client.save(LONG, {"n": n}, metadata={"step": n}) for n in range(steps)],
        SHORT: [
            client.save(SHORT, {"draft": "one", "notes": [1]}, agent_id="planner"),
            client.save(SHORT, {"draft": "two", "notes": [1]}, summary="Wrote the second."),
        ],
        GONE: [client.save(GONE, {"x": 1})],
    }
    client.flush()
    _write_late(target, ids[SHORT][1])
    client.set_label(SHORT, "second", checkpoint_id=ids[SHORT][1])
    client.fork(SHORT, ids[SHORT][1], new_thread_id=FORK)
    client.copy(SHORT, COPY)
    client.create_snapshot([LONG, SHORT], session_id="s")
    client.delete(GONE)
    client.flush()
    ids[SHORT].append(client.save(SHORT, {"draft": "three", "notes": [1]}))
    client.prune([COPY])
    return ids


def _write_late(target: str, checkpoint_id: str) -> None:
    """Save a pending write of a checkpoint that is certified."""
    write = value_pb2.PendingWrite(
        task_id="task", channel="draft", value=value_pb2.Value(type="json", data=b'"late"')
    )
    request = cpb.SaveWritesRequest(
        ref=checkpoint_pb2.CheckpointRef(thread_id=SHORT, checkpoint_id=checkpoint_id),
        writes=[write],
    )
    with grpc.insecure_channel(target) as channel:
        CheckpointServiceStub(channel).SaveWrites(request)


# --- auditing --------------------------------------------------------------------------


@dataclass(frozen=True)
class Audited:
    """What an audit found."""

    findings: Findings
    told: list[Progress]

    @property
    def result(self) -> str:
        return self.findings.result.value

    @property
    def problems(self) -> list[Item]:
        return self.findings.problems

    def only_problem(self) -> Item:
        [found] = self.problems
        return found

    def of(self, thread_id: str) -> dict[str, str]:
        """Verdicts on the checkpoints of a thread, by ID; of its root namespace."""
        return {
            item.checkpoint_id: item.verdict.value
            for item in self.findings.items
            if item.kind == "checkpoint" and item.thread_id == thread_id and not item.checkpoint_ns
        }


def directory(house: House) -> Source:
    return DirectorySource(house.blobs)


async def audited_catalog(
    source: Source,
    location: Location,
    threads: tuple[str, ...] = (),
    bounds: Bounds | None = None,
) -> Audited:
    told: list[Progress] = []
    reader = Reader(source, bounds or Bounds(), told.append)
    root = await roots.find(source, location, "catalog")
    return Audited(await catalog.audit_catalog(reader, root, threads), told)


async def audited_manifest(
    source: Source, location: Location, known: ManifestHead | None = None
) -> Audited:
    root = await roots.find(source, location, "segment")
    found = await manifest.audit_manifest(Reader(source, Bounds()), root, known=known)
    return Audited(found, [])


async def audited_descriptor(
    source: Source, given: Descriptor, bounds: Bounds | None = None
) -> Audited:
    reader = Reader(source, bounds or Bounds())
    return Audited(await descriptor.audit_descriptor(reader, given), [])


def changed(given: Descriptor, **fields: str) -> Descriptor:
    return read_descriptor({**given.as_dict(), **fields})


def no_pause() -> Callable[[float], Any]:
    async def pause(_: float) -> None:
        await asyncio.sleep(0)

    return pause


def run_command(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run `tuskpoint` as people run it, in a process that knows no server."""
    return subprocess.run(
        [sys.executable, "-m", "tuskpoint.cli", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONWARNINGS": "error"},
    )
