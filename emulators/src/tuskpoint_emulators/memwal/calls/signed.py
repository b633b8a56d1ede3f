"""The handlers of signed calls.

`docs/relayer/api-reference.md` of MystenLabs/MemWal.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

from ..access.auth import Caller
from ..answers import Answer, json_answer, refused
from ..clock import Clock
from ..faults import Fault, FaultKind, Operation
from ..memory.blob_ids import blob_id_of
from ..memory.embedding import embed
from ..memory.jobs import FINE, Fate, Job, Jobs, JobStatus
from ..memory.ledger import Hit, Ledger, Namespace
from .bodies import MAX_SHORT_TEXT_BYTES, Body, job_ids

MAX_FACTS = 20
NAMESPACES_PAGE, MAX_NAMESPACES_PAGE = 100, 500

IMPORTANCE = 0.5
"""The same for every memory: the emulator does not score memories."""

_DAY_S = 86_400.0
_HALF_LIFE_DAYS = 30.0
_PAGE_SIZE = re.compile(r"[0-9]{1,9}")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass(frozen=True, slots=True)
class Call:
    """An admitted request.

    Attributes:
        caller: The caller that signed the request.
        raw: Its body.
        parameters: Parameters of the path.
        query: Its query, without the question mark.
        fault: The fault that the request meets.
    """

    caller: Caller
    raw: bytes
    parameters: tuple[str, ...] = ()
    query: str = ""
    fault: Fault | None = None

    @property
    def body(self) -> Body:
        """Its body as JSON."""
        return Body.parse(self.raw)

    def fate(self, position: int = 0) -> Fate:
        """Return the fate of the text at a position."""
        return FINE if self.fault is None else self.fault.fate(position)

    def has(self, kind: FaultKind) -> bool:
        """Return whether the request meets a fault of this kind."""
        return self.fault is not None and self.fault.kind is kind


Handler = Callable[[Call], Answer]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The handler of an operation, and the points that a call takes."""

    operation: Operation
    points: int
    handler: Handler


