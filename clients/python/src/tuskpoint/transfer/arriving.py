"""Plan of a thread's import, made before the first save, and the saves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .._messages.checkpoints.saving import value_digest
from .._sync.calls import SyncCalls
from .._sync.saving import save_inlining
from .._transport import methods
from ..errors import Conflict, ResourceExhausted, ThreadDeleted
from ..v1.checkpoint_pb2 import VIEW_ENTRY, Checkpoint, CheckpointRef, CheckpointState
from ..v1.checkpoint_service_pb2 import (
    ListCheckpointsRequest,
    SaveCheckpointRequest,
    SaveWritesRequest,
)
from ..v1.thread_service_pb2 import SetRetentionRequest
from ..v1.value_pb2 import PendingWrite, Value
from .limits import MAX_WRITES, Limits
from .threads import Key, Problem, Source, ThreadSettings, called, key_of

Advance = Callable[[], object]
"""Function that is called once for each checkpoint."""

Slot = tuple[str, int]

_LOWEST = "0"
"""An ID that sorts before all UUIDs, and so before the IDs of a deleted thread."""


@dataclass(slots=True)
class Plan:
    """Checkpoints and writes of a thread that the import saves.

    Attributes:
        thread_id: The thread in the source.
        target_id: The thread on the server.
        settings: Settings of the thread.
        checkpoints: Number of checkpoints in the source.
        missing: Checkpoints that the server does not have.
        writes: Writes that a checkpoint on the server does not have.
        count_of_writes: Number of writes to save, including the writes of missing checkpoints.
        heads: Greatest ID of each namespace on the server.
        begins: Whether the server has no checkpoint of the thread.
        is_ahead: Whether the server has checkpoints or writes of the thread that the source lacks.
    """

    thread_id: str
    target_id: str
    settings: ThreadSettings
    checkpoints: int = 0
    missing: set[Key] = field(default_factory=set)
    writes: dict[Key, set[Slot]] = field(default_factory=dict)
    count_of_writes: int = 0
    heads: dict[str, str] = field(default_factory=dict)
    begins: bool = True
    is_ahead: bool = False

    @property
    def is_done(self) -> bool:
        """Whether the server has everything already."""
        return not self.missing and not self.writes


class Arrival:
    """Imports threads of a source into a server.

    Args:
        calls: Calls to the server.
        source: Source of the threads.
        prefix: Prefix of the thread IDs on the server.
        agent_id: Name of the agent that drives the threads; empty keeps the agent of the source.
        restarts: Whether the ID of a deleted thread may be used again.
    """

    def __init__(
        self, calls: SyncCalls, source: Source, prefix: str, agent_id: str, *, restarts: bool
    ) -> None:
        self._calls = calls
        self._source = source
        self._prefix = prefix
        self._agent_id = agent_id
        self._restarts = restarts

    def target_of(self, thread_id: str) -> str:
        """Return the ID of a thread on the server."""
        return self._prefix + thread_id

    def plan(self, thread_id: str, advance: Advance) -> Plan:
        """Read a whole thread, compare it with the server's thread, and return the import plan.

        Raises:
            Problem: The thread is damaged, cannot be stored, or differs from the server's thread.
        """
        target_id = self.target_of(thread_id)
        plan = Plan(thread_id, target_id, self._source.settings(thread_id))
        server_keys = self._there(plan)
        deleted = plan.begins and self._is_deleted(target_id)
        if deleted and not self._restarts:
            raise Problem(
                f"the thread '{target_id}' was deleted on the server",
                "give --restart-deleted to start the thread again, or --prefix for another ID",
            )
        limits, source_keys = Limits(thread_id), set[Key]()
        for message in self.messages(plan):
            limits.check(message)
            key = key_of(message)
            if key in source_keys:
                raise Problem(f"{called(key)} of thread '{thread_id}' occurs twice", is_damage=True)
            if deleted:
                self._check_restart(message, source_keys)
            source_keys.add(key)
            if key in server_keys:
                plan.is_ahead |= self._compare(plan, message)
            else:
                plan.missing.add(key)
                plan.count_of_writes += len(message.writes)
            advance()
        if not source_keys:
            raise Problem(f"the source has no thread '{thread_id}'", "check the ID")
        plan.checkpoints = len(source_keys)
        plan.is_ahead |= not server_keys <= source_keys
        if plan.is_ahead and (plan.missing or plan.writes or not server_keys & source_keys):
            raise self._foreign(
                target_id, "the server has checkpoints or writes that the source does not have"
            )
        return plan

    def messages(self, plan: Plan) -> Iterator[Checkpoint]:
        """Yield the checkpoints of a thread under its ID on the server."""
        for message in self._source.checkpoints(plan.thread_id):
            message.ref.thread_id = plan.target_id
            yield message

    def write(self, plan: Plan, advance: Advance) -> None:
        """Save the checkpoints and writes of a plan.

        Raises:
            TuskPointError: The server refused a checkpoint. The checkpoints before it are saved,
                and another import continues from there.
        """
        sent: set[bytes] = set()
        for message in self.messages(plan):
            key = key_of(message)
            if key in plan.missing:
                self._save(plan, message, sent)
            elif key in plan.writes:
                slots = plan.writes[key]
                late = [write for write in message.writes if (write.task_id, write.idx) in slots]
                self._save_writes(message.ref, late)
            advance()
        if plan.begins and plan.settings.retention is not None:
            request = SetRetentionRequest(thread_id=plan.target_id)
            request.retention.FromTimedelta(plan.settings.retention)
            self._calls.unary(methods.SET_RETENTION, request)

    def _there(self, plan: Plan) -> set[Key]:
        """Return the keys of a thread's checkpoints on the server."""
        request = ListCheckpointsRequest(thread_id=plan.target_id, view=VIEW_ENTRY)
        keys = {key_of(checkpoint) for checkpoint in self._calls.list_checkpoints(request)}
        for ns, checkpoint_id in keys:
            plan.heads[ns] = max(plan.heads.get(ns, ""), checkpoint_id)
        plan.begins = not keys
        return keys

    def _is_deleted(self, thread_id: str) -> bool:
        """Return whether a thread that has no checkpoints was deleted.

        The server has no call that returns deleted threads. But it refuses a save that follows a
        deleted checkpoint, and a save that expects another head. So the save in this test is never
        stored.
        """
        probe = SaveCheckpointRequest(
            checkpoint=Checkpoint(
                ref=CheckpointRef(thread_id=thread_id, checkpoint_id=_LOWEST + _LOWEST),
                parent_checkpoint_id=_LOWEST,
                state=CheckpointState(schema_version=1),
            ),
            expected_head=_LOWEST,
        )
        try:
            self._calls.save_checkpoint(probe)
        except ThreadDeleted:
            return True
        except Conflict:
            return False
        raise AssertionError("the server saved a checkpoint that follows none of its own")

    def _check_restart(self, message: Checkpoint, source_keys: Collection[Key]) -> None:
        """Check that the server will accept a checkpoint of a restarted thread.

        Raises:
            Problem: The checkpoint follows a checkpoint that the source does not have, and that may
                be a deleted one.
        """
        needed = [(message.ref.checkpoint_ns, message.parent_checkpoint_id)]
        if message.ref.checkpoint_ns:
            needed.append(("", _root_of(message)))
        for key in needed:
            if key[1] and key not in source_keys:
                raise Problem(
                    f"the thread '{message.ref.thread_id}' was deleted on the server, and "
                    f"{called(key_of(message))} follows {called(key)}, which the source lacks",
                    "give --prefix to import it under another ID",
                )

    def _compare(self, plan: Plan, message: Checkpoint) -> bool:
        """Compare a checkpoint with the server's; return whether the server has more writes.

        Raises:
            Problem: The two checkpoints differ.
        """
        stored = self._calls.get_checkpoint(message.ref)
        if stored is None or not is_same(stored, message):
            name = called(key_of(message))
            raise self._foreign(plan.target_id, f"{name} differs")
        server_slots, source_slots = _slots(stored), _slots(message)
        changed = {
            slot
            for slot in server_slots.keys() & source_slots.keys()
            if server_slots[slot] != source_slots[slot]
        }
        if any(idx >= 0 for _, idx in changed):
            name = called(key_of(message))
            raise self._foreign(plan.target_id, f"the writes of {name} differ")
        is_ahead = bool(server_slots.keys() - source_slots.keys())
        # The next mark of a task, such as its interrupt, replaces the earlier mark.
        late = (source_slots.keys() - server_slots.keys()) | (set() if is_ahead else changed)
        if late:
            plan.writes[key_of(message)] = late
            plan.count_of_writes += len(late)
        return is_ahead

    def _foreign(self, thread_id: str, detail: str) -> Problem:
        return Problem(
            f"thread '{thread_id}' on the server differs from the source: {detail}",
            "give --prefix to import it under another ID",
        )

    def _save(self, plan: Plan, message: Checkpoint, sent: set[bytes]) -> None:
        writes = list(message.writes)
        message.ClearField("writes")
        ns, checkpoint_id = key_of(message)
        request = SaveCheckpointRequest(
            checkpoint=message,
            writes=writes[:MAX_WRITES],
            # No other program may save to the thread in between.
            expected_head=plan.heads.get(ns, ""),
            agent_id=self._agent_id or plan.settings.agent_id,
            restart_deleted=self._restarts,
        )
        if plan.begins and not plan.settings.searchable:
            request.searchable = False
        left_out: dict[str, Value] = {}
        for channel in request.checkpoint.state.channels:
            if not channel.HasField("value"):
                continue
            digest = value_digest(channel.value.type, channel.value.data)
            if digest in sent:
                left_out[channel.name] = Value(type=channel.value.type, data=channel.value.data)
                channel.ClearField("value")
                channel.digest = digest
            sent.add(digest)
        inline = partial(_put_back, request, left_out)
        patiently(lambda: save_inlining(self._calls, request, inline))
        plan.heads[ns] = max(plan.heads.get(ns, ""), checkpoint_id)
        self._save_writes(message.ref, writes[MAX_WRITES:])

    def _save_writes(self, ref: CheckpointRef, writes: list[PendingWrite]) -> None:
        for start in range(0, len(writes), MAX_WRITES):
            batch = writes[start : start + MAX_WRITES]
            request = SaveWritesRequest(ref=ref, writes=batch)
            patiently(partial(self._calls.save_writes, request))


