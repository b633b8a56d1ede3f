"""An agent of the Agent Development Kit (ADK) whose session, and whose state, are threads.

    make example NAME=google_adk

The model is scripted, so no key is needed. The first process asks a question. The second one is
another process, which has only the names of the app, the user and the session.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools.tool_context import ToolContext
from google.genai.types import Content, Part, UserContent

from tuskpoint import AsyncClient
from tuskpoint.frameworks.google_adk import TuskPointSessionService, thread_of

APP, USER, SESSION = "shop", "ann@example.com", "s-42"


class ScriptedModel(BaseLlm):
    """A model that answers from a list, and says what it was given."""

    answers: list[Part]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the next answer."""
        print(f"  the model was given {len(llm_request.contents)} messages")
        yield LlmResponse(content=Content(role="model", parts=[self.answers.pop(0)]))


def look_up(order: str, tool_context: ToolContext) -> dict[str, str]:
    """Look up an order."""
    tool_context.state["order"] = order
    tool_context.state["user:last_order"] = order
    return {"order": order, "status": "on its way"}


async def say(text: str, *answers: Part) -> None:
    """Take a turn of the conversation."""
    model = ScriptedModel(model="scripted", answers=list(answers))
    agent = LlmAgent(name="clerk", model=model, tools=[look_up])
    async with TuskPointSessionService() as service:
        runner = Runner(
            app_name=APP, agent=agent, session_service=service, auto_create_session=True
        )
        async with runner:
            turn = runner.run_async(user_id=USER, session_id=SESSION, new_message=UserContent(text))
            async for event in turn:
                if event.is_final_response() and event.content and event.content.parts:
                    print("  the agent says:", event.content.parts[0].text)
        session = await service.get_session(app_name=APP, user_id=USER, session_id=SESSION)
        assert session is not None
        print(f"  the session has {len(session.events)} events and the state {session.state}")


async def show() -> None:
    """Print the checkpoints of the thread, as `tuskpoint history` does."""
    async with AsyncClient() as client:
        async for checkpoint in client.history(thread_of(APP, USER, SESSION)):
            print(checkpoint.checkpoint_id, checkpoint.summary)


def main() -> None:
    """Take a turn, and let another process take the next one."""
    if "--second" in sys.argv:
        print("second process", flush=True)
        asyncio.run(say("Thank you!", Part(text="You are welcome.")))
        asyncio.run(show())
        return
    print("first process", flush=True)
    call = Part.from_function_call(name="look_up", args={"order": "A-17"})
    asyncio.run(say("Where is A-17?", call, Part(text="It is on its way.")))
    sys.stdout.flush()
    subprocess.run([sys.executable, __file__, "--second"], check=True)


if __name__ == "__main__":
    main()