class Endpoints:
    """Handlers of the signed calls. Each may raise `RefusedError`.

    Args:
        clock: The emulator's clock.
        ledger: The memories.
        jobs: Accepted texts and their jobs.
        quota_bytes: Text that an owner may store.
    """

    def __init__(self, clock: Clock, ledger: Ledger, jobs: Jobs, quota_bytes: int) -> None:
        self._clock = clock
        self._ledger = ledger
        self._jobs = jobs
        self._quota_bytes = quota_bytes

    def all(self) -> dict[tuple[str, str], Endpoint]:
        """Return the handlers by method and path; literal paths come first."""
        post = {
            "/api/remember/bulk": Endpoint(Operation.BULK, 10, self.remember_bulk),
            "/api/remember/bulk/status": Endpoint(Operation.BULK_STATUS, 1, self.bulk_status),
            "/api/remember/manual": Endpoint(Operation.REMEMBER_MANUAL, 3, self.remember_manual),
            "/api/remember": Endpoint(Operation.REMEMBER, 5, self.remember),
            "/api/recall": Endpoint(Operation.RECALL, 1, self.recall),
            "/api/recall/manual": Endpoint(Operation.RECALL_MANUAL, 1, self.recall_manual),
            "/api/analyze": Endpoint(Operation.ANALYZE, 5, self.analyze),
            "/api/embed": Endpoint(Operation.EMBED, 1, self.embed),
            "/api/ask": Endpoint(Operation.ASK, 2, self.ask),
            "/api/restore": Endpoint(Operation.RESTORE, 3, self.restore),
            "/api/stats": Endpoint(Operation.STATS, 1, self.stats),
            "/api/forget": Endpoint(Operation.FORGET, 1, self.forget),
        }
        get = {
            "/api/remember/{job_id}": Endpoint(Operation.JOB_STATUS, 1, self.job_status),
            "/v1/owners/{owner}/namespaces": Endpoint(Operation.NAMESPACES, 1, self.namespaces),
        }
        return {("POST", path): endpoint for path, endpoint in post.items()} | {
            ("GET", path): endpoint for path, endpoint in get.items()
        }

    def remember(self, call: Call) -> Answer:
        """Accept a text."""
        body = call.body
        text, namespace, key = body.text(), body.namespace(), body.key()
        owner = call.caller.owner
        self._check_quota(owner, text)
        if key is None:
            job_id = self._jobs.begin(owner, namespace, text, call.fate())
        else:
            job_id = self._jobs.begin_once(owner, namespace, text, key, call.fate())
        # MemWal answers "running" even while the row is pending.
        return json_answer({"job_id": job_id, "status": JobStatus.RUNNING}, 202)

    def remember_bulk(self, call: Call) -> Answer:
        """Accept up to 20 texts, each a job of its own and without a key."""
        items = [Body(member, "an item") for member in call.body.members("items")]
        accepted = [(item.namespace(), item.text()) for item in items]
        self._check_quota(call.caller.owner, *(text for _, text in accepted))
        job_ids = [
            self._jobs.begin(call.caller.owner, namespace, text, call.fate(position))
            for position, (namespace, text) in enumerate(accepted)
        ]
        return json_answer({"job_ids": job_ids, "total": len(job_ids), "status": "running"}, 202)

    def job_status(self, call: Call) -> Answer:
        """Return the status of a job."""
        (job_id,) = call.parameters
        job = self._jobs.find(call.caller.owner, job_id)
        if job is None:
            raise refused(f"Remember job not found: {job_id}", 404)
        answer = self._job_to_json(job)
        return json_answer({**answer, "owner": job.owner, "namespace": job.namespace})

    def bulk_status(self, call: Call) -> Answer:
        """Return the status of up to 20 jobs."""
        results = []
        for job_id in job_ids(call.body.members("job_ids")):
            job = self._jobs.find(call.caller.owner, job_id)
            missing = {"job_id": job_id, "status": JobStatus.NOT_FOUND}
            results.append(missing if job is None else self._job_to_json(job))
        return json_answer({"results": results})

    def recall(self, call: Call) -> Answer:
        """Return the memories nearest to a text."""
        body = call.body
        query, namespace, limit = body.text("query"), body.namespace(), body.limit()
        weights = body.weights()
        body.maybe("sort")
        hits, dropped = self._look_up(call, namespace, query, limit)
        results = [self._hit_to_json(hit, weights) for hit in hits]
        if any("score" in result for result in results):
            results.sort(key=lambda result: -float(result["score"]))
        if call.fault is not None and call.has(FaultKind.INVENT):
            results += [_invented(text, call.fault.distance) for text in call.fault.texts]
            results.sort(key=lambda result: float(result["distance"]))
        answer: dict[str, Any] = {"results": results, "total": len(results)}
        return json_answer({**answer, "dropped_count": dropped} if dropped else answer)

    def remember_manual(self, call: Call) -> Answer:
        """Store bytes that the caller encrypted, under the caller's vector.

        The emulator never decrypts them: a recall of texts treats them as bytes that MemWal cannot
        decrypt either.
        """
        body = call.body
        vector, namespace = body.vector(), body.namespace()
        try:
            content = base64.b64decode(body.string("encrypted_data"), validate=True)
        except (binascii.Error, ValueError):
            raise refused("encrypted_data is not base64") from None
        owner = call.caller.owner
        memory = self._ledger.store(owner, namespace, None, vector=vector, size=len(content))
        ids = {"id": memory.blob_id, "blob_id": memory.blob_id}
        return json_answer({**ids, "owner": owner, "namespace": namespace})

    def recall_manual(self, call: Call) -> Answer:
        """Return the blobs nearest to a vector, without their texts."""
        body = call.body
        vector, namespace, limit = body.vector(), body.namespace(), body.limit()
        body.weights()
        hits = self._ledger.nearest(call.caller.owner, namespace, vector, limit)
        results = [
            {
                "blob_id": hit.memory.blob_id,
                "distance": hit.distance,
                "created_at": _timestamp(hit.memory.created_at),
                "importance": IMPORTANCE,
            }
            for hit in hits
        ]
        return json_answer({"results": results, "total": len(results)})

    def analyze(self, call: Call) -> Answer:
        """Accept the facts of a text; without a model, each sentence is a fact."""
        body = call.body
        text, namespace = body.text(limit=MAX_SHORT_TEXT_BYTES), body.namespace()
        body.maybe("occurred_at")
        owner = call.caller.owner
        self._check_quota(owner, text)
        sentences = [sentence.strip() for sentence in _SENTENCE_END.split(text) if sentence.strip()]
        facts = []
        for position, sentence in enumerate(sentences[:MAX_FACTS]):
            job_id = self._jobs.begin(owner, namespace, sentence, call.fate(position))
            facts.append({"text": sentence, "id": job_id, "job_id": job_id})
        answer = {
            "job_ids": [fact["job_id"] for fact in facts],
            "facts": facts,
            "fact_count": len(facts),
            "status": JobStatus.RUNNING,
            "owner": owner,
        }
        return json_answer(answer, 202)

    def embed(self, call: Call) -> Answer:
        """Return the vector of a text."""
        vector = embed(call.body.text(limit=MAX_SHORT_TEXT_BYTES))
        return json_answer({"vector": [float(component) for component in vector]})

    def ask(self, call: Call) -> Answer:
        """Answer a question with the memories nearest to it, as they are."""
        body = call.body
        question, namespace, limit = body.text("question"), body.namespace(), body.limit(5)
        hits, _ = self._look_up(call, namespace, question, limit)
        memories = [
            {"blob_id": hit.memory.blob_id, "text": hit.memory.text, "distance": hit.distance}
            for hit in hits
        ]
        text = " ".join(str(memory["text"]) for memory in memories)
        answer = text or "I do not remember anything about that."
        return json_answer({"answer": answer, "memories_used": len(memories), "memories": memories})

    def restore(self, call: Call) -> Answer:
        """Index the blobs of a namespace again."""
        body = call.body
        namespace = body.namespace()
        owner = call.caller.owner
        restored = self._ledger.restore(owner, namespace, body.limit())
        return json_answer(
            {
                "restored": restored.restored,
                "skipped": restored.skipped,
                "failed": restored.failed,
                "total": restored.total,
                "truncated": restored.truncated,
                "namespace": namespace,
                "owner": owner,
            }
        )

    def stats(self, call: Call) -> Answer:
        """Return the owner, and the number of memories in a namespace."""
        namespace = call.body.namespace()
        owner = call.caller.owner
        memories = list(self._ledger.memories(owner, namespace))
        return json_answer(
            {
                "memory_count": len(memories),
                "storage_bytes": sum(memory.size for memory in memories),
                "namespace": namespace,
                "owner": owner,
            }
        )

    def forget(self, call: Call) -> Answer:
        """Drop a namespace from the index."""
        namespace = call.body.namespace()
        owner = call.caller.owner
        deleted = self._ledger.forget(owner, namespace)
        return json_answer({"deleted": deleted, "namespace": namespace, "owner": owner})

    def namespaces(self, call: Call) -> Answer:
        """List an owner's namespaces, the last changed at the end."""
        (owner,) = call.parameters
        if owner != call.caller.owner:
            raise refused("owner mismatch", 403)
        query = {name: values[-1] for name, values in parse_qs(call.query).items()}
        cursor, limit = query.get("updated_after"), _page_size(query.get("limit"))
        after = (float("-inf"), "") if cursor is None else _position(cursor)
        namespaces = [
            namespace
            for namespace in self._ledger.namespaces(owner)
            if (namespace.updated_at, namespace.name) > after
        ]
        page = namespaces[:limit]
        return json_answer(
            {
                "namespaces": [_namespace_to_json(namespace) for namespace in page],
                "next_cursor": _cursor(page[-1]) if page else cursor,
                "has_more": len(page) < len(namespaces),
                "snapshot_version": self._ledger.changes,
            }
        )

    def _look_up(self, call: Call, namespace: str, query: str, limit: int) -> tuple[list[Hit], int]:
        """Return the nearest readable memories, and the number of unreadable ones."""
        vector = embed(query)
        shelves = {(call.caller.owner, namespace)}
        if call.has(FaultKind.LEAK):
            shelves = {(memory.owner, memory.namespace) for memory in self._ledger.memories()}
        hits = [
            hit for shelf in sorted(shelves) for hit in self._ledger.nearest(*shelf, vector, limit)
        ]
        return self._ledger.sift(sorted(hits, key=lambda hit: hit.distance)[:limit])

    def _hit_to_json(self, hit: Hit, weights: dict[str, float]) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "blob_id": hit.memory.blob_id,
            "text": hit.memory.text,
            "distance": hit.distance,
            "created_at": _timestamp(hit.memory.created_at),
        }
        recency, importance = weights.get("recency", 0.0), weights.get("importance", 0.0)
        if recency or importance:
            days = (self._clock.now() - hit.memory.created_at) / _DAY_S
            half_life = weights.get("recency_half_life_days", 0.0)
            half_life = half_life if half_life > 0 else _HALF_LIFE_DAYS
            fields["score"] = (
                weights.get("semantic", 1.0) * (1.0 - hit.distance)
                + recency * 0.5 ** (days / half_life)
                + importance * IMPORTANCE
            )
        return fields

    def _job_to_json(self, job: Job) -> dict[str, Any]:
        status = self._jobs.status(job)
        fields: dict[str, Any] = {"job_id": job.job_id, "status": status}
        if status in (JobStatus.UPLOADED, JobStatus.DONE):
            fields["blob_id"] = job.blob_id
        if status is JobStatus.FAILED:
            fields["error"] = job.error
        return fields

    def _check_quota(self, owner: str, *texts: str) -> None:
        size = sum(len(text.encode()) for text in texts)
        if self._ledger.stored_bytes(owner) + size > self._quota_bytes:
            raise refused("Storage quota exceeded", 402)


def _invented(text: str, distance: float) -> dict[str, Any]:
    return {"blob_id": blob_id_of(f"invented {text}"), "text": text, "distance": distance}


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _namespace_to_json(namespace: Namespace) -> dict[str, Any]:
    return {
        "id": blob_id_of(f"namespace {namespace.name}"),
        "name": namespace.name,
        "memory_count": namespace.memories,
        "storage_used": namespace.size,
        "updated_at": _timestamp(namespace.updated_at),
    }


def _page_size(raw: str | None) -> int:
    if raw is None:
        return NAMESPACES_PAGE
    if _PAGE_SIZE.fullmatch(raw) is None:
        raise refused("limit is not a number")
    return min(int(raw), MAX_NAMESPACES_PAGE)


def _cursor(last: Namespace) -> str:
    place = json.dumps([last.updated_at, last.name]).encode()
    return base64.urlsafe_b64encode(place).decode()


def _position(cursor: str) -> tuple[float, str]:
    try:
        seconds, name = json.loads(base64.urlsafe_b64decode(cursor))
        return float(seconds), str(name)
    except (ValueError, TypeError):
        raise refused("updated_after is not a cursor") from None
