"""A workflow of the Microsoft Agent Framework that waits for a person, and outlives its process.

    make example NAME=agent_framework

No model and no key is needed. The first process is killed while the workflow waits. The second one
is another process, which has only the ID of the thread.
"""

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Never

from agent_framework import (
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)

from tuskpoint import AsyncClient
from tuskpoint.frameworks.agent_framework import TuskPointCheckpointStorage

THREAD, NAME = "refund-A-17", "refund"


@dataclass
class Refund:
    """A refund, which a person approves."""

    order: str
    euros: int


class Quote(Executor):
    """Finds out what an order cost."""

    @handler
    async def quote(self, order: str, ctx: WorkflowContext[Refund]) -> None:
        """Pass the refund on."""
        print("  quoting", order, flush=True)
        await ctx.send_message(Refund(order, 40))


class Pay(Executor):
    """Asks a person, then pays."""

    @handler
    async def ask(self, refund: Refund, ctx: WorkflowContext) -> None:
        """Wait for a person."""
        await ctx.request_info(refund, bool)

    @response_handler
    async def pay(self, refund: Refund, approved: bool, ctx: WorkflowContext[Never, str]) -> None:
        """Pay what was approved."""
        done = f"paid {refund.euros} euros" if approved else "paid nothing"
        await ctx.yield_output(f"{done} for {refund.order}")


def workflow() -> Workflow:
    """Return the workflow, which is the same in each process."""
    quote, pay = Quote(id="quote"), Pay(id="pay")
    builder = WorkflowBuilder(name=NAME, start_executor=quote, output_from=[pay])
    return builder.add_edge(quote, pay).build()


async def begin() -> None:
    """Run until a person has to approve, then die."""
    async with TuskPointCheckpointStorage(THREAD, types=[Refund]) as storage:
        result = await workflow().run("A-17", checkpoint_storage=storage)
        for request in result.get_request_info_events():
            print("  waits for a person:", request.data, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


async def approve() -> None:
    """Continue from the latest checkpoint."""
    async with TuskPointCheckpointStorage(THREAD, types=[Refund]) as storage:
        latest = await storage.get_latest(workflow_name=NAME)
        assert latest is not None
        result = await workflow().run(
            responses=dict.fromkeys(latest.pending_request_info_events, True),
            checkpoint_id=latest.checkpoint_id,
            checkpoint_storage=storage,
        )
        print("  the workflow says:", *result.get_outputs(), flush=True)


async def show() -> None:
    """Print the checkpoints of the thread, as `tuskpoint history` does."""
    async with AsyncClient() as client:
        async for checkpoint in client.history(THREAD):
            print(checkpoint.checkpoint_id, checkpoint.summary)


def main() -> None:
    """Run a process that is killed, and continue here."""
    if "--first" in sys.argv:
        asyncio.run(begin())
        return
    print("first process", flush=True)
    killed = subprocess.run([sys.executable, __file__, "--first"], check=False)
    print("second process, as the first one ended with", killed.returncode, flush=True)
    asyncio.run(approve())
    asyncio.run(show())


if __name__ == "__main__":
    main()
