"""A session of the Claude Agent SDK that continues in a process on which it left no file.

    make example NAME=claude_agent_sdk

`scripted_claude.py` stands in for the program that the SDK runs, so neither that nor a key is
needed. Each process has its own empty folder instead of `~/.claude`.
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ResultMessage,
    TextBlock,
    list_sessions_from_store,
    project_key_for_directory,
    query,
)

from tuskpoint import AsyncClient
from tuskpoint.frameworks.claude_agent_sdk import TuskPointSessionStore, thread_of

SESSION = "0b0e5a3c-7b1f-4a52-9a40-2f1f5f4f6f11"
SCRIPTED = Path(__file__).with_name("scripted_claude.py")


async def ask(prompt: str, resume: str | None) -> None:
    """Take a turn of the session."""
    with tempfile.TemporaryDirectory() as folder:
        async with TuskPointSessionStore() as store:
            options = ClaudeAgentOptions(
                session_store=store,
                session_id=None if resume else SESSION,
                resume=resume,
                cli_path=SCRIPTED,
                env={"CLAUDE_CONFIG_DIR": folder},
            )
            async for message in query(prompt=prompt, options=options):
                if isinstance(message, AssistantMessage):
                    said = [block.text for block in message.content if isinstance(block, TextBlock)]
                    print("the agent says:", *said, flush=True)
                elif isinstance(message, ResultMessage):
                    print("the turn is saved", flush=True)


async def show() -> None:
    """Print the session as the SDK lists it, and its thread as `tuskpoint history` does."""
    async with AsyncClient() as client:
        for session in await list_sessions_from_store(TuskPointSessionStore(client)):
            print("session", session.session_id, "-", session.summary)
        async for checkpoint in client.history(thread_of(project_key_for_directory(), SESSION)):
            print(checkpoint.checkpoint_id, checkpoint.summary)


def main() -> None:
    """Take a turn, and let another process take the next one."""
    if "--again" in sys.argv:
        asyncio.run(ask("research the kettle", SESSION))
        asyncio.run(show())
        return
    asyncio.run(ask("The kettle leaks.", None))
    subprocess.run([sys.executable, Path(__file__).parent, "--again"], check=True)


if __name__ == "__main__":
    main()
