"""A driver in a process of its own: acquires leases, saves under them, and prints every call.

A test stops the process for longer than the time of its lease. The driver does not notice: it goes
on saving under the old lease, as a paused agent does.
"""

from __future__ import annotations

import itertools
import json
import random
import signal
import sys
import time
from dataclasses import asdict
from typing import Any

import grpc

from tests.crash.writers.transports import CHANNEL_OPTIONS
from tests.kit.messages import reported
from tests.many.lease_history import Call
from tuskpoint.v1.checkpoint_pb2 import Checkpoint, CheckpointRef
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.lease_pb2 import Lease
from tuskpoint.v1.lease_service_pb2 import (
    ON_BUSY_REJECT,
    ON_BUSY_TAKE_OVER,
    ON_BUSY_WAIT,
    AcquireLeaseRequest,
    KeepLeaseRequest,
    ReleaseLeaseRequest,
)
from tuskpoint.v1.lease_service_pb2_grpc import LeaseServiceStub

TTL_SECONDS = 1
CALL_SECONDS = 3.0
PAUSE_SECONDS = 0.05  # after a call without an answer
_LOST = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)


class Driver:
    """A driver that works until it gets SIGTERM.

    Args:
        targets: The servers; each call goes to a random one.
        threads: The threads.
        name: Name of the driver.
        seed: Decides the calls.
    """

    def __init__(self, targets: list[str], threads: list[str], name: str, seed: str) -> None:
        channels = [grpc.insecure_channel(target, options=CHANNEL_OPTIONS) for target in targets]
        self._leases = [LeaseServiceStub(channel) for channel in channels]
        self._saves = [CheckpointServiceStub(channel) for channel in channels]
        self._threads = threads
        self._name = name
        self._source = random.Random(f"{seed} {name}")
        self._tokens = (f"{name} {number}" for number in itertools.count())
        self._stopping = False

    def stop(self, *_: object) -> None:
        """Let the driver end after the call under way."""
        self._stopping = True

    def work(self) -> None:
        """Take turns on the threads until the driver must stop."""
        source = self._source
        while not self._stopping:
            thread = source.choice(self._threads)
            if source.random() < 0.1:
                self._save(thread, None)
                continue
            lease = self._acquire(thread)
            if lease is None:
                continue
            for _ in range(source.randint(1, 12)):
                if source.random() < 0.3 and not self._keep(lease):
                    break
                if self._save(thread, lease) == "LEASE_LOST":
                    break
            else:
                if source.random() < 0.8:
                    self._release(lease)

    def _acquire(self, thread: str) -> Lease | None:
        on_busy = self._source.choices(
            (ON_BUSY_REJECT, ON_BUSY_WAIT, ON_BUSY_TAKE_OVER), (2, 6, 2)
        )[0]
        request = AcquireLeaseRequest(
            thread_id=thread, owner=self._name, ttl={"seconds": TTL_SECONDS}, on_busy=on_busy
        )
        request.wait.FromMilliseconds(500)
        answer, noted = self._call(self._leases, "AcquireLease", request)
        took_over = on_busy == ON_BUSY_TAKE_OVER
        lease = None if answer is None else answer.lease
        self._note("acquire", thread, noted, lease=lease, took_over=took_over)
        return lease

    def _keep(self, lease: Lease) -> bool:
        request = KeepLeaseRequest(thread_id=lease.thread_id, lease_id=lease.lease_id)
        answer, noted = self._call(self._leases, "KeepLease", request)
        kept = lease if answer is None else answer.lease
        self._note("keep", lease.thread_id, noted, lease=kept)
        return bool(noted["outcome"] != "LEASE_LOST")

    def _release(self, lease: Lease) -> None:
        request = ReleaseLeaseRequest(thread_id=lease.thread_id, lease_id=lease.lease_id)
        answer, noted = self._call(self._leases, "ReleaseLease", request)
        if answer is not None and not answer.released:
            noted["outcome"] = "LEASE_LOST"
        self._note("release", lease.thread_id, noted, lease=lease)

    def _save(self, thread: str, lease: Lease | None) -> str:
        token, fence = next(self._tokens), 0 if lease is None else lease.fence
        checkpoint = Checkpoint(
            ref=CheckpointRef(thread_id=thread),
            metadata_json=json.dumps({"token": token, "fence": fence}).encode(),
        )
        checkpoint.state.SetInParent()
        lease_id = "" if lease is None else lease.lease_id
        request = SaveCheckpointRequest(checkpoint=checkpoint, lease_id=lease_id)
        answer, noted = self._call(self._saves, "SaveCheckpoint", request)
        seq = 0 if answer is None else answer.seq
        self._note("save", thread, noted, lease=lease, token=token, seq=seq)
        return str(noted["outcome"])

    def _call(self, stubs: list[Any], method: str, request: Any) -> tuple[Any, dict[str, Any]]:
        """Call a random server; return the answer, or `None`, and the times and the outcome."""
        noted: dict[str, Any] = {"invoked": time.monotonic(), "outcome": "ok"}
        answer = None
        try:
            stub = self._source.choice(stubs)
            answer = getattr(stub, method)(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            noted["outcome"] = reported(error).reason
            if error.code() in _LOST:
                noted["outcome"] = "lost"
                time.sleep(PAUSE_SECONDS)
        noted["answered"] = time.monotonic()
        return answer, noted

    def _note(
        self, kind: Any, thread: str, noted: dict[str, Any], *, lease: Lease | None, **more: Any
    ) -> None:
        if lease is not None:
            more["fence"] = lease.fence
            more["acquired_us"] = lease.acquire_time.ToMicroseconds()
            more["until_us"] = lease.expire_time.ToMicroseconds()
        call = Call(kind=kind, thread=thread, driver=self._name, **noted, **more)
        print(json.dumps(asdict(call)), flush=True)


if __name__ == "__main__":
    targets, threads, name, seed = sys.argv[1:]
    driver = Driver(targets.split(","), threads.split(","), name, seed)
    signal.signal(signal.SIGTERM, driver.stop)
    driver.work()
