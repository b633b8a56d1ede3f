"""`Client`: the service for agents without LangGraph, blocking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from . import _requests as requests
from ._calls import SyncCalls
from ._options import Options
from ._records import CheckpointRecord, DurabilityName, SourceName, checkpoint_record
from ._reports import (
    ArchiveStatus,
    ManifestRecord,
    ServerInfo,
    StateName,
    ThreadRecord,
    archive_status,
    manifest_record,
    server_info,
    thread_record,
)
from ._saving import Draft, Memory, Steps, encode_state, save_steps
from .errors import TuskPointError
from .v1.checkpoint_pb2 import Checkpoint, CheckpointRef
from .v1.checkpoint_service_pb2 import SaveCheckpointResponse
from .v1.thread_service_pb2 import GetManifestRequest, GetThreadRequest


class Client:
    """Saves and loads the state of agents.

    One client may be shared by all threads of a process. Failed calls are tried again where
    that is safe, and every call has a deadline; errors are those of `tuskpoint.errors`.

    Args:
        target: `host:port` of the server. Default: the environment variable `TUSKPOINT_TARGET`,
            else `127.0.0.1:7390`.
        timeout_s: Seconds after which a quick call gives up, its retries included. Calls that
            wait for the blob store or read streams have longer ones.

    Raises:
        InvalidRequest: The target cannot be one, or `timeout_s` is not above 0.
    """

    def __init__(self, target: str | None = None, *, timeout_s: float = 30.0) -> None:
        self._calls = SyncCalls(Options.of(target, timeout_s=timeout_s))
        self._memory = Memory()

    @property
    def target(self) -> str:
        """Where the server is."""
        return self._calls.options.target

    def save(
        self,
        thread_id: str,
        state: Mapping[str, Any],
        *,
        checkpoint_id: str | None = None,
        parent: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        summary: str = "",
        label: str = "",
        agent_id: str = "",
        durability: DurabilityName = "journaled",
        expected_head: str | None = None,
        checkpoint_ns: str = "",
    ) -> str:
        """Save a checkpoint and return its ID.

        Each key of the state is a channel with a value of type `json`. What is the same as in
        the parent is not sent again and keeps its version; what changed gets a version above
        all of the parent's.

        Args:
            thread_id: The thread; it begins with its first checkpoint.
            state: Channel to a value that JSON can express.
            checkpoint_id: The ID to give it. Default: a UUIDv6 above the parent's.
            parent: The checkpoint to follow; empty for none. Default: `expected_head`, else the
                latest of the namespace at the moment of the save, whoever saved it.
            metadata: A JSON object to save with it.
            summary: One sentence that says what happened.
            label: A name for it.
            agent_id: Name of the agent that drives the thread.
            durability: "journaled", or "certified" to wait for the blob store.
            expected_head: The ID that the latest must have, empty for none; otherwise nothing
                is saved. Guards against two agents that drive one thread.
            checkpoint_ns: The namespace inside the thread.

        Raises:
            InvalidRequest: The state is not JSON, or an argument breaks its limits.
            Conflict: The latest is not `expected_head`.
            ThreadDeleted: `parent` belongs to a deleted thread.
        """
        draft = Draft(
            thread_id=thread_id,
            checkpoint_ns=checkpoint_ns,
            values=encode_state(state),
            checkpoint_id=checkpoint_id,
            parent=parent,
            expected_head=expected_head,
            metadata_json=requests.metadata_json(metadata),
            summary=summary,
            label=label,
            agent_id=agent_id,
            durability=requests.durability(durability),
        )
        return self._perform(save_steps(draft, self._memory))

    def load(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        checkpoint_ns: str = "",
        source: SourceName = "any",
    ) -> CheckpointRecord:
        """Load one checkpoint exactly.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint. Default: the latest.
            checkpoint_ns: The namespace.
            source: "any", or "blob" to read from the blob store itself.

        Raises:
            NotFound: There is no such checkpoint.
            PreconditionFailed: `source` is "blob" and the checkpoint is not certified.
            DataLoss: The blob does not have the recorded hash.
        """
        ref = requests.ref(thread_id, checkpoint_ns, checkpoint_id)
        found = self._calls.get_checkpoint(ref, source=requests.source(source))
        if found is None:
            raise requests.not_found(ref)
        return checkpoint_record(found)

    def list(
        self,
        thread_id: str | None = None,
        *,
        checkpoint_ns: str | None = None,
        before: str = "",
        metadata: Mapping[str, Any] | None = None,
        label: str = "",
        limit: int | None = None,
        full: bool = False,
        source: SourceName = "any",
    ) -> Iterator[CheckpointRecord]:
        """Yield checkpoints, latest first.

        Args:
            thread_id: Only this thread. Default: all.
            checkpoint_ns: Only this namespace; empty is the root. Default: all.
            before: Only IDs below this one.
            metadata: Only checkpoints whose metadata has all of these.
            label: Only checkpoints with this label.
            limit: At most this many.
            full: Whether to load state and pending writes too.
            source: "any", or "blob" to read from the blob store itself.
        """
        request = requests.listing(
            thread_id, checkpoint_ns, before, metadata, label, limit, full, source
        )
        for found in self._calls.list_checkpoints(request):
            yield checkpoint_record(found)

    def history(
        self, thread_id: str, *, checkpoint_ns: str = "", full: bool = False
    ) -> Iterator[CheckpointRecord]:
        """Yield the checkpoints of a namespace, oldest first.

        Args:
            thread_id: The thread.
            checkpoint_ns: The namespace.
            full: Whether to load state and pending writes too, one checkpoint at a time.
        """
        for entry in reversed([*self.list(thread_id, checkpoint_ns=checkpoint_ns)]):
            ref = requests.ref(thread_id, checkpoint_ns, entry.checkpoint_id)
            found = self._calls.get_checkpoint(ref) if full else None
            if found is not None:
                yield checkpoint_record(found)
            elif not full:
                yield entry

    def delete(self, thread_id: str, *, durability: DurabilityName = "journaled") -> int:
        """Delete a thread with all its namespaces; return how many checkpoints it had."""
        deleted = self._calls.delete_thread(requests.deletion(thread_id, durability))
        self._memory.forget(thread_id)
        return deleted.deleted_checkpoints

    def set_retention(
        self,
        thread_id: str,
        retention: timedelta | None,
        *,
        durability: DurabilityName = "journaled",
    ) -> None:
        """Set how long a thread is kept after its last change; then it is deleted.

        Args:
            thread_id: The thread.
            retention: The time, in whole seconds, at least one; `None` keeps the thread.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: There is no such thread.
        """
        self._calls.set_retention(requests.retaining(thread_id, retention, durability))

    def copy(
        self, thread_id: str, new_thread_id: str, *, durability: DurabilityName = "journaled"
    ) -> int:
        """Copy a thread into one that has no checkpoints; return how many were copied.

        Raises:
            NotFound: There is no such thread.
            AlreadyExists: The new thread has checkpoints.
        """
        request = requests.copying(thread_id, new_thread_id, durability)
        return self._calls.copy_thread(request).copied_checkpoints

    def prune(
        self,
        thread_ids: str | Iterable[str],
        *,
        keep: requests.Keep = "latest",
        durability: DurabilityName = "journaled",
    ) -> int:
        """Delete old checkpoints of threads; return how many.

        Args:
            thread_ids: A thread, or several. Those that do not exist are passed over.
            keep: "latest" keeps the latest of each namespace and what it is rebuilt from.
            durability: "journaled", or "certified" to wait for the blob store.
        """
        prunings = requests.prunings(thread_ids, keep, durability)
        return sum(self._calls.prune_threads(one).deleted_checkpoints for one in prunings)

    def delete_runs(
        self, run_ids: str | Iterable[str], *, durability: DurabilityName = "journaled"
    ) -> int:
        """Delete the checkpoints whose metadata has one of these `run_id`s; return how many."""
        deletions = requests.run_deletions(run_ids, durability)
        return sum(self._calls.delete_runs(one).deleted_checkpoints for one in deletions)

    def label(
        self,
        thread_id: str,
        label: str,
        *,
        checkpoint_id: str | None = None,
        checkpoint_ns: str = "",
        durability: DurabilityName = "journaled",
    ) -> str:
        """Name a checkpoint, or clear its name with an empty label; return its ID.

        Args:
            thread_id: The thread.
            label: The name.
            checkpoint_id: The checkpoint. Default: the latest.
            checkpoint_ns: The namespace.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: There is no such checkpoint.
        """
        request = requests.labelling(thread_id, label, checkpoint_id, checkpoint_ns, durability)
        return self._calls.set_label(request).ref.checkpoint_id

    def thread(self, thread_id: str) -> ThreadRecord:
        """Describe a thread.

        Raises:
            NotFound: There is no such thread.
        """
        return thread_record(self._calls.get_thread(GetThreadRequest(thread_id=thread_id)).thread)

    def threads(
        self, *, agent_id: str = "", label: str = "", state: StateName | None = None
    ) -> Iterator[ThreadRecord]:
        """Yield threads by ID.

        Args:
            agent_id: Only threads that this agent drives.
            label: Only threads that have a checkpoint with this label.
            state: Only threads in this state.
        """
        request = requests.thread_listing(agent_id, label, state)
        while True:
            page = self._calls.list_threads(request)
            for one in page.threads:
                yield thread_record(one)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def manifest(self, thread_id: str) -> Iterator[ManifestRecord]:
        """Yield what is certified of a thread, by namespace and checkpoint ID.

        Raises:
            NotFound: There is no such thread.
        """
        request = GetManifestRequest(thread_id=thread_id, page_size=requests.BATCH)
        while True:
            page = self._calls.get_manifest(request)
            for one in page.entries:
                yield manifest_record(one)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def flush(self) -> int:
        """Certify everything saved so far; return how many checkpoints became certified.

        Raises:
            Unavailable: The blob store refuses. Nothing is lost.
        """
        return self._calls.flush().certified_checkpoints

    def status(self) -> ArchiveStatus:
        """Return how the archive stands."""
        return archive_status(self._calls.get_archive_status())

    def info(self) -> ServerInfo:
        """Return version, limits and backends of the server."""
        return server_info(self._calls.get_server_info())

    def close(self) -> None:
        """Let go of the connection. Calls made afterwards raise; closing again does nothing."""
        self._calls.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _perform(self, steps: Steps) -> str:
        step = next(steps)
        answer: Checkpoint | SaveCheckpointResponse | None
        while True:
            try:
                if isinstance(step, CheckpointRef):
                    answer = self._calls.get_checkpoint(step)
                else:
                    answer = self._calls.save_checkpoint(step)
            except TuskPointError as error:
                step = steps.throw(error)
                continue
            try:
                step = steps.send(answer)
            except StopIteration as done:
                saved: str = done.value
                return saved
