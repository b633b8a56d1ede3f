"""Methods that describe, list, copy and delete threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta

from ..._messages import requests
from ..._messages.arguments import check_texts
from ..._messages.records import DurabilityName, Location
from ..._messages.reports import (
    ManifestRecord,
    StateName,
    ThreadRecord,
    manifest_record,
    stored_manifest,
    thread_record,
)
from ..._messages.retention import (
    Receipt,
    RetentionPreview,
    RetentionRule,
    erasure,
    preview,
    previewed,
    receipt,
)
from ..._transport import methods
from ...v1.thread_service_pb2 import GetManifestRequest, GetThreadRequest
from .part import AsyncPart


class AsyncThreads(AsyncPart):
    """Methods that describe, list, copy and delete threads."""

    async def get_thread(self, thread_id: str) -> ThreadRecord:
        """Return the description of a thread. `thread` is another name of this method.

        Raises:
            NotFound: The thread does not exist.
        """
        check_texts(thread_id=thread_id)
        request = GetThreadRequest(thread_id=thread_id)
        return thread_record((await self._calls.unary(methods.GET_THREAD, request)).thread)

    async def list_threads(
        self,
        *,
        agent_id: str = "",
        label: str = "",
        state: StateName | None = None,
        changed_after: datetime | None = None,
        changed_before: datetime | None = None,
        latest_first: bool = False,
    ) -> AsyncIterator[ThreadRecord]:
        """Yield threads, by ID unless `latest_first` is set.

        Each record says what its thread waits for or why it failed (`question`, `failure`), else
        what happened last (`summary`). `threads` is another name of this method.

        Args:
            agent_id: Only threads that this agent drives. Default: all agents.
            label: Only threads that have a checkpoint with this label.
            state: Only threads in this state.
            changed_after: Only threads that changed at this time or later; a time without a time
                zone is in UTC.
            changed_before: Only threads whose last change was earlier.
            latest_first: Whether to yield threads by their last change, latest first. A thread that
                changes during the listing may be missing.
        """
        request = requests.thread_listing(
            agent_id, label, state, changed_after, changed_before, latest_first=latest_first
        )
        while True:
            page = await self._calls.unary(methods.LIST_THREADS, request)
            for thread in page.threads:
                yield thread_record(thread)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def delete(self, thread_id: str, *, durability: DurabilityName = "journaled") -> int:
        """Delete a thread with all its namespaces; return the number of its checkpoints."""
        request = requests.deletion(thread_id, durability)
        deleted = await self._calls.unary(methods.DELETE_THREAD, request)
        self._memory.forget(thread_id)
        return deleted.deleted_checkpoints

    async def set_retention(
        self,
        thread_id: str,
        retention: timedelta | None,
        *,
        durability: DurabilityName = "journaled",
    ) -> None:
        """Set a thread's retention: the time after its last change at which it is deleted.

        Args:
            thread_id: The thread.
            retention: The time, in whole seconds, at least one second; `None` keeps the thread.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: The thread does not exist.
        """
        request = requests.retaining(thread_id, retention, durability)
        await self._calls.unary(methods.SET_RETENTION, request)

    async def set_searchable(
        self, thread_id: str, searchable: bool, *, durability: DurabilityName = "journaled"
    ) -> None:
        """Set whether search finds a thread's checkpoints. A new thread is searchable.

        A fork, copy or restored thread inherits the setting.

        Args:
            thread_id: The thread.
            searchable: Whether search finds the thread's checkpoints.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: The thread does not exist.
        """
        request = requests.exposing(thread_id, searchable, durability)
        await self._calls.unary(methods.SET_SEARCHABLE, request)

    async def copy(
        self, thread_id: str, new_thread_id: str, *, durability: DurabilityName = "journaled"
    ) -> int:
        """Copy a thread into one that has no checkpoints; return the number of copied checkpoints.

        Raises:
            NotFound: The thread does not exist.
            AlreadyExists: The new thread has checkpoints.
        """
        request = requests.copying(thread_id, new_thread_id, durability)
        return (await self._calls.unary(methods.COPY_THREAD, request)).copied_checkpoints

    async def prune(
        self,
        thread_ids: str | Iterable[str],
        *,
        keep: requests.Keep = "latest",
        durability: DurabilityName = "journaled",
    ) -> int:
        """Delete old checkpoints of threads; return their number.

        Args:
            thread_ids: A thread, or several. Threads that do not exist are skipped.
            keep: "latest" keeps the latest checkpoint of each namespace and the data from which it
                is rebuilt.
            durability: "journaled", or "certified" to wait for the blob store.
        """
        deleted = 0
        for request in requests.prunings(thread_ids, keep, durability):
            answer = await self._calls.unary(methods.PRUNE_THREADS, request)
            deleted += answer.deleted_checkpoints
        return deleted

    async def delete_runs(
        self, run_ids: str | Iterable[str], *, durability: DurabilityName = "journaled"
    ) -> int:
        """Delete the checkpoints whose metadata has one of these `run_id`s; return their number."""
        deleted = 0
        for request in requests.run_deletions(run_ids, durability):
            deleted += (await self._calls.unary(methods.DELETE_RUNS, request)).deleted_checkpoints
        return deleted

    async def preview_retention(self, rules: Iterable[RetentionRule] = ()) -> RetentionPreview:
        """Return what retention rules would delete now. Nothing is deleted.

        Args:
            rules: The rules, at most 100. Default: the rules in the server's retention file.
        """
        request = preview(rules)
        return previewed(await self._calls.unary(methods.PREVIEW_RETENTION, request))

    async def erase(self, thread_ids: str | Iterable[str]) -> Receipt:
        """Delete threads, wait until the deletion is certified, and return a signed receipt.

        Needs the scope "admin".

        Args:
            thread_ids: A thread, or several, at most 1,000. Threads that do not exist are in the
                receipt with 0 checkpoints.
        """
        request = erasure(thread_ids)
        answer = await self._calls.unary(methods.ERASE_THREADS, request)
        for thread_id in request.thread_ids:
            self._memory.forget(thread_id)
        return receipt(answer)

    async def manifest(self, thread_id: str) -> AsyncIterator[ManifestRecord]:
        """Yield the stored checkpoints of a thread in the newest catalog, by namespace and ID.

        Raises:
            NotFound: The thread does not exist.
        """
        check_texts(thread_id=thread_id)
        request = GetManifestRequest(thread_id=thread_id, page_size=requests.BATCH)
        while True:
            page = await self._calls.unary(methods.GET_MANIFEST, request)
            for entry in page.entries:
                yield manifest_record(entry)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def store_manifest(self, thread_id: str) -> Location | None:
        """Store a thread's manifest as a separate blob and return its location.

        `tuskpoint audit manifest` and `tuskpoint-server recover` read the blob. No server renews
        it.

        Returns:
            The location; `None` if no checkpoint of the thread is certified.

        Raises:
            NotFound: The thread does not exist.
        """
        check_texts(thread_id=thread_id)
        request = GetManifestRequest(thread_id=thread_id, page_size=1, store=True)
        return stored_manifest(await self._calls.unary(methods.GET_MANIFEST, request))

    thread = get_thread
    threads = list_threads
