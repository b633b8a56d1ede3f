"""CrewAI: states of flows that `@persist` saves, and checkpoints of crews, flows and agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Self, Unpack
from uuid import uuid4

from ..client import Client
from ..errors import Conflict, NotFound, ThreadDeleted
from ._client import ClientOptions, client_of
from ._effects import EffectOptions, blocking_tool_function
from ._lists import appended, items_of, without_list
from ._requirements import unusable
from ._thread import NOTHING, Version, refuse_foreign

try:
    from crewai.flow.async_feedback.types import PendingFeedbackContext
    from crewai.flow.persistence import FlowPersistence
    from crewai.state import CheckpointConfig, JsonProvider
    from pydantic import BaseModel, PrivateAttr
    from pydantic_core import PydanticSerializationError, to_jsonable_python
except ImportError as error:
    raise unusable("crewai", "crewai", error) from error

FLOWS = "crewai-flow"
CHECKPOINTS = "crewai-checkpoints"

MAX_FLOWS = 4096
"""Most flows whose latest checkpoint a `TuskPointFlowPersistence` remembers."""

_FIELD = "state/"
_PENDING = "pending_feedback"
_MAX_SUMMARY = 256  # characters, so at most 1,024 bytes


class FlowOptions(ClientOptions, total=False):
    """Options of `Client`, and the name of the class, which CrewAI passes back to it."""

    persistence_type: str


@dataclass
class _Flow:
    """A flow in the view of this process.

    Attributes:
        lock: Locked during a save, because methods of a flow run at the same time.
        head: ID of the checkpoint that was loaded or saved last; `None` if unknown.
        pending: Feedback that the flow waits for at that checkpoint; `None` for no feedback.
    """

    lock: Lock = field(default_factory=Lock)
    head: str | None = None
    pending: Any = None


class TuskPointFlowPersistence(FlowPersistence):
    """Persistence of CrewAI's flows: `@persist(TuskPointFlowPersistence())`.

    A flow is the thread of the same ID, and each state that CrewAI saves is a checkpoint. A wait
    for a person's feedback is a checkpoint, too. The constructor does no I/O. Any number of flows
    may share a persistence, in all threads of a process.

    Args:
        target: Address of the server, as for `Client`, or a client. The persistence does not close
            that client.
        agent_id: Name of the agent, recorded with the threads.
        options: Options of `Client`, unless `target` is a client.

    Raises:
        InvalidRequest: The target or an option is malformed.
    """

    persistence_type: str = "TuskPointFlowPersistence"
    target: str = ""
    agent_id: str = FLOWS
    _client: Client = PrivateAttr()
    _made: bool = PrivateAttr()
    _flows: dict[str, _Flow] = PrivateAttr(default_factory=dict)
    _lock: Lock = PrivateAttr(default_factory=Lock)

    def __init__(
        self,
        target: str | Client | None = None,
        *,
        agent_id: str = FLOWS,
        **options: Unpack[FlowOptions],
    ) -> None:
        options.pop("persistence_type", None)
        client, is_own = client_of(Client, target, options)
        fields: dict[str, Any] = {"target": client.target, "agent_id": agent_id}
        super().__init__(**fields)
        self._client, self._made = client, is_own

    def init_db(self) -> None:
        """Do nothing: the first save creates the thread."""

    def save_state(
        self, flow_uuid: str, method_name: str, state_data: dict[str, Any] | BaseModel
    ) -> None:
        """Save the state of a flow: one checkpoint. A flow that waits for feedback keeps waiting.

        Raises:
            Conflict: Another process saved the flow after this process loaded or saved it.
            PreconditionFailed: Another program wrote the thread.
            ThreadDeleted: The thread was deleted after this process loaded or saved the flow.
            TypeError: A field of the state cannot be written as JSON.
        """
        fields = _fields_of(state_data)
        flow = self._flow(flow_uuid)
        with flow.lock:
            self._know_head(flow, flow_uuid)
            self._save(flow, flow_uuid, fields, flow.pending, method_name, f"after {method_name}")

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return the latest state of a flow, or `None` if the flow has no state.

        Raises:
            PreconditionFailed: Another program wrote the thread.
        """
        flow = self._flow(flow_uuid)
        with flow.lock:
            return _loaded(flow_uuid, self._load(flow, flow_uuid))

    def save_pending_feedback(
        self,
        flow_uuid: str,
        context: PendingFeedbackContext,
        state_data: dict[str, Any] | BaseModel,
    ) -> None:
        """Save the state of a flow, and the feedback that the flow waits for: one checkpoint.

        Raises:
            Conflict: Another process saved the flow after this process loaded or saved it.
            PreconditionFailed: Another program wrote the thread.
            ThreadDeleted: The thread was deleted after this process loaded or saved the flow.
            TypeError: A field of the state or of the context cannot be written as JSON.
        """
        fields, pending = _fields_of(state_data), _json_of(_PENDING, context.to_dict())
        method = context.method_name
        flow = self._flow(flow_uuid)
        with flow.lock:
            self._know_head(flow, flow_uuid)
            self._save(flow, flow_uuid, fields, pending, method, f"{method} waits for feedback")

    def load_pending_feedback(
        self, flow_uuid: str
    ) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """Return a flow's latest state and the awaited feedback, or `None` if it does not wait.

        Raises:
            PreconditionFailed: Another program wrote the thread.
        """
        flow = self._flow(flow_uuid)
        with flow.lock:
            state = _loaded(flow_uuid, self._load(flow, flow_uuid))
            if state is None or flow.pending is None:
                return None
            # The thread may be a fork of the saved thread.
            context = {**flow.pending, "flow_id": flow_uuid}
            return state, PendingFeedbackContext.from_dict(context)

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """Save that a flow no longer waits: one checkpoint, or none if the flow did not wait.

        Raises:
            Conflict: Another process saved the flow after this process loaded or saved it.
            PreconditionFailed: Another program wrote the thread.
            ThreadDeleted: The thread was deleted after this process loaded or saved the flow.
        """
        flow = self._flow(flow_uuid)
        with flow.lock:
            head = flow.head
            latest = self._load(flow, flow_uuid)
            if flow.pending is None:
                return
            if head is not None:
                flow.head = head  # the server refuses the save after a save of another process
            method = str(flow.pending.get("method_name", ""))
            fields = {
                name: value for name, value in latest.state.items() if name.startswith(_FIELD)
            }
            self._save(flow, flow_uuid, fields, None, method, f"{method} has its feedback")

    def close(self) -> None:
        """Close the client, if the persistence created it."""
        if self._made:
            self._client.close()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return the same object: copies of a flow or a crew share the client."""
        return self

    def _flow(self, flow_uuid: str) -> _Flow:
        with self._lock:
            flow = self._flows.pop(flow_uuid, None) or _Flow()
            self._flows[flow_uuid] = flow
            if len(self._flows) > MAX_FLOWS:
                del self._flows[next(iter(self._flows))]
            return flow

    def _know_head(self, flow: _Flow, flow_uuid: str) -> None:
        if flow.head is None:
            self._load(flow, flow_uuid)

    def _load(self, flow: _Flow, flow_uuid: str) -> Version:
        try:
            record = self._client.load(flow_uuid)
        except NotFound:
            latest = NOTHING
        else:
            refuse_foreign(flow_uuid, FLOWS, record.metadata)
            latest = Version(record.checkpoint_id, record.state, record.metadata)
        flow.head, flow.pending = latest.checkpoint_id, latest.state.get(_PENDING)
        return latest

    def _save(
        self,
        flow: _Flow,
        flow_uuid: str,
        fields: Mapping[str, Any],
        pending: Any,
        method: str,
        summary: str,
    ) -> None:
        head, flow.head = flow.head, None  # unknown until the save is acknowledged
        try:
            checkpoint_id = self._client.save(
                flow_uuid,
                fields if pending is None else {**fields, _PENDING: pending},
                expected_head=head,
                metadata={"framework": FLOWS, "method": method},
                summary=summary,
                agent_id=self.agent_id,
            )
        except Conflict as error:
            flow.head = head  # the server refuses a retry, too
            raise Conflict(
                f"another process saved flow '{flow_uuid}' since this one loaded it: run a flow in "
                f"one process at a time, and start it again with inputs={{'id': '{flow_uuid}'}}; "
                "nothing was written",
                status=error.status,
                reason=error.reason,
                metadata=error.metadata,
            ) from error
        except ThreadDeleted:
            flow.head = head
            raise
        flow.head, flow.pending = checkpoint_id, pending


class TuskPointProvider(JsonProvider):
    """A provider for `CheckpointConfig`. The `location` is then the name of a thread.

    Each checkpoint of CrewAI is a checkpoint of the thread and follows the same parent. Branches
    share the thread. The class is a `JsonProvider` because CrewAI accepts no other class. It writes
    no files; only `restoring` creates a file, because CrewAI restores from files only.

    Args:
        target: Address of the server, as for `Client`, or a client. The provider does not close
            that client.
        agent_id: Name of the agent, recorded with the threads.
        options: Options of `Client`, unless `target` is a client.

    Raises:
        InvalidRequest: The target or an option is malformed.
    """

    _client: Client = PrivateAttr()
    _made: bool = PrivateAttr()
    _agent_id: str = PrivateAttr()

    def __init__(
        self,
        target: str | Client | None = None,
        *,
        agent_id: str = CHECKPOINTS,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__()
        self._client, self._made = client_of(Client, target, options)
        self._agent_id = agent_id

    def checkpoint(
        self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main"
    ) -> str:
        """Save a checkpoint and return its location, `THREAD#CHECKPOINT`.

        Args:
            data: A JSON object.
            location: The thread.
            parent_id: ID of the checkpoint to follow. An ID that the thread does not have is
                ignored.
            branch: Name of the branch.

        Raises:
            PreconditionFailed: Another program wrote the thread.
            ValueError: `data` is not a JSON object.
        """
        snapshot = json.loads(data)
        if not isinstance(snapshot, dict):
            raise ValueError("a checkpoint must be a JSON object")
        trigger = snapshot.get("trigger") or "checkpoint"
        checkpoint_id = self._client.save(
            location,
            _channels_of(snapshot),
            parent=self._parent(location, parent_id),
            # `prune` deletes by the ID of the run.
            metadata={"framework": CHECKPOINTS, "branch": branch, "run_id": uuid4().hex},
            summary=f"{trigger} on branch {branch}"[:_MAX_SUMMARY],
            agent_id=self._agent_id,
        )
        return f"{location}#{checkpoint_id}"

    async def acheckpoint(
        self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main"
    ) -> str:
        """Run `checkpoint` in another thread of the process."""
        return await asyncio.to_thread(
            self.checkpoint, data, location, parent_id=parent_id, branch=branch
        )

    def from_checkpoint(self, location: str) -> str:
        """Return the checkpoint at a location that `checkpoint` returned.

        Raises:
            NotFound: There is no such checkpoint.
            PreconditionFailed: Another program wrote the thread.
        """
        thread_id, _, checkpoint_id = location.rpartition("#")
        record = self._client.load(thread_id, checkpoint_id)
        refuse_foreign(thread_id, CHECKPOINTS, record.metadata)
        return json.dumps(_snapshot_of(record.state))

    async def afrom_checkpoint(self, location: str) -> str:
        """Run `from_checkpoint` in another thread of the process."""
        return await asyncio.to_thread(self.from_checkpoint, location)

    def extract_id(self, location: str) -> str:
        """Return the checkpoint ID in `THREAD#CHECKPOINT`."""
        return location.rpartition("#")[2]

    def prune(self, location: str, max_keep: int, *, branch: str = "main") -> int:
        """Delete the old checkpoints of a branch; return how many.

        A checkpoint that another thread shares, such as a fork or a copy, is kept.
        """
        metadata = {"framework": CHECKPOINTS, "branch": branch}
        removed = 0
        for checkpoint in [*self._client.list(location, metadata=metadata)][max_keep:]:
            run_id = checkpoint.metadata.get("run_id")  # a rollback has no branch
            shared = [*self._client.list(checkpoint_id=checkpoint.checkpoint_id, limit=2)]
            if isinstance(run_id, str) and len(shared) == 1:
                removed += self._client.delete_runs(run_id)
        return removed

    @contextmanager
    def restoring(
        self, config: CheckpointConfig, *, branch: str = "main"
    ) -> Iterator[CheckpointConfig]:
        """Yield the configuration with a checkpoint in a file, from which CrewAI restores.

        Pass it to `kickoff(from_checkpoint=...)`, which saves later checkpoints with `config`, or
        to `from_checkpoint` or `fork` of a crew, flow or agent; then set `checkpoint` of the result
        to `config`. The file is deleted afterwards.

        Args:
            config: Configuration whose `restore_from` is a location that `checkpoint` returned.
                Default: the latest checkpoint of the branch in the thread `location`.
            branch: Name of the branch.

        Raises:
            LookupError: The branch has no checkpoint.
            NotFound: There is no such checkpoint.
            PreconditionFailed: Another program wrote the thread.
        """
        place = str(config.restore_from or self._latest(config.location, branch))
        data = self.from_checkpoint(place)
        with TemporaryDirectory() as folder:
            # The name of the file tells CrewAI the checkpoint's ID.
            file = Path(folder, f"{self.extract_id(place)}_p-none.json")
            file.write_text(data, encoding="utf-8")
            yield config.model_copy(update={"restore_from": file, "provider": self})

    def close(self) -> None:
        """Close the client, if the provider created it."""
        if self._made:
            self._client.close()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return the same object: copies of a flow or a crew share the client."""
        return self

    def _parent(self, thread_id: str, parent_id: str | None) -> str:
        """Return the parent's ID if the thread has the parent, else an empty text.

        Raises:
            PreconditionFailed: Another program wrote the thread.
        """
        for checkpoint_id in (parent_id, None) if parent_id else (None,):
            try:
                record = self._client.load(thread_id, checkpoint_id, view="entry")
            except NotFound:
                continue
            refuse_foreign(thread_id, CHECKPOINTS, record.metadata)
            return checkpoint_id or ""
        return ""

    def _latest(self, thread_id: str, branch: str) -> str:
        metadata = {"framework": CHECKPOINTS, "branch": branch}
        for checkpoint in self._client.list(thread_id, metadata=metadata, limit=1):
            return f"{thread_id}#{checkpoint.checkpoint_id}"
        raise LookupError(f"thread '{thread_id}' has no checkpoint of CrewAI on branch '{branch}'")


