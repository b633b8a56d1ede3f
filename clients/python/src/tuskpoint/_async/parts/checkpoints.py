"""Methods that save, load and list checkpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from ..._messages import requests
from ..._messages.arguments import Vector, check_texts, components, encode_state
from ..._messages.checkpoints.saving import Draft
from ..._messages.history import replaying
from ..._messages.records import (
    CheckpointRecord,
    DurabilityName,
    SourceName,
    ViewName,
    checkpoint_record,
)
from ..._transport import methods
from ...errors import NotFound
from ...v1.checkpoint_pb2 import CheckpointRef
from ..saving import save_draft
from .part import AsyncPart


class AsyncCheckpoints(AsyncPart):
    """Methods that save, load and list checkpoints."""

    async def save(
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
        vector: Vector | None = None,
        searchable: bool | None = None,
        strict: bool = False,
    ) -> str:
        """Save a checkpoint and return its ID.

        Each key of the state is a channel with a value of type `json`. A value that
        is equal to the parent's is not sent again and keeps its version; a value that changed
        gets a version above all versions of the parent.

        Args:
            thread_id: The thread. The first checkpoint creates the thread.
            state: Maps each channel to a value that JSON can express. Keys of mappings are strings.
            checkpoint_id: ID of the new checkpoint. Default: a UUIDv6 above the parent's.
            parent: ID of the checkpoint to follow; empty for a checkpoint without parent. Default:
                `expected_head`, else the latest checkpoint of the namespace when the save commits,
                whichever client saved it.
            metadata: JSON object to save with the checkpoint.
            summary: One sentence about what happened.
            label: Name of the checkpoint.
            agent_id: Name of the agent that drives the thread.
            durability: "journaled", or "certified" to wait for the blob store.
            expected_head: ID that the latest checkpoint must have; empty if there must be no
                checkpoint. With any other latest checkpoint, nothing is saved. Guards against two
                agents that drive one thread.
            checkpoint_ns: The namespace inside the thread.
            vector: Numbers with which `search_similar` finds the checkpoint: a list, an
                `array.array` or a NumPy array. All vectors have the same dimension. Default: the
                vector of an earlier save of this checkpoint, else the vector that the server's
                embedder computes.
            searchable: Whether search finds the thread's checkpoints, from this save on.
                Default: unchanged; a new thread is searchable.
            strict: Whether to refuse tuples in the state. Default: tuples come back as lists.

        Raises:
            InvalidRequest: The state cannot be written as JSON, and the message has the path of the
                part that cannot; or an argument breaks its limits.
            Conflict: The latest checkpoint is not `expected_head`.
            ThreadDeleted: `parent` belongs to a deleted thread.
        """
        draft = Draft(
            thread_id=thread_id,
            checkpoint_ns=checkpoint_ns,
            values=encode_state(state, strict=strict),
            checkpoint_id=checkpoint_id,
            parent=parent,
            expected_head=expected_head,
            metadata_json=requests.metadata_json(metadata),
            summary=summary,
            label=label,
            agent_id=agent_id,
            durability=requests.durability(durability),
            vector=() if vector is None else components("vector", vector),
            searchable=requests.flag("searchable", searchable),
        )
        return await save_draft(self._calls, draft, self._memory)

    async def load(
        self,
        thread_id: str | None = None,
        checkpoint_id: str | None = None,
        *,
        checkpoint_ns: str = "",
        source: SourceName = "any",
        view: ViewName = "full",
    ) -> CheckpointRecord:
        """Load one checkpoint.

        Args:
            thread_id: The thread. Default: the only thread that has the checkpoint.
            checkpoint_id: The checkpoint. Default: the latest of the thread.
            checkpoint_ns: The namespace. Empty is the root of a thread; without a thread, any
                namespace.
            source: "any", or "blob" to read from the blob store itself.
            view: "full" returns values as they were saved. "json" returns each value as JSON,
                whatever framework and language saved the value, so that `state` is plain data.
                "entry" returns neither state nor writes. "step" returns an entry with `step`: the
                nodes that ran, the channels that changed, what comes next, questions, failures and
                tokens; it needs the source "any".

        Raises:
            NotFound: There is no such checkpoint.
            InvalidRequest: Neither thread nor checkpoint is given. Or several threads have the
                checkpoint, because forks and copies keep IDs; the message names the threads.
            PreconditionFailed: `source` is "blob" and the checkpoint is not certified.
            DataLoss: The blob does not have the recorded hash.
        """
        if thread_id is None:
            ref = await self._find(checkpoint_id, checkpoint_ns)
        else:
            ref = requests.ref(thread_id, checkpoint_ns, checkpoint_id)
        checkpoint = await self._calls.get_checkpoint(
            ref, view=requests.view(view), source=requests.source(source)
        )
        if checkpoint is None:
            raise requests.not_found(ref)
        return checkpoint_record(checkpoint)

    async def _find(self, checkpoint_id: str | None, checkpoint_ns: str) -> CheckpointRef:
        request = requests.finding(checkpoint_id, checkpoint_ns)
        async with aclosing(self._calls.list_checkpoints(request)) as checkpoints:
            refs = [checkpoint.ref async for checkpoint in checkpoints]
        return requests.only_one(request.checkpoint_id, refs)

    async def list(
        self,
        thread_id: str | None = None,
        *,
        checkpoint_ns: str | None = None,
        checkpoint_id: str = "",
        before: str = "",
        metadata: Mapping[str, Any] | None = None,
        label: str = "",
        limit: int | None = None,
        full: bool = False,
        source: SourceName = "any",
        view: ViewName | None = None,
    ) -> AsyncIterator[CheckpointRecord]:
        """Yield checkpoints, latest first.

        Args:
            thread_id: Only this thread. Default: all threads.
            checkpoint_ns: Only this namespace; empty is the root. Default: all namespaces.
            checkpoint_id: Only this ID. Several threads may have the same ID: forks and copies keep
                IDs.
            before: Only IDs below this one.
            metadata: Only checkpoints whose metadata has all of these keys with these values.
            label: Only checkpoints with this label.
            limit: Most checkpoints to yield.
            full: Whether to load state and pending writes too.
            source: "any", or "blob" to read from the blob store itself.
            view: As in `load`. Default: "full" if `full`, else "entry".
        """
        request = requests.listing(
            thread_id,
            checkpoint_ns,
            checkpoint_id,
            before,
            metadata,
            label,
            limit,
            view or ("full" if full else "entry"),
            source,
        )
        async with aclosing(self._calls.list_checkpoints(request)) as checkpoints:
            async for checkpoint in checkpoints:
                yield checkpoint_record(checkpoint)

    async def history(
        self, thread_id: str, *, checkpoint_ns: str = "", full: bool = False
    ) -> AsyncIterator[CheckpointRecord]:
        """Yield the checkpoints of a namespace, oldest first; nothing if the thread does not exist.

        `replay` also yields all namespaces or a range of IDs, in any view.

        Args:
            thread_id: The thread.
            checkpoint_ns: The namespace.
            full: Whether to load state and pending writes too.
        """
        check_texts(checkpoint_ns=checkpoint_ns)
        request = replaying(thread_id, checkpoint_ns, "", "", "full" if full else "entry", "any")
        try:
            async with aclosing(self._calls.replay_thread(request)) as checkpoints:
                async for checkpoint in checkpoints:
                    yield checkpoint_record(checkpoint)
        except NotFound as error:
            if error.reason != "THREAD_NOT_FOUND":
                raise

    async def set_label(
        self,
        thread_id: str,
        label: str,
        *,
        checkpoint_id: str | None = None,
        checkpoint_ns: str = "",
        durability: DurabilityName = "journaled",
    ) -> str:
        """Name a checkpoint, or clear its name with an empty label; return the checkpoint's ID.

        `label` is another name of this method.

        Args:
            thread_id: The thread.
            label: The name.
            checkpoint_id: The checkpoint. Default: the latest checkpoint.
            checkpoint_ns: The namespace.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: There is no such checkpoint.
        """
        request = requests.labelling(thread_id, label, checkpoint_id, checkpoint_ns, durability)
        return (await self._calls.unary(methods.SET_LABEL, request)).ref.checkpoint_id

    label = set_label
