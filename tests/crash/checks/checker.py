"""Compares the state of a server with the ledger."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc

from tests.crash.checks.token_channels import showing
from tests.crash.writers.content import (
    LABEL,
    checkpoint_fingerprint,
    content_fingerprint,
    slot,
    write_fingerprint,
)
from tests.crash.writers.ledger import Key, Making, Record, Request
from tuskpoint.v1.admin_service_pb2 import FlushRequest, GetArchiveStatusRequest
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_pb2 import (
    DURABILITY_CERTIFIED,
    SOURCE_ANY,
    SOURCE_BLOB,
    VIEW_ENTRY,
    VIEW_FULL,
    Checkpoint,
    CheckpointRef,
    Lineage,
    Source,
)
from tuskpoint.v1.checkpoint_service_pb2 import ListCheckpointsRequest, LoadCheckpointRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.history_service_pb2 import ReplayThreadRequest
from tuskpoint.v1.history_service_pb2_grpc import HistoryServiceStub
from tuskpoint.v1.snapshot_service_pb2 import ListSnapshotsRequest
from tuskpoint.v1.snapshot_service_pb2_grpc import SnapshotServiceStub
from tuskpoint.v1.value_pb2 import Channel, PendingWrite, Value

CALL_SECONDS = 30.0
FLUSH_SECONDS = 60.0
LIST_SECONDS = 300.0
READERS = 4


@dataclass(slots=True)
class Findings:
    """The counts and findings of the checks of one test."""

    loads: int = 0
    blob_loads: int = 0
    made: int = 0
    replays: int = 0
    lost: list[str] = field(default_factory=list)
    half_visible: list[str] = field(default_factory=list)


class Checker:
    """Checks a ledger against one server, or against servers that share a journal.

    Args:
        record: The ledger.
        *targets: The servers.
        token: The token for the servers; empty if they require none.
        from_blobs: Number of random checkpoints to load from the blob store at the end; `None`:
            all.
    """

    def __init__(
        self, record: Record, *targets: str, token: str = "", from_blobs: int | None = None
    ) -> None:
        self.record = record
        self.findings = Findings()
        self._targets = targets
        self._token = token
        self._from_blobs = from_blobs
        self._unchecked: set[Key] = set()
        self._made = 0

    def read(self) -> None:
        """Read the lines that the writer appended to its ledger."""
        self._unchecked |= self.record.read()

    def check_new(self, targets: Sequence[str] | None = None) -> None:
        """Check every checkpoint touched since the last check; the writer may be at work.

        `targets`: the servers to check; `None`: all.
        """
        self.read()
        keys, self._unchecked = self._unchecked, set()
        makings = [making for making in self.record.makings[self._made :] if making.durability]
        self._made = len(self.record.makings)
        for target in self._targets if targets is None else targets:
            with self._channel(target) as channel:
                stub = CheckpointServiceStub(channel)
                self._check(stub, keys)
                self._check_made(stub, makings)

    def check_threads(self, threads: Collection[str]) -> None:
        """Check only these threads. The writer must have ended."""
        self.read()
        keys = {key for key in self.record.requests if key[0] in threads}
        makings = [
            making
            for making in self.record.makings
            if any(key[0] in threads for key in making.made)
        ]
        for target in self._targets:
            with self._channel(target) as channel:
                stub = CheckpointServiceStub(channel)
                self._check(stub, keys)
                self._check_made(stub, makings)

    def check_everything(self) -> None:
        """Check everything, then certify it and check it again from the blob store.

        The writer must have ended.
        """
        self.read()
        for target in self._targets:
            self._check_everything(target)

    def _check_everything(self, target: str) -> None:
        keys = list(self.record.requests)  # In this order, because neighbours are stored together.
        with self._channel(target) as channel:
            stub = CheckpointServiceStub(channel)
            self._check(stub, keys)
            self._check_made(stub, self.record.makings)
            listed = self._listed(stub)
            self.judge_all(listed)
            self._check_orders(HistoryServiceStub(channel), listed)
            self._check_snapshots(SnapshotServiceStub(channel))
            admin = AdminServiceStub(channel)
            admin.Flush(FlushRequest(), timeout=FLUSH_SECONDS)
            status = admin.GetArchiveStatus(GetArchiveStatusRequest(), timeout=CALL_SECONDS)
            assert status.backlog_checkpoints == 0
            self._check_from_blobs(stub, set(self._listed(stub)))

    @contextmanager
    def _channel(self, target: str) -> Iterator[grpc.Channel]:
        with grpc.insecure_channel(target) as channel:
            yield showing(self._token, channel) if self._token else channel

    def _check(self, stub: CheckpointServiceStub, keys: Iterable[Key]) -> None:
        # Changes acknowledged before the load must be visible; changes requested before the load
        # ends may be visible.
        floors = {key: _acknowledged(self.record.requests.get(key, [])) for key in keys}
        certified = [key for key in floors if self._must_be_in_blobs(key)]
        loaded = _load_all(stub, floors, SOURCE_ANY)
        self.findings.loads += len(loaded)
        from_blobs = _load_all(stub, certified, SOURCE_BLOB)
        self.findings.blob_loads += len(from_blobs)
        self.read()
        for key, floor in floors.items():
            self.judge(key, floor, loaded[key])
        for key, checkpoint in from_blobs.items():
            if self._must_be_in_blobs(key):
                self.judge(key, floors[key], checkpoint)

    def _must_be_in_blobs(self, key: Key) -> bool:
        """Return whether the latest request of a checkpoint was acknowledged as certified."""
        requests = self.record.requests.get(key, [])
        return bool(requests) and requests[-1].durability == DURABILITY_CERTIFIED

    def _check_from_blobs(self, stub: CheckpointServiceStub, visible: set[Key]) -> None:
        if self._from_blobs is not None and self._from_blobs < len(visible):
            visible = set(random.sample(sorted(visible), self._from_blobs))
        loaded = _load_all(stub, visible, SOURCE_BLOB)
        self.findings.blob_loads += len(loaded)
        contents = {content for making in self.record.makings for content in making.contents}
        for key, checkpoint in loaded.items():
            if key in self.record.requests:
                self.judge(key, _acknowledged(self.record.requests[key]), checkpoint)
            elif checkpoint is None or content_fingerprint(checkpoint) not in contents:
                self.findings.lost.append(f"{key} is not stored as it was made")

    def _check_made(self, stub: CheckpointServiceStub, makings: Iterable[Making]) -> None:
        """Check the checkpoints that acknowledged requests created from other checkpoints."""
        expected = {key: making.contents for making in makings for key in making.made}
        loaded = _load_all(stub, expected, SOURCE_ANY)
        self.findings.made += len(loaded)
        for key, contents in expected.items():
            checkpoint = loaded[key]
            if checkpoint is None:
                self.findings.lost.append(f"{key} was made and is not there")
            elif content_fingerprint(checkpoint) not in contents:
                self.findings.lost.append(f"{key} is not what it was made of")

    def judge_all(self, listed: Mapping[Key, Lineage]) -> None:
        """Check that each listed checkpoint was requested, and that each creation happened once."""
        makings = [making for making in self.record.makings if making.how != "snapshot"]
        made: dict[tuple[str, str], set[Key]] = {
            (making.how, making.origin): set() for making in makings
        }
        for key, lineage in listed.items():
            if any(request.state for request in self.record.requests.get(key, [])):
                continue
            making_key = ("minting", key[0])
            if lineage.rolled_back_from:
                making_key = ("rollback", lineage.rolled_back_from)
            elif lineage.forked_from:
                making_key = ("restoration", lineage.forked_from)
            if making_key in made:
                made[making_key].add(key)
            else:
                self.findings.half_visible.append(f"{key} is listed and was never asked for")
        for making in makings:
            keys = made[making.how, making.origin]
            if len(keys) > 1 or (making.durability and keys != set(making.made)):
                reported = f"{making.how} of {making.origin} made {keys}, reported {making.made}"
                self.findings.half_visible.append(reported)

    def _check_orders(self, stub: HistoryServiceStub, listed: Iterable[Key]) -> None:
        """Check that a replay of each thread has all listed checkpoints, in the order of their
        requests."""
        threads: dict[str, set[Key]] = {}
        for key in listed:
            threads.setdefault(key[0], set()).add(key)
        places = self.record.places()
        for thread_id, keys in threads.items():
            request = ReplayThreadRequest(thread_id=thread_id, view=VIEW_ENTRY)
            answers = stub.ReplayThread(request, timeout=CALL_SECONDS)
            self.judge_order(keys, [_key(answer.checkpoint.ref) for answer in answers], places)

    def judge_order(
        self, keys: set[Key], replayed: Sequence[Key], places: Mapping[Key, int]
    ) -> None:
        """Compare the replay of a thread with the listing and with the ledger."""
        self.findings.replays += 1
        if len(replayed) != len(keys) or set(replayed) != keys:
            self.findings.half_visible.append(f"{replayed} is replayed where {keys} are listed")
        save_order = [places[key] for key in replayed if key in places]
        if save_order != sorted(save_order):
            self.findings.half_visible.append(
                f"{replayed} is not the order of its saves: {save_order}"
            )

    def _check_snapshots(self, stub: SnapshotServiceStub) -> None:
        """Check that each snapshot was taken once."""
        for making in self.record.makings:
            if making.how != "snapshot":
                continue
            request = ListSnapshotsRequest(session_id=making.origin)
            snapshots = stub.ListSnapshots(request, timeout=CALL_SECONDS).snapshots
            members = [[_key(member) for member in snapshot.members] for snapshot in snapshots]
            if len(snapshots) > 1 or (making.durability and members != [making.made]):
                reported = f"snapshots of {making.origin} hold {members}, reported {making.made}"
                self.findings.half_visible.append(reported)

    def _listed(self, stub: CheckpointServiceStub) -> dict[Key, Lineage]:
        """Return all checkpoints on the server, with their lineage."""
        request = ListCheckpointsRequest(view=VIEW_ENTRY)
        listed: dict[Key, Lineage] = {}
        for answer in stub.ListCheckpoints(request, timeout=LIST_SECONDS):
            key = _key(answer.checkpoint.ref)
            if key in listed:
                self.findings.half_visible.append(f"{key} is listed twice")
            listed[key] = answer.checkpoint.lineage
        return listed

    def judge(self, key: Key, floor: set[int], loaded: Checkpoint | None) -> None:
        """Compare a loaded checkpoint with the states that the ledger allows."""
        requests = self.record.requests.get(key, [])
        existence = [
            request for request in requests if request.state is not None or request.deletes
        ]
        possible = _from_floor(existence, floor)
        settled = any(request.number in floor for request in existence)
        if loaded is None:
            if settled and not any(request.deletes for request in possible):
                self.findings.lost.append(f"{key} was acknowledged and is not there")
            return
        state = checkpoint_fingerprint(loaded)
        if state not in {request.state for request in possible}:
            self.findings.lost.append(f"{key} has another state than any that may be there")
        shown = {slot(write): write_fingerprint(write) for write in loaded.writes}
        if loaded.label:
            shown[LABEL] = loaded.label
        self._judge_writes(key, requests, floor, shown)
        for request in requests:
            parts = _own_parts(request, requests, state, shown)
            if len(set(parts)) > 1:
                self.findings.half_visible.append(f"{key}: request {request.number} in part")

    def _judge_writes(
        self, key: Key, requests: list[Request], floor: set[int], shown: dict[str, str]
    ) -> None:
        for name in {name for request in requests for name in request.writes} | set(shown):
            write_requests = [request for request in requests if name in request.writes]
            possible = {request.writes[name] for request in _from_floor(write_requests, floor)}
            settled = any(request.number in floor for request in write_requests)
            if name not in shown:
                if settled:
                    self.findings.lost.append(f"{key}: write {name} was acknowledged and is lost")
            elif shown[name] not in possible:
                self.findings.lost.append(f"{key}: write {name} has other bytes")


def _acknowledged(requests: list[Request]) -> set[int]:
    return {request.number for request in requests if request.durability}


def _from_floor(requests: list[Request], floor: set[int]) -> list[Request]:
    """Return the requests from the last acknowledged one to the end; return all if no request
    is."""
    settled = [place for place, request in enumerate(requests) if request.number in floor]
    return requests[settled[-1] :] if settled else requests


def _own_parts(
    request: Request, requests: list[Request], state: str, shown: dict[str, str]
) -> list[bool]:
    """Return, for each part that only this request has, whether the server shows it."""
    other_requests = [other for other in requests if other is not request]
    parts = []
    superseded = any(
        other.number > request.number and other.state is not None for other in other_requests
    )
    if request.state is not None and not superseded:
        parts.append(state == request.state)
    for name, fingerprint in request.writes.items():
        if not any(name in other.writes for other in other_requests):
            parts.append(shown.get(name) == fingerprint)
    return parts


def _key(ref: CheckpointRef) -> Key:
    return ref.thread_id, ref.checkpoint_ns, ref.checkpoint_id


def _load_all(
    stub: CheckpointServiceStub, keys: Iterable[Key], source: Source
) -> dict[Key, Checkpoint | None]:
    with ThreadPoolExecutor(READERS) as pool:
        pairs = [(key, pool.submit(load, stub, key, source)) for key in keys]
        return {key: pending.result() for key, pending in pairs}


def load(stub: CheckpointServiceStub, key: Key, source: Source) -> Checkpoint | None:
    """Load a checkpoint of any size with every value inline; `None` if it does not exist."""
    thread_id, checkpoint_ns, checkpoint_id = key
    ref = CheckpointRef(
        thread_id=thread_id, checkpoint_ns=checkpoint_ns, checkpoint_id=checkpoint_id
    )
    request = LoadCheckpointRequest(ref=ref, view=VIEW_FULL, source=source)
    try:
        first, *rest = stub.LoadCheckpoint(request, timeout=CALL_SECONDS, wait_for_ready=True)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return None
        raise
    checkpoint = first.checkpoint
    holders: list[Channel | PendingWrite] = [*checkpoint.state.channels, *checkpoint.writes]
    announced = [holder for holder in holders if holder.HasField("large")]
    pieces = [bytearray() for _ in announced]
    for frame in rest:
        pieces[frame.chunk.value_index] += frame.chunk.data
    for holder, data in zip(announced, pieces, strict=True):
        assert len(data) == holder.large.size_bytes
        holder.value.CopyFrom(Value(type=holder.large.type, data=bytes(data)))
    return checkpoint