def effect_tool(
    function: Callable[..., Any], client: Client, thread_id: str, **options: Unpack[EffectOptions]
) -> Callable[..., Any]:
    """Return a function for the decorator `tool` that does its work in the outside world once.

    CrewAI gives a tool no ID of its call: equal arguments in one thread are one effect. See
    `tuskpoint.frameworks.openai_agents.effect_tool` for the other rules.

    Args:
        function: The function of the tool.
        client: A client.
        thread_id: The thread of the effects, such as the ID of the flow.
        options: See `EffectOptions`.
    """
    return blocking_tool_function(function, client, thread_id, options)


def _fields_of(state: dict[str, Any] | BaseModel) -> dict[str, Any]:
    """Return the channels of a flow's state, one for each field."""
    fields = _json_of(type(state).__name__, state) if isinstance(state, BaseModel) else state
    return {f"{_FIELD}{name}": _json_of(name, value) for name, value in fields.items()}


def _json_of(name: str, value: Any) -> Any:
    """Return a value as JSON, models as their fields."""
    try:
        return to_jsonable_python(value)
    except PydanticSerializationError as error:
        raise TypeError(
            f"'{name}' in the state of the flow cannot be written as JSON: {error}; "
            "nothing was written"
        ) from error


def _loaded(flow_uuid: str, version: Version) -> dict[str, Any] | None:
    """Return the state of a flow. Its ID is the thread's ID, because the thread may be a fork."""
    if not version.checkpoint_id:
        return None
    fields = {
        name.removeprefix(_FIELD): value
        for name, value in version.state.items()
        if name.startswith(_FIELD)
    }
    return {**fields, "id": flow_uuid}


def _channels_of(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """Return the channels of a checkpoint: lists in pieces, all other values unchanged."""
    record = snapshot.get("event_record") or {}
    lists = {
        "entities": snapshot.get("entities") or [],
        "events": [*(record.get("nodes") or {}).items()],
    }
    state = {name: value for name, value in snapshot.items() if name != "entities"}
    state["event_record"] = {name: value for name, value in record.items() if name != "nodes"}
    for name, items in lists.items():
        state = appended(state, name, items)
    return state


def _snapshot_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checkpoint that `_channels_of` split into channels."""
    nodes = dict(items_of(state, "events"))
    snapshot = {
        **without_list(without_list(state, "entities"), "events"),
        "entities": items_of(state, "entities"),
    }
    snapshot["event_record"] = {**snapshot["event_record"], "nodes": nodes}
    return snapshot
