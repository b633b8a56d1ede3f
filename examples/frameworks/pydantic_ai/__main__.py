"""An agent of Pydantic AI whose conversation, and whose wait for a person, is a thread.

    make example NAME=pydantic_ai

The model is scripted, so no key is needed. The first process stops where a person has to approve
a tool. The second one is another process, which has only the ID of the conversation.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

from pydantic_ai import (
    Agent,
    Conversation,
    DeferredToolRequests,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tuskpoint import AsyncClient
from tuskpoint.frameworks.pydantic_ai import TuskPointConversationStore

CONVERSATION = "kettle"


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer: use the tool first, then say how long the conversation is."""
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("refund", {"order": "A-17"})])
    return ModelResponse([TextPart(f"Done, after {len(messages)} messages.")])


agent = Agent(FunctionModel(script), output_type=[str, DeferredToolRequests])


@agent.tool_plain(requires_approval=True)
def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


async def ask() -> None:
    """Begin the conversation; the agent wants to use a tool that a person approves."""
    async with TuskPointConversationStore() as store:
        conversation = Conversation(conversation_id=CONVERSATION)
        result = await agent.run("The kettle leaks.", conversation=conversation)
        await store.save(result)
        assert isinstance(result.output, DeferredToolRequests)
        waits_for = ", ".join(call.tool_name for call in result.output.approvals)
        print("first process: the agent waits for", waits_for, flush=True)


async def approve() -> None:
    """Continue the run in another process, then take another turn."""
    async with TuskPointConversationStore() as store:
        conversation = await store.load(CONVERSATION)
        assert conversation is not None
        assert conversation.deferred_tool_requests is not None
        answers = conversation.deferred_tool_requests.build_results(approve_all=True)
        result = await agent.run(conversation=conversation, deferred_tool_results=answers)
        await store.save(result)
        print("second process: the agent says", result.output)
        result = await agent.run("Thank you!", conversation=result.conversation)
        await store.save(result)
        print("second process: the agent says", result.output)


async def show() -> None:
    """Print the checkpoints of the thread, as `tuskpoint history` does."""
    async with AsyncClient() as client:
        async for checkpoint in client.history(CONVERSATION):
            print(checkpoint.checkpoint_id, checkpoint.summary)


def main() -> None:
    """Ask, and let another process approve."""
    if "--approve" in sys.argv:
        asyncio.run(approve())
        asyncio.run(show())
        return
    asyncio.run(ask())
    subprocess.run([sys.executable, Path(__file__).parent, "--approve"], check=True)


if __name__ == "__main__":
    main()
