"""The running task of a graph, and the plan of an effect that belongs to it. No I/O.

LangGraph has no public name for most of what is read here; tests run with the lowest and the newest
supported release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.config import get_config

from .._messages.arguments import invalid_field
from .._messages.effect_attempts import EffectPlan, this_owner
from .._messages.effects import (
    Effect,
    OnUnknownName,
    beginning,
    earlier_digest,
    input_digest,
    typed_digest,
)
from .._messages.records import DurabilityName
from ..errors import InvalidRequest, PreconditionFailed
from ..v1.value_pb2 import Value
from ._encode import encode_value, thread_id_of

_TASK_ID = "__pregel_task_id"
_DURABILITY = "__pregel_durability"
_CHECKPOINTER = "__pregel_checkpointer"
_CALL = "__pregel_call"
_NAMESPACE_SEPARATOR = "|"

SAVE_WAIT_S = 10.0
"""Longest time to wait for the save of a task's checkpoint, which LangGraph makes meanwhile."""


@dataclass(frozen=True, slots=True)
class NoInput:
    """Type of `NO_INPUT`."""


NO_INPUT = NoInput()
"""Default of `input`: none was given."""


@dataclass(frozen=True, slots=True)
class Task:
    """A running task of a graph.

    Attributes:
        task_id: ID of the task; another run from the same checkpoint has the same ID.
        checkpoint_ns: Namespace of the graph.
        checkpoint_id: Checkpoint from which the task runs.
    """

    task_id: str
    checkpoint_ns: str
    checkpoint_id: str


def running_config(config: RunnableConfig | None) -> RunnableConfig:
    """Return a config, or the config of the running task.

    Raises:
        PreconditionFailed: No config is given, and no task runs here.
    """
    if config is not None:
        return config
    try:
        return get_config()
    except RuntimeError as error:
        raise PreconditionFailed(
            f"no task of a graph runs here, so the thread of the effect is unknown ({error}); "
            "call this inside a node, or pass the node's config"
        ) from error


def task_of(config: RunnableConfig, name: str) -> Task:
    """Return the running task of a config.

    Args:
        config: The config that a node received.
        name: Name of the effect, for the error.

    Raises:
        PreconditionFailed: No task runs with this config, or a later run could not find the task's
            effects, because the checkpoint of the task is never saved while the task runs.
    """
    configurable = config.get("configurable") or {}
    task_id = configurable.get(_TASK_ID)
    graph_ns = configurable.get("checkpoint_ns", "").rpartition(_NAMESPACE_SEPARATOR)[0]
    checkpoint_id = (configurable.get("checkpoint_map") or {}).get(graph_ns)
    if not task_id or not checkpoint_id:
        raise _no_key(name, "the config does not belong to a running task of a graph")
    if configurable.get(_DURABILITY) == "exit":
        raise _no_key(
            name,
            'the run has durability "exit", which saves the checkpoint of the task too late: run '
            'the graph with "async" or "sync"',
        )
    checkpointer = configurable.get(_CHECKPOINTER)
    if not checkpointer or _runs_without_checkpointer(configurable):
        raise _no_key(
            name,
            "the graph of the task has no checkpointer, so another run gives its tasks other IDs: "
            "compile a subgraph without checkpointer=False",
        )
    return Task(task_id, graph_ns, checkpoint_id)


def _runs_without_checkpointer(configurable: Mapping[str, Any]) -> bool:
    """Return whether the graph of a task is known to have no checkpointer.

    The config of a subgraph names the checkpointer of its parent. Only the loop that runs the
    subgraph knows better. If a release hides the loop, the checkpoint is reported as missing after
    `SAVE_WAIT_S`.
    """
    keywords = getattr(configurable.get(_CALL), "keywords", {})
    loop = getattr(keywords.get("schedule_task"), "__self__", None)
    return loop is not None and getattr(loop, "checkpointer", loop) is None


def _no_key(name: str, problem: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"effect '{name}' cannot have a key of its task: {problem}; or pass a key of your own for "
        'the whole thread, such as key="charge:order-42"'
    )


def effect_plan(
    config: RunnableConfig | None,
    name: str,
    given: Any,
    key: str | None,
    serde: SerializerProtocol,
    agent_id: str,
    *,
    timeout_s: float | None,
    on_unknown: OnUnknownName,
    durability: DurabilityName,
    wait_s: float | None,
    lease_id: str,
) -> EffectPlan:
    """Return the plan of an effect of a running task, or of a thread if a key is given.

    Raises:
        PreconditionFailed: See `task_of`.
        InvalidRequest: `input` is missing, or an argument is malformed.
        ValueError: The config has no thread.
    """
    config = running_config(config)
    thread_id = thread_id_of(config)
    task = None
    if key is None:
        task = task_of(config, name)
        if isinstance(given, NoInput):
            raise invalid_field(
                "input",
                f"effect '{name}' needs the input of the work, so that another input with the "
                "same name is recognized; pass input={} if the work has none",
            )
        if not name:
            raise invalid_field("name", "it must not be empty without a key")
        key = f"{task.task_id}/{name}"
    digest, earlier = (b"", b"") if isinstance(given, NoInput) else digests_of(given, serde)
    request = beginning(
        *(thread_id, key),
        name=name,
        digest=digest,
        checkpoint_id=task.checkpoint_id if task else "",
        checkpoint_ns=task.checkpoint_ns if task else "",
        lease_id=lease_id,
        timeout_s=timeout_s,
        on_unknown=on_unknown,
        owner=this_owner(agent_id),
        safe=durability,
    )

    def encode(result: Any) -> Value:
        return Value(**encode_value(result, serde, f"result of effect {key}"))

    def decode(effect: Effect) -> Any:
        if not effect.result_type:
            return None
        return serde.loads_typed((effect.result_type, effect.result_data))

    save_wait_s = SAVE_WAIT_S if task else 0.0
    return EffectPlan(request, encode, decode, durability, wait_s, save_wait_s, earlier)


def digests_of(value: Any, serde: SerializerProtocol) -> tuple[bytes, bytes]:
    """Return the digest of an input, and the digest that an older client sent.

    The digest is of the canonical JSON, or else of the serializer's bytes.
    """
    try:
        return input_digest(value), earlier_digest(value)
    except InvalidRequest:
        kind, data = serde.dumps_typed(value)
        digest = typed_digest(kind, bytes(data))
        return digest, digest