def patiently(save: Callable[[], object]) -> None:
    """Save; retry while too much waits for certification: an import is faster than blob stores."""
    while True:
        try:
            save()
        except ResourceExhausted as full:
            if full.retry_after_s is None:
                raise
            time.sleep(full.retry_after_s)
        else:
            return


def _put_back(
    request: SaveCheckpointRequest, left_out: dict[str, Value], names: Collection[str] | None
) -> None:
    for channel in request.checkpoint.state.channels:
        if channel.name in left_out and (names is None or channel.name in names):
            channel.value.CopyFrom(left_out[channel.name])


def is_same(checkpoint: Checkpoint, other: Checkpoint) -> bool:
    """Return whether two checkpoints are equal, except for their writes and descriptions."""
    return _facts(checkpoint) == _facts(other)


def _facts(message: Checkpoint) -> tuple[Any, ...]:
    state = message.state
    updated = list(state.updated_channels.names) if state.HasField("updated_channels") else None
    channels = {
        channel.name: (
            channel.version.SerializeToString() if channel.HasField("version") else None,
            (channel.value.type, channel.value.data) if channel.HasField("value") else None,
        )
        for channel in state.channels
    }
    seen = {
        node: {name: version.SerializeToString() for name, version in versions.channels.items()}
        for node, versions in state.versions_seen.items()
    }
    extras = {name: (extra.type, extra.data) for name, extra in state.extras.items()}
    return (
        message.parent_checkpoint_id,
        message.metadata_json or b"{}",
        state.schema_version,
        state.ts,
        sorted(state.delta_channels),
        updated,
        channels,
        seen,
        extras,
    )


def _root_of(message: Checkpoint) -> str:
    """Return the root checkpoint in the metadata of a subgraph's checkpoint; empty for none."""
    metadata = json.loads(message.metadata_json.decode("utf-8", "surrogatepass") or "{}")
    parents = metadata.get("parents")
    root = parents.get("") if isinstance(parents, dict) else None
    return root if isinstance(root, str) else ""


def _slots(message: Checkpoint) -> dict[Slot, tuple[str, str, str, bytes]]:
    """Return the writes of a checkpoint by task and slot."""
    return {
        (write.task_id, write.idx): (
            write.task_path,
            write.channel,
            write.value.type,
            write.value.data,
        )
        for write in message.writes
    }
