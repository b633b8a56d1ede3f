"""Clients with and without a cache of values load the same thread, whatever happened to it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.databases import examples, journal_of
from tests.kit.messages import channel, incompressible, ref, save_request, write
from tests.kit.servers.processes import ServerProcess
from tuskpoint._messages.checkpoints import value_cache
from tuskpoint._messages.checkpoints.value_cache import HeldValues
from tuskpoint._sync import calls as sync_calls
from tuskpoint._sync.calls import SyncCalls
from tuskpoint._transport import methods
from tuskpoint._transport.settings.options import Options
from tuskpoint.errors import NotFound, PreconditionFailed, ValuesMissing
from tuskpoint.v1.admin_service_pb2 import FlushRequest, GetArchiveStatusRequest
from tuskpoint.v1.checkpoint_pb2 import Checkpoint, CheckpointRef
from tuskpoint.v1.checkpoint_service_pb2 import (
    SaveCheckpointRequest,
    SaveWritesRequest,
    SetLabelRequest,
)
from tuskpoint.v1.thread_service_pb2 import (
    PRUNE_STRATEGY_KEEP_LATEST,
    DeleteThreadRequest,
    ForkThreadRequest,
    PruneThreadsRequest,
    RollbackThreadRequest,
)
from tuskpoint.v1.value_pb2 import Channel, Inherit, PendingWrite, Value, Version

KIB = 1024
CACHE_BYTES = 64 * KIB  # small enough to drop values
NAMES = ("a", "b", "c", "d", "e")
SIZES = (0, 10, 2 * KIB, 9 * KIB, 15 * KIB, 40 * KIB)
STEPS = (
    *(("save",) * 6),
    *(("load",) * 3),
    *(("writes",) * 3),
    *("again", "label", "delete", "prune", "rollback", "fork", "flush"),
)


@dataclass
class Servers:
    """Servers of one journal, a client with a cache for each, and a client without a cache."""

    caching: list[SyncCalls]
    plain: SyncCalls
    left_out: int = 0


@pytest.fixture(scope="module")
def servers(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("servers")
    environment = {
        "TUSKPOINT_JOURNAL": journal_of(folder / "first" / "data"),
        "TUSKPOINT_BLOB_DIR": str(folder / "blobs"),
        "TUSKPOINT_FLUSH_INTERVAL": "3600",
        "TUSKPOINT_JOURNAL_BYTES": "0",
        "TUSKPOINT_EVICTION_GRACE": "0",
        "TUSKPOINT_SEARCH": "0",
    }
    names = ("first", "second") if database == "postgresql" else ("first",)
    with ExitStack() as running:
        targets = []
        for name in names:
            server = running.enter_context(ServerProcess(folder / name, environment))
            server.start()
            targets.append(server.target)
        options = Options.of(targets[0], value_cache_bytes=0)
        plain = SyncCalls(options)
        caching = [
            SyncCalls(replace(options, target=target, value_cache_bytes=CACHE_BYTES))
            for target in (targets[0], targets[-1])
        ]
        for calls in (plain, *caching):
            running.callback(calls.close)
        yield Servers(caching, plain)


@pytest.fixture
def counted(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the values that servers leave out."""

    def fill(checkpoint: Checkpoint, held: HeldValues) -> None:
        holders: list[Channel | PendingWrite] = [*checkpoint.state.channels, *checkpoint.writes]
        without = [each for each in holders if each.digest and not each.WhichOneof("content")]
        servers.left_out += len(without)
        value_cache.fill_held(checkpoint, held)

    monkeypatch.setattr(sync_calls, "fill_held", fill)


def value(source: random.Random) -> Value:
    """Return one of a few values, so that some repeat; values of one size are similar."""
    size, number = source.choice(SIZES), source.randrange(3)
    data = incompressible(size)[:-1] + bytes([number]) if size else b""
    return Value(type="bytes", data=data)


