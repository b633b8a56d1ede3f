"""An agent of the OpenAI Agents SDK whose conversation, and whose wait for a person, is a thread.

    make example NAME=openai_agents

The model is scripted, so no key is needed. The first process stops where a person has to approve
a tool. The second one is another process, which has only the ID of the session.
"""

import asyncio
import subprocess
import sys

from agents import Agent, Model, Runner, RunState, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from tuskpoint import AsyncClient
from tuskpoint.frameworks.openai_agents import TuskPointSession

SESSION = "customer-42"


@function_tool(needs_approval=True)
def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


def clerk(model: Model) -> Agent:
    """Return the agent, which is the same in each process."""
    return Agent(name="clerk", model=model, tools=[refund])


async def ask() -> None:
    """Begin the conversation; the agent wants to use a tool that a person approves."""
    agent = clerk(ScriptedModel([[function_call("refund", {"order": "A-17"}, call_id="call-1")]]))
    async with TuskPointSession(SESSION, agent_id="clerk") as session:
        result = await Runner.run(agent, "The kettle leaks, I want a refund.", session=session)
        await session.save_run_state(result.to_state())
        waits_for = ", ".join(str(interruption.name) for interruption in result.interruptions)
        print("first process: the agent waits for", waits_for, flush=True)


async def approve() -> None:
    """Continue the run in another process, then take another turn."""
    model = ScriptedModel([[assistant_message("Done.")], [assistant_message("You are welcome.")]])
    agent = clerk(model)
    async with TuskPointSession(SESSION, agent_id="clerk") as session:
        run_state = await session.load_run_state()
        assert run_state is not None
        state = await RunState.from_json(agent, run_state)
        for question in state.get_interruptions():
            state.approve(question)
        result = await Runner.run(agent, state, session=session)
        await session.save_run_state(None)
        print("second process: the agent says", result.final_output)
        result = await Runner.run(agent, "Thank you!", session=session)
        print("second process: the agent says", result.final_output)
        print("the model was given", len(model.calls[-1].input), "items of the conversation")


async def show() -> None:
    """Print the checkpoints of the thread, as `tuskpoint history` does."""
    async with AsyncClient() as client:
        async for checkpoint in client.history(SESSION):
            print(checkpoint.checkpoint_id, checkpoint.summary)


def main() -> None:
    """Ask, and let another process approve."""
    set_tracing_disabled(True)
    if "--approve" in sys.argv:
        asyncio.run(approve())
        asyncio.run(show())
        return
    asyncio.run(ask())
    subprocess.run([sys.executable, __file__, "--approve"], check=True)


if __name__ == "__main__":
    main()
