"""Results of the tools, as models: clients get their schemas. Times are ISO 8601 in UTC."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Status = Literal["PASS", "FAIL", "UNVERIFIED", "RETRACTED"]


class Result(BaseModel):
    """Result of a tool, or a part of a result."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")


class Saved(Result):
    """A saved checkpoint."""

    thread_id: str
    checkpoint_id: str
    blob_id: str | None
    """Null until the checkpoint is certified."""
    durability: Literal["journaled", "certified"]


class Omitted(Result):
    """A channel that did not fit into the result."""

    channel: str
    chars: int
    """Length of the value as JSON text."""


class Part(Result):
    """A part of a long JSON text."""

    channel: str | None
    """The channel; null for a part of the whole state."""
    offset: int
    text: str
    next_offset: int | None
    """Offset of the next part; null if this is the last part."""
    total_chars: int


class Entry(Result):
    """A checkpoint without its state."""

    checkpoint_id: str
    checkpoint_ns: str
    parent_checkpoint_id: str | None
    timestamp: str | None
    summary: str
    label: str
    durability: Literal["journaled", "certified"]
    blob_id: str | None
    """Null until the checkpoint is certified."""
    forked_from: str | None
    rolled_back_from: str | None
    adopted_from: str | None
    next_nodes: list[str]
    question: str | None
    failure: str | None


class Loaded(Entry):
    """A checkpoint with its state."""

    thread_id: str
    metadata: dict[str, Any] | None
    """Null if the metadata is too long (a larger max_chars shows it) or nested too deeply."""
    state: dict[str, Any]
    """Channel to value. Channels that did not fit are in `omitted`. A value that cannot be shown,
    as above 4 MiB, is {"$opaque": type, "$size": bytes}: never save that in place of the value."""
    truncated: bool
    """Whether `state` is not the whole state."""
    omitted: list[Omitted]
    """The channels that did not fit, at most 100. Read one with checkpoint_load(channel=...)."""
    part: Part | None
    """The part requested with `channel` or `offset`, if it is not in `state`."""


class Checkpoints(Result):
    """Checkpoints of a thread, newest first."""

    thread_id: str
    count: int
    checkpoints: list[Entry]
    next_before: str | None
    """Pass this as `before` for the next page; null at the end."""


class FromTo(Result):
    """A value before and after."""

    from_: Any = Field(alias="from")
    to: Any


class Difference(Result):
    """The differences between two states, by channel and JSON Pointer inside the channel."""

    thread_id: str
    id_a: str
    id_b: str
    added: dict[str, Any]
    removed: dict[str, Any]
    changed: dict[str, FromTo]
    human_readable: str
    truncated: bool


class Found(Result):
    """A checkpoint that matches a search."""

    text: str
    """The searched text, cut at 500 characters."""
    distance: float
    """Smaller is nearer. Distances are comparable within one answer only."""
    thread_id: str
    checkpoint_id: str
    checkpoint_ns: str
    summary: str


class SearchAnswer(Result):
    """The results of a search, nearest first."""

    query: str
    mode: str
    results: list[Found]
    truncated: bool
    warnings: list[str]


class Forked(Result):
    """The outcome of a fork."""

    source: str
    new_thread_id: str
    checkpoint_id: str
    blob_id: str | None
    """Null until the checkpoint is certified."""
    forked_from: str


class RolledBack(Result):
    """The outcome of a rollback."""

    thread_id: str
    checkpoint_id: str
    """The new latest checkpoint."""
    restored_from: str
    """The checkpoint whose state the new one has."""
    blob_id: str | None
    """Null until the checkpoint is certified."""
    rolled_back_from: str
    """The same as "thread:checkpoint"."""


class Handoff(Result):
    """The descriptor of a hand-off. Pass it to adopt_checkpoint unchanged."""

    source: str
    thread_id: str
    checkpoint_id: str
    blob_id: str
    blob_sha256: str
    to_agent: str
    summary: str
    signer: str = ""
    signature: str = ""
    sealed_key: str = Field(default="", exclude_if=lambda key: not key)


class Offer(Result):
    """A hand-off that is offered to an agent."""

    handoff_id: str
    to_agent: str
    source: str
    summary: str
    created: str
    expires: str | None
    adopted_thread_id: str | None


