"""Checkpoint storage of workflows: the checkpoints of a run are kept as a thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import fields
from typing import Any, Unpack

from agent_framework import WorkflowCheckpoint, WorkflowCheckpointException

from ... import CheckpointRecord
from ...aio import AsyncClient
from .._client import AsyncAdapter, ClientOptions
from .._thread import Change, FrameworkThread, refuse_foreign
from ._values import Values

FRAMEWORK = "agent-framework"
DELETED = "deleted"
"""Label of a checkpoint that the framework deleted."""

_STATE = "state/"
_EXECUTORS = "executors/"
_EXECUTOR_STATE = "_executor_state"  # key of the framework for the states of executors
_MAX_NAMES = 8


class TuskPointCheckpointStorage(AsyncAdapter):
    """A checkpoint storage of the Agent Framework: `workflow.run(..., checkpoint_storage=...)`.

    A storage serves one run of a workflow. The run is a thread, and each checkpoint of the workflow
    is a checkpoint of the thread. Values are saved as JSON, without pickle. The constructor does no
    I/O.

    If a checkpoint cannot be saved, the framework only logs the error, and the run continues. So
    check `save_error` after a run.

    Args:
        thread_id: The thread. Use a new thread for each run.
        target: Address of the server, as for `AsyncClient`, or a client. The storage does not close
            that client.
        types: Types of the application in messages, requests and states: enums, dataclasses, models
            of pydantic, and classes with `to_dict` and `from_dict`.
        agent_id: Name of the agent, recorded with the thread.
        options: Options of `AsyncClient`, unless `target` is a client.

    Attributes:
        save_error: Error of the last save; `None` if the last checkpoint was saved.

    Raises:
        InvalidRequest: The target or an option is malformed.
        TypeError: A type in `types` cannot be saved as JSON.
    """

    def __init__(
        self,
        thread_id: str,
        target: str | AsyncClient | None = None,
        *,
        types: Iterable[type[Any]] = (),
        agent_id: str = "",
        **options: Unpack[ClientOptions],
    ) -> None:
        self.thread_id = thread_id
        self.save_error: Exception | None = None
        self._values = Values(types)
        self._connect(target, options)
        self._thread = FrameworkThread(
            self._client, thread_id, framework=FRAMEWORK, agent_id=agent_id
        )

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Save a checkpoint and return its ID.

        Raises:
            WorkflowCheckpointException: A value in the checkpoint has no form in JSON, or its type
                is not allowed. The message has the path of the value.
            PreconditionFailed: Another program wrote the thread.
            ThreadDeleted: The thread was deleted after the previous checkpoint.
        """
        try:
            await self._save(checkpoint)
        except Exception as error:
            self.save_error = error
            raise
        self.save_error = None
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Return a checkpoint.

        Raises:
            WorkflowCheckpointException: There is no checkpoint with this ID, or it has a value of a
                type that is not allowed.
        """
        async with aclosing(self._saved(checkpoint_id, full=True)) as records:
            async for record in records:
                return self._read(record)
        raise WorkflowCheckpointException(
            f"thread '{self.thread_id}' has no checkpoint with the ID '{checkpoint_id}'"
        )

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Return the checkpoints of a workflow, oldest first, each with its state.

        Raises:
            PreconditionFailed: Another program wrote the thread.
            WorkflowCheckpointException: A value has a type that is not allowed.
        """
        checkpoints = [self._read(record) async for record in self._of(workflow_name, full=True)]
        return checkpoints[::-1]

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint for the framework; return whether the checkpoint existed.

        The checkpoint gets the label "deleted", and stays in the history of the thread until the
        thread is pruned or deleted.
        """
        records = [record async for record in self._saved(checkpoint_id)]
        for record in records:
            await self._client.set_label(
                self.thread_id, DELETED, checkpoint_id=record.checkpoint_id
            )
        return bool(records)

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Return the latest checkpoint of a workflow, or `None` if there is none.

        Raises:
            PreconditionFailed: Another program wrote the thread.
            WorkflowCheckpointException: A value has a type that is not allowed.
        """
        async with aclosing(self._of(workflow_name)) as records:
            async for latest in records:
                record = await self._client.load(self.thread_id, latest.checkpoint_id)
                return self._read(record)
        return None

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the IDs of a workflow's checkpoints, oldest first.

        Raises:
            PreconditionFailed: Another program wrote the thread.
        """
        ids = [record.metadata["checkpoint_id"] async for record in self._of(workflow_name)]
        return ids[::-1]

    async def _save(self, checkpoint: WorkflowCheckpoint) -> None:
        state = self._channels(checkpoint)
        metadata = {
            "workflow_name": checkpoint.workflow_name,
            "checkpoint_id": checkpoint.checkpoint_id,
            "previous_checkpoint_id": checkpoint.previous_checkpoint_id,
            "iteration": checkpoint.iteration_count,
        }
        if checkpoint.previous_checkpoint_id is None:
            # This is the start of a run: a deleted thread may start again.
            await self._thread.read()
        await self._thread.change(lambda _: Change(state, _summary(checkpoint), metadata))

    def _channels(self, checkpoint: WorkflowCheckpoint) -> dict[str, Any]:
        """Return the channels of a checkpoint, one for each field, state key and executor."""
        written = self._values.written
        parts: dict[str, Any] = {}
        for field in fields(checkpoint):
            if field.name != "state":
                parts[field.name] = written(getattr(checkpoint, field.name), field.name)
        for key, value in checkpoint.state.items():
            if key == _EXECUTOR_STATE and type(value) is dict and value:
                for name, inner in value.items():
                    channel = f"{_EXECUTORS}{name}"
                    parts[channel] = written(inner, channel)
            else:
                parts[_STATE + key] = written(value, _STATE + key)
        return parts

    def _read(self, record: CheckpointRecord) -> WorkflowCheckpoint:
        parts: dict[str, Any] = {}
        state: dict[str, Any] = {}
        executors: dict[str, Any] = {}
        for channel, value in record.state.items():
            read = self._values.read(value, channel)
            if channel.startswith(_STATE):
                state[channel.removeprefix(_STATE)] = read
            elif channel.startswith(_EXECUTORS):
                executors[channel.removeprefix(_EXECUTORS)] = read
            else:
                parts[channel] = read
        if executors:
            state[_EXECUTOR_STATE] = executors
        return WorkflowCheckpoint.from_dict({**parts, "state": state})

    async def _of(
        self, workflow_name: str, *, full: bool = False
    ) -> AsyncGenerator[CheckpointRecord, None]:
        """Yield the checkpoints of a workflow, latest first; for each ID only the latest."""
        ids: set[str] = set()
        async for record in self._client.list(self.thread_id, checkpoint_ns="", full=full):
            refuse_foreign(self.thread_id, FRAMEWORK, record.metadata)
            checkpoint_id = record.metadata["checkpoint_id"]
            if record.metadata["workflow_name"] != workflow_name or checkpoint_id in ids:
                continue
            ids.add(checkpoint_id)
            if record.label != DELETED:
                yield record

    async def _saved(
        self, checkpoint_id: str, *, full: bool = False
    ) -> AsyncGenerator[CheckpointRecord, None]:
        """Yield the checkpoints of the thread that the framework has not deleted, latest first."""
        metadata = {"framework": FRAMEWORK, "checkpoint_id": checkpoint_id}
        async for record in self._client.list(
            self.thread_id, checkpoint_ns="", metadata=metadata, full=full
        ):
            if record.label != DELETED:
                yield record


def _summary(checkpoint: WorkflowCheckpoint) -> str:
    """Return a sentence about a checkpoint from names only."""
    clauses = [f"{checkpoint.workflow_name}, superstep {checkpoint.iteration_count}"]
    if checkpoint.pending_request_info_events:
        waiting = checkpoint.pending_request_info_events.values()
        clauses.append(
            f"waits for answers to {_named(event.source_executor_id for event in waiting)}"
        )
    if sources := [name for name, sent in checkpoint.messages.items() if sent]:
        clauses.append(f"messages from {_named(sources)}")
    return ": ".join([clauses[0], ", ".join(clauses[1:]) or "nothing left to do"])


def _named(names: Iterable[str]) -> str:
    different = [name[:100] for name in dict.fromkeys(names)]
    hidden = len(different) - _MAX_NAMES
    return ", ".join(different[:_MAX_NAMES]) + (f" and {hidden} more" if hidden > 0 else "")
