"""Blobs of a stopped server, and functions to audit and damage them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
from backports import zstd

from tests.kit.blobs.member_file import MemberFile, blob_path
from tests.kit.servers.forking import run_forked
from tests.kit.servers.processes import ServerProcess
from tuskpoint import Client
from tuskpoint._messages.lineage.handoffs import Descriptor, read_descriptor
from tuskpoint.audit import roots
from tuskpoint.audit.checks import catalog, descriptor, manifest
from tuskpoint.audit.formats.stored import Location
from tuskpoint.audit.keys import Unwrap, of_text
from tuskpoint.audit.reading import Bounds, Progress, Reader
from tuskpoint.audit.sources import DirectorySource, Source
from tuskpoint.audit.verdicts import Findings, Item
from tuskpoint.cli import main
from tuskpoint.storage.v1 import segment_pb2
from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as cpb
from tuskpoint.v1 import thread_service_pb2 as tpb
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceStub

LONG, SHORT, FORK, COPY, GONE = "long", "short", "fork", "copy", "gone"
STEPS = 30
"""Checkpoints of the long thread."""
KEYS = of_text(base64.b64encode(bytes(range(32))).decode(), "default")
"""Keys of servers with an emulated Walrus."""
NOT_CERTIFIED_BY_ITSELF = {"TUSKPOINT_FLUSH_INTERVAL": "3600"}


@dataclass(frozen=True)
class House:
    """The blobs of a stopped server, and the names of things in them.

    Attributes:
        blobs: Blob directory, or a copy of the directory.
        catalog: Newest catalog.
        handoff: Descriptor of a hand-off.
        manifest: Stored manifest of the short thread.
        ids: IDs of the checkpoints of each thread, oldest first.
    """

    blobs: Path
    catalog: Location
    handoff: Descriptor
    manifest: Location
    ids: Mapping[str, list[str]] = field(default_factory=dict)

    def copied(self, folder: Path) -> House:
        """Return a copy whose blob directory may be damaged."""
        shutil.copytree(self.blobs, folder / "blobs")
        return replace(self, blobs=folder / "blobs")

    def stored(self, at: Location | Mapping[str, Any]) -> MemberFile:
        """Return the member at a location, or at the location of a reference."""
        return MemberFile.at(self.blobs, at if isinstance(at, Location) else located(at))

    def opened(self) -> dict[str, Any]:
        """Return the newest catalog."""
        content = json.loads(self.stored(self.catalog).read_bytes())
        assert isinstance(content, dict)
        return content

    def records(self, thread_id: str) -> list[dict[str, Any]]:
        """Return the records of a thread, older runs first; each record names its blob."""
        return [record for record in self._all_records() if record["thread_id"] == thread_id]

    def threads(self) -> set[str]:
        """Return the threads with records."""
        return {record["thread_id"] for record in self._all_records()}

    def _all_records(self) -> Iterator[dict[str, Any]]:
        for level in reversed(self.opened()["levels"]):
            for run in level["runs"]:
                holder = run["blob_id"] or self.catalog.blob_id
                _, *pages = _frames(self.stored({**run, "blob_id": holder}).read_bytes())
                for line in b"".join(pages).splitlines():
                    record = json.loads(line)
                    if record["kind"] == "member":
                        record["blob_id"] = record["blob_id"] or holder
                    yield record

    def segments(self, thread_id: str) -> list[Location]:
        """Return the locations of the segments of a thread's log, oldest first."""
        return [
            located(record)
            for record in self.records(thread_id)
            if record["kind"] == "member" and "last_seq" in record
        ]

    def segment(self, at: Location) -> segment_pb2.ThreadSegment:
        """Return the content of a segment."""
        data = self.stored(at).read_bytes()
        return segment_pb2.ThreadSegment.FromString(zstd.decompress(data[8 + data[4] :]))

    # --- damaging blobs ----------------------------------------------------------------

    def put(self, data: bytes) -> dict[str, Any]:
        """Store bytes as the server stores them, and return their location."""
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

    def forged(self, *records: dict[str, Any]) -> Location:
        """Store a catalog whose only run has these records; all hashes in the catalog are right."""
        return self.forged_levels([self.leaf(sorted(records, key=position))])

    def forged_levels(self, runs: list[dict[str, Any]]) -> Location:
        """Store a catalog that names runs, and return its location."""
        return self.forged_catalog({"levels": [{"runs": runs}]})

    def leaf(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Store a run of one page with records, and return its reference."""
        plain = b"".join(stored_json(record) + b"\n" for record in records)
        page = zstd.compress(plain)
        ends = {"first": position(records[0]), "last": position(records[-1])}
        named = {"sha256": hashlib.sha256(page).hexdigest(), "size_bytes": len(page)}
        index = {"pages": [{**ends, **named, "records": len(records)}]}
        sizes = {"records": len(records), "plain_bytes": len(plain), "height": 0}
        return {**ends, **sizes, **self._run(index, page)}

    def branch(self, runs: list[dict[str, Any]], height: int = 1) -> dict[str, Any]:
        """Store a run that names other runs, and return its reference."""
        return {
            "first": runs[0]["first"],
            "last": runs[-1]["last"],
            "records": sum(run["records"] for run in runs),
            "plain_bytes": sum(run["plain_bytes"] for run in runs),
            "height": height,
            **self._run({"runs": runs}),
        }

    def _run(self, index: dict[str, Any], *pages: bytes) -> dict[str, Any]:
        head = {"format_version": 2, "kind": "run", "generation": 1, "number": 1, "order": 0}
        return self.put(b"".join((zstd.compress(stored_json({**head, **index}) + b"\n"), *pages)))

    def forged_catalog(self, changes: Mapping[str, Any]) -> Location:
        """Store a catalog that differs from the newest catalog."""
        blob = self.put(stored_json({**self.opened(), "merges": [], **changes}))
        return Location(blob["blob_id"], "", blob["sha256"])

    def with_segment(
        self, thread_id: str, stored: bytes, *more: dict[str, Any], **changes: str
    ) -> Location:
        """Store other bytes for the first checkpoint of a thread alone, with right hashes."""
        [first, *_] = [
            record for record in self.records(thread_id) if record["kind"] == "checkpoint"
        ]
        at = self.put(stored)
        member = {
            **{key: first[key] for key in ("thread_id", "incarnation", "generation", "seq")},
            **at,
            "kind": "member",
            "holds": "segment",
        }
        return self.forged({**first, "segment": at["sha256"], **changes}, member, *more)


def header(version: int = 2, sealing: int = 1) -> bytes:
    """Return the header before the zstd frame of a segment."""
    said = b"\x08" + bytes([version]) + b"\x10" + bytes([sealing])
    return b"\x50\x2a\x4d\x18" + len(said).to_bytes(4, "little") + said


def stored_segment(message: segment_pb2.ThreadSegment) -> bytes:
    """Return the stored bytes of a segment."""
    return header() + zstd.compress(message.SerializeToString())


def position(record: Mapping[str, Any]) -> list[str]:
    """Return the position of a record in a run."""
    kind, thread_id = record["kind"], record["thread_id"]
    if kind == "end":
        return [thread_id, "", "", ""]
    if "checkpoint_id" in record and kind != "pin":
        return [thread_id, "checkpoint", record["checkpoint_ns"], record["checkpoint_id"]]
    kind = "member" if kind == "release" else kind
    about = record.get("sha256", "") if kind == "member" else record.get("segment", "")
    return [thread_id, kind, about, ""]


def _frames(data: bytes) -> list[bytes]:
    """Unpack a sequence of zstd frames."""
    contents = []
    while data:
        size = zstd.get_frame_size(data)
        contents.append(zstd.decompress(data[:size]))
        data = data[size:]
    return contents


def located(reference: Mapping[str, Any]) -> Location:
    """Return the location that a reference names."""
    return Location(reference["blob_id"], reference["identifier"], reference["sha256"])


def stored_json(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


# --- filling the server ----------------------------------------------------------------


def left_behind(folder: Path, settings: Mapping[str, str], steps: int = STEPS) -> House:
    """Run a server, fill it, stop it, and return the names of its things.

    Args:
        folder: Directory for all files of the server.
        settings: Further variables of the server.
        steps: Number of checkpoints of the long thread.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ServerProcess(folder, {**NOT_CERTIFIED_BY_ITSELF, **settings}) as server:
        server.start()
        with Client(server.target) as client:
            ids = _filled(client, server.target, steps)
            handoff = client.handoff(SHORT, ids[SHORT][1], to_agent="writer")
            client.flush()
            newest = client.status().catalog
        assert newest is not None
        manifest = _stored_manifest(server.target)
        assert server.stop() == 0
    location = Location(newest.blob_id, newest.identifier, newest.sha256)
    return House(server.data_dir / "blobs", location, handoff, manifest, ids)


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
    _write_late(target, ids[SHORT][0])
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
    """Save a pending write of a certified checkpoint."""
    write = value_pb2.PendingWrite(
        task_id="task", channel="draft", value=value_pb2.Value(type="json", data=b'"late"')
    )
    request = cpb.SaveWritesRequest(
        ref=checkpoint_pb2.CheckpointRef(thread_id=SHORT, checkpoint_id=checkpoint_id),
        writes=[write],
    )
    with grpc.insecure_channel(target) as channel:
        CheckpointServiceStub(channel).SaveWrites(request)


def _stored_manifest(target: str) -> Location:
    """Let a server store the manifest of the short thread, and return its location."""
    with grpc.insecure_channel(target) as channel:
        stub = ThreadServiceStub(channel)
        at = stub.GetManifest(tpb.GetManifestRequest(thread_id=SHORT, store=True)).manifest
    return Location(at.blob_id, at.identifier, at.sha256.hex())


# --- running an audit ------------------------------------------------------------------


@dataclass(frozen=True)
class Audited:
    """The findings of an audit, and its progress."""

    findings: Findings
    reported: list[Progress]

    @property
    def result(self) -> str:
        return self.findings.result.value

    @property
    def problems(self) -> list[Item]:
        return self.findings.problems

    def only_problem(self) -> Item:
        [problem] = self.problems
        return problem

    def of(self, thread_id: str) -> dict[str, str]:
        """Return the verdicts on the root checkpoints of a thread, by ID."""
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
    history: int = 0,
    unwrap: Unwrap | None = KEYS,
) -> Audited:
    reported: list[Progress] = []
    reader = Reader(source, bounds or Bounds(), reported.append, unwrap)
    root = await roots.find(source, location, "catalog")
    return Audited(await catalog.audit_catalog(reader, root, threads, history), reported)


