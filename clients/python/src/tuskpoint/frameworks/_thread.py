"""A thread that an adapter keeps in memory between calls, and changes by new checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..aio import AsyncClient
from ..errors import Conflict, NotFound, PreconditionFailed, ThreadDeleted

MAX_ATTEMPTS = 64
"""Most attempts of a change when other writers save in between."""

MAX_HELD = 32
"""Most threads that `FrameworkThreads` keeps in memory."""

_LOADS_AT_ONCE = 64

State = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """The change that a checkpoint of a framework makes.

    Attributes:
        state: The whole new state. It may share unchanged values with the old state.
        summary: One sentence about what happened.
        metadata: Metadata besides the framework's name.
        label: Name of the checkpoint.
    """

    state: State
    summary: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""


@dataclass(frozen=True)
class Version:
    """A checkpoint of the thread. Without a checkpoint, the ID and the state are empty."""

    checkpoint_id: str
    state: State
    metadata: Mapping[str, Any]


NOTHING = Version("", {}, {})


def refuse_foreign(thread_id: str, framework: str, metadata: Mapping[str, Any]) -> None:
    """Raise if a checkpoint was not saved by a framework.

    Raises:
        PreconditionFailed: Another program saved the checkpoint.
    """
    writer = metadata.get("framework")
    if writer != framework:
        origin = f"by {writer}" if isinstance(writer, str) else "by another program"
        raise PreconditionFailed(
            f"thread '{thread_id}' was written {origin}, not by {framework}: "
            "use another ID; nothing was written",
            status="FAILED_PRECONDITION",
            metadata={"thread_id": thread_id},
        )


class FrameworkThread:
    """A thread that one framework writes, in the view of one process.

    The latest checkpoint stays in memory. A read requests only the ID of the latest checkpoint, and
    loads the state if that ID has changed. A change names the checkpoint that it follows. If
    another process saved in between, the change is computed again from the newer checkpoint.

    Args:
        client: The client.
        thread_id: The thread.
        framework: Name of the framework. The metadata of each checkpoint has this name.
        agent_id: Name of the agent that drives the thread.
    """

    def __init__(
        self, client: AsyncClient, thread_id: str, *, framework: str, agent_id: str
    ) -> None:
        self._client = client
        self._thread_id = thread_id
        self._framework = framework
        self._agent_id = agent_id
        self._held: Version | None = None

    @property
    def held(self) -> Version:
        """Checkpoint in memory, which need not be the latest; `NOTHING` if there is none."""
        return self._held or NOTHING

    async def read(self) -> Version:
        """Return the latest checkpoint. Its state must not be changed.

        Raises:
            PreconditionFailed: A program other than this framework wrote the thread.
        """
        version = self._held
        if version is not None:
            latest = await self._latest("entry")
            if latest.checkpoint_id == version.checkpoint_id:
                return version
        self._held = await self._latest("full")
        return self._held

    async def change(self, edit: Callable[[Version], Change | None]) -> Version:
        """Save a checkpoint that follows the latest; return it, or the latest if nothing changes.

        Args:
            edit: Computes the change from the latest checkpoint; `None` changes nothing. Exceptions
                of `edit` pass through. `edit` is called again if another process saved in between.

        Raises:
            PreconditionFailed: A program other than this framework wrote the thread.
            ThreadDeleted: The thread was deleted after the last read of this object.
            Conflict: Other processes saved in between `MAX_ATTEMPTS` times.
        """
        attempt = 0
        while True:
            before = self._held = self._held or await self._latest("full")
            try:
                change = edit(before)
            except Exception:
                if await self._is_latest(before):
                    raise
                continue
            if change is None:
                if await self._is_latest(before):
                    return before
                continue
            # Until the save is acknowledged it is unknown which checkpoint is the latest.
            self._held = None
            metadata = {"framework": self._framework, **change.metadata}
            attempt += 1
            try:
                checkpoint_id = await self._client.save(
                    self._thread_id,
                    change.state,
                    expected_head=before.checkpoint_id,
                    metadata=metadata,
                    summary=change.summary,
                    label=change.label,
                    agent_id=self._agent_id,
                )
            except Conflict:
                if attempt == MAX_ATTEMPTS:
                    raise
            except ThreadDeleted:
                self._held = before  # the server refuses a retry, too
                raise
            else:
                self._held = Version(checkpoint_id, change.state, metadata)
                return self._held

    async def delete(self) -> None:
        """Delete the thread, if it exists.

        Raises:
            PreconditionFailed: A program other than this framework wrote the thread.
        """
        self._held = None
        if (await self._latest("entry")).checkpoint_id:
            await self._client.delete(self._thread_id)

    async def _is_latest(self, version: Version) -> bool:
        """Return whether a checkpoint is still the latest. If not, load the latest."""
        return (await self.read()).checkpoint_id == version.checkpoint_id

    async def _latest(self, view: Literal["full", "entry"]) -> Version:
        try:
            record = await self._client.load(self._thread_id, view=view)
        except NotFound:
            return NOTHING
        refuse_foreign(self._thread_id, self._framework, record.metadata)
        return Version(record.checkpoint_id, record.state, record.metadata)


class FrameworkThreads:
    """The threads of a framework that this process used last, each kept in memory.

    Args:
        client: The client.
        framework: Name of the framework. The metadata of each checkpoint has this name.
    """

    def __init__(self, client: AsyncClient, framework: str) -> None:
        self._client = client
        self._framework = framework
        self._used: dict[str, FrameworkThread] = {}

    def get(self, thread_id: str, *, agent_id: str) -> FrameworkThread:
        """Return a thread that an agent drives."""
        thread = self._used.pop(thread_id, None)
        if thread is None:
            thread = FrameworkThread(
                self._client, thread_id, framework=self._framework, agent_id=agent_id
            )
        self._used[thread_id] = thread
        if len(self._used) > MAX_HELD:
            del self._used[next(iter(self._used))]
        return thread

    def held(self) -> Iterator[Version]:
        """Yield the checkpoints in memory, last used first."""
        for thread in reversed([*self._used.values()]):
            yield thread.held

    async def metadata(self, thread_ids: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the metadata of the latest checkpoints, without loading states.

        Threads that do not exist, or that another program wrote, are left out.
        """
        results: list[Mapping[str, Any]] = []
        for start in range(0, len(thread_ids), _LOADS_AT_ONCE):
            batch = thread_ids[start : start + _LOADS_AT_ONCE]
            results += await asyncio.gather(*map(self._metadata, batch))
        return results

    async def _metadata(self, thread_id: str) -> Mapping[str, Any]:
        try:
            metadata = (await self._client.load(thread_id, view="entry")).metadata
        except NotFound:
            return {}
        return metadata if metadata.get("framework") == self._framework else {}