class Offers(Result):
    """The offers of hand-offs, oldest first."""

    offers: list[Offer]
    truncated: bool


class Adopted(Result):
    """The outcome of an adoption."""

    adopted_from: str
    new_thread_id: str
    checkpoint_id: str
    blob_id: str | None
    """Null until the checkpoint is certified."""
    verified: bool
    signer: str
    """Public key that signed the descriptor; empty if it has no signature."""


class Step(Result):
    """The result of reading one stored checkpoint back."""

    checkpoint_id: str
    checkpoint_ns: str
    blob_id: str | None
    stored_hash: str | None
    recomputed_hash: str | None
    status: Status
    """UNVERIFIED: not certified yet. RETRACTED: deleted."""
    detail: str


class Trail(Result):
    """The result of reading a whole thread back from the blob store."""

    thread_id: str
    ok: bool
    """Whether a checkpoint passed, none failed, and neither chain nor journal has a problem."""
    checkpoint_count: int
    verified: int
    tampered_count: int
    unverified_count: int
    retracted_count: int
    chain_detail: str
    """The problem in the chain from the catalog to the stored bytes; empty if there is none."""
    journal_details: list[str]
    """Problems of the thread's rows and values in the server's journal."""
    steps: list[Step]
    """The failures first, then the other steps in order."""
    truncated: bool
    """Whether there are more steps. The counts include all steps."""


class Thread(Result):
    """A thread: one run of an agent."""

    thread_id: str
    agent_id: str
    state: Literal["idle", "interrupted", "failed"]
    """"interrupted": the thread waits for an answer."""
    checkpoint_id: str | None
    """The latest."""
    summary: str
    question: str | None
    failure: str | None
    driver: str | None
    created: str
    updated: str


class Threads(Result):
    """Threads by ID."""

    count: int
    threads: list[Thread]
    next_after: str | None
    """Pass this as `after` for the next page; null at the end."""


class Question(Result):
    """A question that an agent asks a person."""

    interrupt_id: str
    question: Any
    """The question; its JSON text cut at max_chars if `truncated`."""
    truncated: bool


class Waiting(Result):
    """A thread that waits for a person."""

    thread_id: str
    agent_id: str
    checkpoint_id: str
    """The checkpoint that waits. Pass it to thread_answer, or you may answer a later question."""
    since: str
    """Time of the thread's last change."""
    questions: list[Question]


class AllWaiting(Result):
    """The threads that wait for a person, by ID."""

    count: int
    waiting: list[Waiting]
    next_after: str | None
    """Pass this as `after` for the next page; null at the end."""


class Answered(Result):
    """A saved answer. The agent continues when its program next runs it."""

    thread_id: str
    checkpoint_id: str
    """The checkpoint that waited."""
    interrupt_id: str


class Event(Result):
    """A change of a thread."""

    seq: int
    kind: str
    time: str
    checkpoint_id: str | None
    checkpoint_ns: str | None
    summary: str
    label: str
    deleted_checkpoints: int


class History(Result):
    """The changes of a thread, oldest first."""

    thread_id: str
    count: int
    events: list[Event]
    cursor: str
    """Pass this as `cursor` to get only later changes."""
    more: bool
    """Whether there already are more changes."""


class Effects(Result):
    """The effects of a thread."""

    effects: list[dict[str, str | int]]
    """Each has key, name, state, attempt, begun, owner, error and idempotency_key."""
    truncated: bool


class ToolSummary(Result):
    """A tool."""

    name: str
    summary: str


class Setup(Result):
    """Set-up of an MCP client for this server."""

    where: str
    """A file, or "shell" for a command."""
    text: str


class TuskPointServer(Result):
    """The TuskPoint server."""

    version: str
    blob_backend: str
    journal_backend: str
    search_modes: list[str]
    started: str


class Info(Result):
    """A description of this MCP server."""

    name: str
    version: str
    transport: Literal["stdio", "streamable-http"]
    target: str
    server: TuskPointServer | None
    """Null if the TuskPoint server did not answer."""
    problem: str
    """Why the server did not answer, and what to do; empty if it answered."""
    tools: list[ToolSummary]
    connect: dict[str, Setup]
    notes: list[str]