async def audited_manifest(source: Source, location: Location) -> Audited:
    root = await roots.find(source, location, "manifest")
    return Audited(await manifest.audit_manifest(Reader(source, Bounds(), unwrap=KEYS), root), [])


async def audited_descriptor(
    source: Source,
    given: Descriptor,
    bounds: Bounds | None = None,
    unwrap: Unwrap | None = KEYS,
) -> Audited:
    reader = Reader(source, bounds or Bounds(), unwrap=unwrap)
    return Audited(await descriptor.audit_descriptor(reader, given), [])


def changed(given: Descriptor, **fields: str) -> Descriptor:
    """Return a descriptor with other fields, unsigned unless the fields include a signature."""
    members = {**given.as_dict(), "signer": "", "signature": "", **fields}
    return read_descriptor(members)


async def audited(house: House, location: Location | None = None, **options: Any) -> Audited:
    return await audited_catalog(directory(house), location or house.catalog, **options)


def of_kind(house: House, thread_id: str, kind: str) -> list[dict[str, Any]]:
    return [record for record in house.records(thread_id) if record["kind"] == kind]


def another(record: dict[str, Any], kind: str, **more: Any) -> dict[str, Any]:
    """Return another record of the same thread, at the next change."""
    kept = {key: record[key] for key in ("thread_id", "incarnation", "generation")}
    return {**kept, "seq": record["seq"] + 1000, "kind": kind, **more}


def no_pause() -> Callable[[float], Any]:
    async def pause(_: float) -> None:
        await asyncio.sleep(0)

    return pause


def run_command(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run `tuskpoint` as people run it, in a process that has not imported the server."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONWARNINGS": "error",
        "TUSKPOINT_KEYS": os.environ.get("TUSKPOINT_KEYS", ""),
    }
    return run_forked(main, arguments, environment, stdin)