@dataclass
class Run:
    """The calls of one history, drawn by a seed."""

    servers: Servers
    seed: int
    source: random.Random = field(init=False)
    threads: list[str] = field(init=False)
    saved: dict[str, list[SaveCheckpointRequest]] = field(default_factory=dict)
    number: int = 0

    def __post_init__(self) -> None:
        self.source = random.Random(self.seed)
        run = uuid.uuid4().hex
        self.threads = [f"{run}-{number}" for number in range(2)]

    @property
    def calls(self) -> SyncCalls:
        """Return the calls of a client with a cache."""
        return self.source.choice(self.servers.caching)

    def step(self, name: str) -> None:
        thread_id = self.source.choice(self.threads)
        try:
            getattr(self, name)(thread_id)
        except (NotFound, PreconditionFailed, ValuesMissing):
            pass  # the checkpoint does not exist, its thread is deleted, or its parent is pruned
        self.check()

    def save(self, thread_id: str) -> None:
        saved = self.saved.setdefault(thread_id, [])
        parent = saved[-1].checkpoint if saved else None
        self.number += 1
        channels = []
        versions = {each.name: each.version for each in parent.state.channels} if parent else {}
        for name in self.source.sample(NAMES, self.source.randint(1, len(NAMES))):
            if name in versions and self.source.random() < 0.6:
                each = channel(name, version=versions[name], inherit=Inherit())
            else:
                version = Version(integer=self.number)
                each = channel(name, version=version, value=value(self.source))
            channels.append(each)
        checkpoint_id = str(uuid.UUID(int=(self.number << 80) | 6 << 76 | 2 << 62))
        request = save_request(
            checkpoint_id,
            channels,
            thread_id=thread_id,
            parent=parent.ref.checkpoint_id if parent else "",
            writes=[self.write()] if self.source.random() < 0.3 else [],
        )
        self.calls.save_checkpoint(request)
        saved.append(request)

    def again(self, thread_id: str) -> None:
        """Replace the content of a channel of a saved checkpoint."""
        saved = self.saved.get(thread_id)
        if saved:
            request = self.source.choice(saved)
            first = request.checkpoint.state.channels[0]
            first.value.CopyFrom(value(self.source))
            first.version.integer = self.number = self.number + 1
            self.calls.save_checkpoint(request)

    def write(self) -> PendingWrite:
        task_id, name = self.source.choice("mn"), self.source.choice((*NAMES, "__resume__"))
        idx = -4 if name == "__resume__" else self.source.randrange(3)
        return write(task_id, name, value=value(self.source), idx=idx)

    def writes(self, thread_id: str) -> None:
        writes = [self.write() for _ in range(self.source.randint(1, 3))]
        self.calls.save_writes(SaveWritesRequest(ref=self.ref(thread_id), writes=writes))

    def label(self, thread_id: str) -> None:
        request = SetLabelRequest(ref=self.ref(thread_id), label=str(self.source.randrange(9)))
        self.calls.unary(methods.SET_LABEL, request)

    def delete(self, thread_id: str) -> None:
        self.calls.unary(methods.DELETE_THREAD, DeleteThreadRequest(thread_id=thread_id))
        self.saved.pop(thread_id, None)

    def prune(self, thread_id: str) -> None:
        strategy = PRUNE_STRATEGY_KEEP_LATEST
        request = PruneThreadsRequest(thread_ids=[thread_id], strategy=strategy)
        self.calls.unary(methods.PRUNE_THREADS, request)

    def rollback(self, thread_id: str) -> None:
        request = RollbackThreadRequest(ref=self.ref(thread_id))
        self.calls.unary(methods.ROLLBACK_THREAD, request)

    def fork(self, thread_id: str) -> None:
        fork_id = f"{thread_id[:32]}-{len(self.threads)}"
        request = ForkThreadRequest(ref=self.ref(thread_id), new_thread_id=fork_id)
        self.calls.unary(methods.FORK_THREAD, request)
        self.threads.append(fork_id)

    def flush(self, thread_id: str) -> None:
        """Certify everything, so that older values are evicted."""
        self.calls.unary(methods.FLUSH, FlushRequest())

    def load(self, thread_id: str) -> None:
        self.calls.get_checkpoint(self.ref(thread_id))

    def ref(self, thread_id: str) -> CheckpointRef:
        """Return the name of a checkpoint of a thread."""
        saved = self.saved.get(thread_id)
        chosen = self.source.choice(saved).checkpoint.ref.checkpoint_id if saved else "none"
        return ref(chosen, thread_id)

    def check(self) -> None:
        """Load from each server the latest checkpoint of each thread and another checkpoint."""
        for thread_id in self.threads:
            for wanted in (ref("", thread_id), self.ref(thread_id)):
                expected = self.servers.plain.get_checkpoint(wanted)
                for calls in self.servers.caching:
                    assert calls.get_checkpoint(wanted) == expected, self.seed


@pytest.mark.usefixtures("counted")
def test_loads_return_the_same_with_and_without_values_that_are_kept(
    servers: Servers, database: str
) -> None:
    @settings(max_examples=examples(database, 20))
    @given(
        seed=st.integers(0, 1 << 30),
        steps=st.lists(st.sampled_from(STEPS), min_size=10, max_size=30),
    )
    def histories(seed: int, steps: list[str]) -> None:
        run = Run(servers, seed)
        for step in steps:
            run.step(step)

    histories()
    assert servers.left_out > 100
    status = servers.plain.unary(methods.GET_ARCHIVE_STATUS, GetArchiveStatusRequest())
    assert status.evicted_bytes > 0


def test_the_servers_are_of_one_journal(servers: Servers) -> None:
    first, second = servers.caching
    thread_id = uuid.uuid4().hex
    first.save_checkpoint(save_request("1", [channel("a")], thread_id=thread_id))
    assert second.get_checkpoint(ref("", thread_id)) == first.get_checkpoint(ref("", thread_id))
