"""`ThreadService` on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import ClassVar

from google.protobuf import duration_pb2

from tuskpoint.v1 import thread_service_pb2 as thread_pb

from ...core.effects.records import EffectsMode
from ...core.errors import Reason, Refusal
from ...core.limits import LIMITS
from ...core.threads import PruneStrategy, ThreadState
from ...features.checkpoints.checkpoints import Checkpoints
from ...features.checkpoints.listed_threads import ThreadQuery
from ...features.checkpoints.threads import Threads
from ...features.lineage.branches import Branches
from ...features.removal.removal import Removal
from ...features.removal.retention import Retention
from ..messages.convert import fill_fields, key, ref
from ..messages.validation import Check, Checks
from ..middleware.pipeline import Call, Fields
from ..middleware.policy import STORING, check_scopes
from .messages import (
    lineage_step,
    manifest_response,
    preview_response,
    retention_rule,
    thread,
    thread_detail,
    verification_frame,
)

_MAX_RULES = 100  # most entries of a preview
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799
"""Bounds of a `Timestamp` in seconds: from the year 1 to the end of the year 9999."""


def _manifest(checks: Checks, request: thread_pb.GetManifestRequest) -> None:
    if request.store and request.page_token:
        checks.fail("store", "must not be set with a page token; ask for it with the first page")


def _listing(checks: Checks, request: thread_pb.ListThreadsRequest) -> None:
    times = []
    for name in ("changed_after", "changed_before"):
        if request.HasField(name):
            time = getattr(request, name)
            times.append((time.seconds, time.nanos))
            if not (_FIRST_S <= time.seconds <= _LAST_S and 0 <= time.nanos < 10**9):
                checks.fail(name, "must be a time from the year 1 to the year 9999")
    if len(times) == 2 and times[0] >= times[1]:
        checks.fail("changed_before", "must be later than changed_after")


def _microseconds(request: thread_pb.ListThreadsRequest, name: str) -> int | None:
    """Return a time in microseconds since the Unix epoch, rounded up; `None` if it is unset."""
    if not request.HasField(name):
        return None
    time = getattr(request, name)
    microseconds: int = time.seconds * 1_000_000 - -time.nanos // 1000
    return microseconds


def _retention(checks: Checks, request: thread_pb.SetRetentionRequest) -> None:
    _time(checks, "retention", request.retention)


def _time(checks: Checks, field: str, time: duration_pb2.Duration) -> None:
    if time.nanos:
        checks.fail(field, "must be whole seconds")
    elif not 0 <= time.seconds <= LIMITS.max_retention_s:
        checks.fail(field, f"must be 1 to {LIMITS.max_retention_s} seconds, or 0 to keep it")


def _preview(checks: Checks, request: thread_pb.PreviewRetentionRequest) -> None:
    if not checks.at_most("rules", len(request.rules), _MAX_RULES, " rules"):
        return
    targets = set()
    for number, rule in enumerate(request.rules):
        path = f"rules[{number}]"
        _time(checks, f"{path}.delete_after", rule.delete_after)
        _time(checks, f"{path}.keep_for", rule.keep_for)
        if not (rule.delete_after.seconds or rule.keep_last or rule.keep_for.seconds):
            checks.fail(path, "needs delete_after, keep_last or keep_for")
        if (rule.agent_id, rule.thread_id) in targets:
            checks.fail(path, "is for the same agent and thread as an earlier rule")
        targets.add((rule.agent_id, rule.thread_id))


def _erase(checks: Checks, request: thread_pb.EraseThreadsRequest) -> None:
    if not request.thread_ids:
        checks.fail("thread_ids", "must name at least one thread")


def _delete_runs(checks: Checks, request: thread_pb.DeleteRunsRequest) -> None:
    checks.names("run_ids", request.run_ids, LIMITS.max_run_id, LIMITS.max_batch, " names")


@dataclass(frozen=True, slots=True)
class ThreadServicer:
    """`ThreadService`: looks after whole threads."""

    checks: ClassVar[Mapping[str, Check]] = {
        "DeleteRunsRequest": _delete_runs,
        "EraseThreadsRequest": _erase,
        "GetManifestRequest": _manifest,
        "ListThreadsRequest": _listing,
        "PreviewRetentionRequest": _preview,
        "SetRetentionRequest": _retention,
    }
    _threads: Threads
    _checkpoints: Checkpoints
    _branches: Branches
    _removal: Removal
    _retention: Retention

    async def GetThread(self, request: thread_pb.GetThreadRequest, call: Call) -> Fields:
        detail = await self._threads.get(call.tenant, request.thread_id)
        return {"thread": thread_detail(detail)}

    async def ListThreads(self, request: thread_pb.ListThreadsRequest, call: Call) -> Fields:
        state = ThreadState(request.state) if request.state else None
        query = ThreadQuery(
            request.agent_id,
            request.label,
            state,
            since_us=_microseconds(request, "changed_after"),
            until_us=_microseconds(request, "changed_before"),
            latest_first=request.order == thread_pb.THREAD_ORDER_LATEST,
        )
        arguments = (query, request.page_size, request.page_token)
        threads, token = await self._threads.list(call.tenant, *arguments)
        return {"threads": map(thread, threads), "next_page_token": token}

    async def DeleteThread(self, request: thread_pb.DeleteThreadRequest, call: Call) -> Fields:
        count = await self._removal.delete(call.tenant, request.thread_id, call.wanted)
        return {"deleted_checkpoints": count}

    async def SetRetention(self, request: thread_pb.SetRetentionRequest, call: Call) -> Fields:
        thread_id, seconds = request.thread_id, request.retention.seconds
        await self._removal.set_retention(call.tenant, thread_id, seconds, call.wanted)
        return {}

    async def SetSearchable(self, request: thread_pb.SetSearchableRequest, call: Call) -> Fields:
        thread_id, searchable = request.thread_id, request.searchable
        await self._removal.set_searchable(call.tenant, thread_id, searchable, call.wanted)
        return {}

    async def CopyThread(self, request: thread_pb.CopyThreadRequest, call: Call) -> Fields:
        names = (request.source_thread_id, request.target_thread_id, request.request_id)
        return {"copied_checkpoints": await self._branches.copy(call.tenant, *names, call.wanted)}

    async def PruneThreads(self, request: thread_pb.PruneThreadsRequest, call: Call) -> Fields:
        arguments = (request.thread_ids, PruneStrategy(request.strategy))
        count = await self._removal.prune(call.tenant, *arguments, call.wanted)
        return {"deleted_checkpoints": count}

    async def DeleteRuns(self, request: thread_pb.DeleteRunsRequest, call: Call) -> Fields:
        count = await self._removal.delete_runs(call.tenant, request.run_ids, call.wanted)
        return {"deleted_checkpoints": count}

    async def PreviewRetention(
        self, request: thread_pb.PreviewRetentionRequest, call: Call
    ) -> thread_pb.PreviewRetentionResponse:
        rules = [retention_rule(rule) for rule in request.rules]
        return preview_response(await self._retention.preview(call.tenant, rules))

    async def EraseThreads(self, request: thread_pb.EraseThreadsRequest, call: Call) -> Fields:
        receipt = await self._retention.erase(call.tenant, request.thread_ids)
        return {
            "receipt": receipt.content,
            "signer": receipt.signer,
            "signature": receipt.signature,
        }

    async def ForkThread(self, request: thread_pb.ForkThreadRequest, call: Call) -> Fields:
        arguments = (key(request.ref), request.new_thread_id, request.request_id)
        mode = EffectsMode(request.effects or EffectsMode.COPY)
        new_key = await self._branches.fork(call.tenant, *arguments, call.wanted, mode)
        forked_from = f"{request.ref.thread_id}:{new_key.checkpoint_id}"
        return {"ref": ref(new_key), "forked_from": forked_from}

    async def RollbackThread(self, request: thread_pb.RollbackThreadRequest, call: Call) -> Fields:
        earlier, request_id = key(request.ref), request.request_id
        head = request.expected_head if request.HasField("expected_head") else None
        new_key = await self._branches.rollback(
            call.tenant, earlier, request_id, head, request.lease_id, call.wanted
        )
        return {"ref": ref(new_key), "rolled_back_from": str(earlier)}

    async def GetLineage(self, request: thread_pb.GetLineageRequest, call: Call) -> Fields:
        tree = await self._branches.lineage(call.tenant, request.thread_id)
        return {
            "ancestors": map(lineage_step, tree.ancestors),
            "descendants": map(lineage_step, tree.descendants),
            "truncated": tree.truncated,
        }

    async def DiffCheckpoints(
        self, request: thread_pb.DiffCheckpointsRequest, call: Call
    ) -> Fields:
        before, after = key(getattr(request, "from")), key(request.to)
        diff = await self._checkpoints.diff(call.tenant, before, after, request.max_changes, call)
        changes = [
            fill_fields(thread_pb.Change(from_json=change.before, to_json=change.after), change)
            for change in diff.changes
        ]
        return {"changes": changes, "truncated": diff.truncated}

    async def VerifyThread(
        self, request: thread_pb.VerifyThreadRequest, call: Call
    ) -> AsyncIterator[thread_pb.VerifyThreadResponse]:
        async with aclosing(self._threads.verify(call.tenant, request.thread_id)) as results:
            async for result in results:
                if call.draining.is_set():
                    raise Refusal(Reason.DRAINING)
                yield verification_frame(result)

    async def GetManifest(
        self, request: thread_pb.GetManifestRequest, call: Call
    ) -> thread_pb.GetManifestResponse:
        thread_id, size, token = request.thread_id, request.page_size, request.page_token
        if request.store:
            check_scopes(call, STORING)
        page = self._threads.manifest(call.tenant, thread_id, size, token, store=request.store)
        return manifest_response(await page)
