"""Sessions of the OpenAI Agents SDK: the conversation of an agent is kept as a thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Unpack, cast

from ..aio import AsyncClient
from ._client import AsyncAdapter, ClientOptions
from ._effects import EffectOptions, Place, tool_function
from ._lists import appended, copied, items_of, kinds_of, without_last
from ._requirements import unusable
from ._thread import Change, FrameworkThread, Version

try:
    from agents import RunState, SessionSettings, TResponseInputItem
    from agents.tool_context import ToolContext
except ImportError as error:
    raise unusable("openai-agents", "openai-agents", error) from error

FRAMEWORK = "openai-agents"

_ITEMS = "items"
_RUN_STATE = "run_state"


class TuskPointSession(AsyncAdapter):
    """A session of the OpenAI Agents SDK. Pass it as `Runner.run(..., session=...)`.

    The session is the thread of the same name, and each change of the session is a checkpoint. So
    popped and cleared items are still in the history, and a rollback or a fork of the thread is
    also a rollback or a fork of the conversation. The constructor does no I/O.

    Several programs may use a session and add items at the same time: no item is lost, and the
    items of one call stay together.

    Args:
        session_id: ID of the session, and of the thread.
        target: Address of the server, as for `AsyncClient`, or a client. The session does not close
            that client.
        session_settings: Settings of the SDK, such as the number of items that a run reads.
        agent_id: Name of the agent, recorded with the thread.
        options: Options of `AsyncClient`, unless `target` is a client.

    Raises:
        InvalidRequest: The target or an option is malformed.
    """

    def __init__(
        self,
        session_id: str,
        target: str | AsyncClient | None = None,
        *,
        session_settings: SessionSettings | None = None,
        agent_id: str = "",
        **options: Unpack[ClientOptions],
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = session_settings or SessionSettings()
        self._connect(target, options)
        self._thread = FrameworkThread(
            self._client, session_id, framework=FRAMEWORK, agent_id=agent_id
        )

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the latest items of the conversation, oldest first.

        Args:
            limit: Most items to return. Default: the session's settings, else all items.

        Raises:
            PreconditionFailed: Another program wrote the thread.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        items = items_of((await self._thread.read()).state, _ITEMS)
        if limit is not None:
            items = items[-limit:] if limit > 0 else []
        return cast(list[TResponseInputItem], copied(items))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items to the conversation: one checkpoint, or none if there are no items.

        Raises:
            PreconditionFailed: Another program wrote the thread.
            ThreadDeleted: The thread was deleted after this session's last read.
            TypeError: An item cannot be written as JSON.
        """
        if not items:
            return
        added = copied(items)
        summary = f"{_counted(len(added))} added: {kinds_of(added)}"

        def add(before: Version) -> Change:
            return _change(appended(before.state, _ITEMS, added), summary)

        await self._thread.change(add)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item of the conversation and return it, or `None` if there is no item.

        Raises:
            PreconditionFailed: Another program wrote the thread.
            ThreadDeleted: The thread was deleted after this session's last read.
        """
        popped: list[Any] = []

        def pop(before: Version) -> Change | None:
            popped[:] = items_of(before.state, _ITEMS)[-1:]
            if not popped:
                return None
            summary = f"1 item removed: {kinds_of(popped)}"
            return _change(without_last(before.state, _ITEMS), summary)

        await self._thread.change(pop)
        return cast(TResponseInputItem, copied(popped)[0]) if popped else None

    async def clear_session(self) -> None:
        """Remove all items, and the saved state of a run. The history keeps both.

        Raises:
            PreconditionFailed: Another program wrote the thread.
            ThreadDeleted: The thread was deleted after this session's last read.
        """

        def clear(before: Version) -> Change | None:
            count = len(items_of(before.state, _ITEMS))
            if not count and _RUN_STATE not in before.state:
                return None
            return _change(appended({}, _ITEMS, []), f"cleared, {_counted(count)} removed")

        await self._thread.change(clear)

    async def save_run_state(self, state: RunState[Any] | Mapping[str, Any] | None) -> None:
        """Keep the state of an interrupted run, so that another process can continue the run.

        Args:
            state: The state, or the result of its `to_json`. `None` removes the kept state; pass
                `None` as soon as the run continues.

        Raises:
            PreconditionFailed: Another program wrote the thread.
            ThreadDeleted: The thread was deleted after this session's last read.
        """
        run_state = copied(state.to_json() if isinstance(state, RunState) else state)

        def save(before: Version) -> Change | None:
            if before.state.get(_RUN_STATE) == run_state:
                return None
            rest = {name: value for name, value in before.state.items() if name != _RUN_STATE}
            if run_state is None:
                return _change(rest, "the state of the run was forgotten")
            return _change({**rest, _RUN_STATE: run_state}, "the run waits")

        await self._thread.change(save)

    async def load_run_state(self) -> dict[str, Any] | None:
        """Return the state that `save_run_state` kept, for `RunState.from_json`, or `None`.

        Raises:
            PreconditionFailed: Another program wrote the thread.
        """
        run_state = (await self._thread.read()).state.get(_RUN_STATE)
        return cast("dict[str, Any] | None", copied(run_state))


def _change(state: Mapping[str, Any], summary: str) -> Change:
    return Change(state, summary, {"items": len(items_of(state, _ITEMS))})


def _counted(count: int) -> str:
    return f"{count} item" if count == 1 else f"{count} items"


def effect_tool(
    function: Callable[..., Any],
    session: TuskPointSession | Callable[[ToolContext[Any]], TuskPointSession],
    **options: Unpack[EffectOptions],
) -> Callable[..., Awaitable[Any]]:
    """Return a function for `function_tool` that does its work in the outside world once.

    Pass the result to `function_tool`: `function_tool(effect_tool(charge, session))`.

    If an earlier call did the work, the tool returns the recorded result. The effect belongs to the
    thread and the ID of the tool call: it is found again if the framework repeats the call, as
    after an approval. A `key` of your own also covers calls that a model makes again.
    The function gets the key to send to the outside world if it has a parameter `idempotency_key`,
    which the model does not see. It raises `tuskpoint.effects.NotDone` or `Refused` if the work was
    certainly not done; after any other exception the effect is unknown. Results are returned as
    JSON can express them.

    Args:
        function: The function of the tool.
        session: The session whose thread has the effects, or a function that returns it for the
            context of a call.
        options: See `EffectOptions`.
    """

    def session_of(context: ToolContext[Any]) -> TuskPointSession:
        return session if isinstance(session, TuskPointSession) else session(context)

    return tool_function(
        function,
        ToolContext,
        "tool_context",
        lambda context: session_of(context)._client,
        lambda context: Place(session_of(context).session_id, context.tool_call_id),
        options,
    )
