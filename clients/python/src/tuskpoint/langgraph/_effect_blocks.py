"""The block of an effect for `with` and `async with`, and the saver's method that returns it."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from langchain_core.runnables import RunnableConfig

from .._async.calls import AsyncCalls
from .._async.effects.runs import AsyncEffectRun
from .._messages.effect_attempts import EffectPlan
from .._messages.effects import OnUnknownName
from .._messages.records import DurabilityName
from .._sync.calls import SyncCalls
from .._sync.effects.runs import EffectRun
from ._base import SaverBase
from ._effects import NO_INPUT, effect_plan


class SaverEffect:
    """A block that does work in the outside world once. Enter it with `with` or `async with`."""

    def __init__(self, calls: SyncCalls, async_calls: AsyncCalls, plan: EffectPlan) -> None:
        self._run = EffectRun(calls, plan)
        self._async_run = AsyncEffectRun(async_calls, plan)

    def __enter__(self) -> EffectRun:
        return self._run.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run.__exit__(kind, error, traceback)

    async def __aenter__(self) -> AsyncEffectRun:
        return await self._async_run.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._async_run.__aexit__(kind, error, traceback)


class EffectMethods(SaverBase):
    """The saver's method about effects."""

    def effect(
        self,
        config: RunnableConfig | None,
        name: str,
        *,
        input: Any = NO_INPUT,
        key: str | None = None,
        timeout_s: float | None = None,
        on_unknown: OnUnknownName = "fail",
        durability: DurabilityName | None = None,
        wait_s: float | None = None,
        lease_id: str = "",
    ) -> SaverEffect:
        """Return a block that does work in the outside world once, for `with` and `async with`.

        The block is `pending` if it must do the work; it then calls `complete` with the result
        (`await ...complete` in `async with`). Otherwise an earlier attempt did the work, and
        `result` has its result. Results pass this saver's serializer.

        An effect belongs to the running task. A run that repeats the task after a crash, a retry or
        an interrupt finds the effect again. Within a task a name is unique: a second effect with
        the name needs an equal `input`, and is the same effect. Other work needs another name, such
        as f"mail:{address}".

        Args:
            config: The config that the node received; `None` finds the config of the running task.
            name: Name of the work, unique within the task.
            input: Input of the work. Required without `key`. Its digest is recorded: of the
                canonical JSON if JSON can express it, else of the serializer's bytes, which must
                not depend on the process.
            key: Key of your own, such as "charge:order-42", for work that the whole thread does
                once, whatever task does it.
            timeout_s: Seconds after which the attempt is unknown, unless it reports before: 1
                second to 7 days. Default: 60. The work must end before.
            on_unknown: What to do if an earlier attempt did not report: "fail" raises
                `EffectUnknown`; "retry" does the work again with the same `idempotency_key`. Use
                "retry" only if the outside world honours that key.
            durability: "journaled", or "certified" to wait for the blob store before the work and
                after it. Default: the saver's.
            wait_s: Longest time to wait for an attempt that runs elsewhere. Default: until that
                attempt reports or is unknown.
            lease_id: Lease under which the agent runs. Default: the saver's `lease`. Once the lease
                is lost, the attempt is unknown.

        Raises:
            InvalidRequest: `input` is missing, or an argument is malformed. Entering the block
                raises the other errors.
            PreconditionFailed: No key is given, and the config does not belong to a running task,
                the run has durability "exit", or the graph of the task has no checkpointer.
            EffectUnknown: It is unknown whether an earlier attempt did the work.
            EffectRunning: Another attempt did not report within `wait_s`.
            EffectRefused: An earlier attempt reported that the work was refused.
            EffectInputChanged: The effect was begun with another input.
        """
        plan = effect_plan(
            *(config, name, input, key, self.serde, self._agent_id),
            timeout_s=timeout_s,
            on_unknown=on_unknown,
            durability=durability or self._waits_for,
            wait_s=wait_s,
            lease_id=lease_id,
        )
        return SaverEffect(self._calls, self._async_calls, plan)
