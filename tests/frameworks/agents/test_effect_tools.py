"""Tools of each framework do their work once, as the framework calls them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from agent_framework import AgentSession, FunctionInvocationContext
from agent_framework import tool as framework_tool
from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext as OpenAIContext
from claude_agent_sdk import tool as claude_tool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import ModelMessage, ModelResponse, RunContext, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tuskpoint import AsyncClient, Client, EffectUnknown, effects
from tuskpoint.frameworks import (
    agent_framework,
    claude_agent_sdk,
    google_adk,
    openai_agents,
    pydantic_ai,
)

set_tracing_disabled(True)

Work = Callable[[str], str]


async def by_openai_agents(target: str, thread_id: str, call_id: str, work: Work) -> None:
    def charge(context: OpenAIContext[None], order: str, idempotency_key: str) -> str:
        """Charge an order."""
        assert context.tool_call_id == call_id
        return work(idempotency_key)

    async with openai_agents.TuskPointSession(thread_id, target) as session:
        tool = function_tool(
            openai_agents.effect_tool(charge, session), failure_error_function=None
        )
        assert list(tool.params_json_schema["properties"]) == ["order"]
        turns = [[function_call("charge", {"order": "A"}, call_id=call_id)]]
        model = ScriptedModel([*turns, [assistant_message("Done.")]])
        await Runner.run(Agent(name="a", model=model, tools=[tool]), "Charge it.")


async def by_pydantic_ai(target: str, thread_id: str, call_id: str, work: Work) -> None:
    async def charge(order: str, idempotency_key: str) -> str:
        return work(idempotency_key)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        [definition] = info.function_tools
        assert list(definition.parameters_json_schema["properties"]) == ["order"]
        if len(messages) > 1:
            return ModelResponse([TextPart("Done.")])
        return ModelResponse([ToolCallPart("charge", {"order": "A"}, call_id)])

    async with pydantic_ai.TuskPointConversationStore(target) as store:
        tool = pydantic_ai.effect_tool(charge, store)
        agent = PydanticAgent(FunctionModel(answer), tools=[tool])
        await agent.run("Charge it.", conversation_id=thread_id)


async def by_google_adk(target: str, thread_id: str, call_id: str, work: Work) -> None:
    def charge(order: str, tool_context: ToolContext, idempotency_key: str) -> str:
        """Charge an order."""
        assert tool_context.function_call_id == call_id
        return work(idempotency_key)

    async with google_adk.TuskPointSessionService(target) as service:
        tool = FunctionTool(google_adk.effect_tool(charge, service))
        declaration = tool._get_declaration()
        assert declaration is not None
        assert "idempotency_key" not in declaration.model_dump_json()
        session = SimpleNamespace(app_name="app", user_id="user", id=thread_id)
        context = SimpleNamespace(session=session, function_call_id=call_id)
        await tool.run_async(args={"order": "A"}, tool_context=cast(ToolContext, context))


async def by_agent_framework(target: str, thread_id: str, call_id: str, work: Work) -> None:
    def charge(order: str, idempotency_key: str) -> str:
        """Charge an order."""
        return work(idempotency_key)

    async with agent_framework.TuskPointHistoryProvider(target) as provider:
        tool = framework_tool(agent_framework.effect_tool(charge, provider))
        assert list(tool.parameters()["properties"]) == ["order"]
        arguments = {"order": call_id}
        context = FunctionInvocationContext(
            function=tool, arguments=arguments, session=AgentSession(session_id=thread_id)
        )
        await tool.invoke(arguments=arguments, context=context)


async def by_claude_agent_sdk(target: str, thread_id: str, call_id: str, work: Work) -> None:
    @claude_tool("charge", "Charge an order.", {"order": str})
    async def charge(arguments: dict[str, Any]) -> dict[str, Any]:
        text = work(arguments["idempotency_key"])
        return {"content": [{"type": "text", "text": text}]}

    async with claude_agent_sdk.TuskPointSessionStore(target) as store:
        tool = claude_agent_sdk.effect_tool(charge, store, thread_id)
        answer = await tool.handler({"order": call_id})
        assert answer["content"][0]["text"].startswith("receipt")


FRAMEWORKS = [
    by_openai_agents,
    by_pydantic_ai,
    by_google_adk,
    by_agent_framework,
    by_claude_agent_sdk,
]


@pytest.mark.parametrize("call", FRAMEWORKS, ids=lambda call: call.__name__)
async def test_a_tool_does_its_work_once_for_each_call(
    call: Any, target: str, client: Client, thread_id: str
) -> None:
    keys: list[str] = []

    def work(idempotency_key: str) -> str:
        keys.append(idempotency_key)
        return f"receipt {len(keys)}"

    for call_id in ("call-1", "call-1", "call-2"):
        await call(target, thread_id, call_id, work)
    assert len(set(keys)) == len(keys) == 2
    where = f"app/user/{thread_id}" if call is by_google_adk else thread_id
    recorded = [*client.list_effects(where)]
    assert {effect.idempotency_key for effect in recorded} == set(keys)
    assert {effect.name for effect in recorded} == {"charge"}


async def test_the_context_and_a_key_of_the_caller_are_used(
    target: str, client: Client, thread_id: str
) -> None:
    attempts: list[str] = []

    def charge(ctx: RunContext[None], order: str) -> str:
        attempts.append(ctx.tool_call_id or "")
        if len(attempts) == 1:
            raise effects.NotDone("try later")
        if len(attempts) == 3:
            raise TimeoutError
        return order

    async with pydantic_ai.TuskPointConversationStore(target) as store:
        tool = pydantic_ai.effect_tool(charge, store, key="charge:{order}")

        def context(call_id: str) -> Any:
            return SimpleNamespace(conversation_id=thread_id, tool_call_id=call_id)

        with pytest.raises(effects.NotDone):
            await tool(context("1"), order="A")
        assert [await tool(context(number), order="A") for number in "23"] == ["A", "A"]
        with pytest.raises(TimeoutError):
            await tool(context("4"), order="B")
        with pytest.raises(EffectUnknown):
            await tool(context("5"), order="B")
    assert attempts == ["1", "2", "4"]
    assert client.get_effect(thread_id, "charge:A").result == "A"


async def test_a_tool_must_name_its_parameters(target: str) -> None:
    def charge(**order: str) -> None: ...

    async with AsyncClient(target) as client:
        store = pydantic_ai.TuskPointConversationStore(client)
        with pytest.raises(TypeError, match="tool charge must name its parameters"):
            pydantic_ai.effect_tool(charge, store)
