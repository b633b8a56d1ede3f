"""Start the document agent on a thread, or continue it.

    python run_agent.py --target 127.0.0.1:7390 --thread my-thread --log run.log

Prints one line of JSON at the end. Exit codes: 0 the agent has finished, 3 it waits for an answer
(run it again with `--answer`), 1 something failed, 2 the command line is wrong.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.types import Command

from agent import BATCH, Briefing, build_agent, documents_in
from execution_log import ExecutionLog, Record, Settings
from tuskpoint import TuskPointSaver

AGENT = "planner"
FINISHED, FAILED, INTERRUPTED = 0, 1, 3
BOOKKEEPING = {"__error__", "__interrupt__", "__resume__", "__scheduled__"}


class WitnessedSaver(TuskPointSaver):
    """A `TuskPointSaver` that records each acknowledgement for the checks of the demo.

    Your own agent needs only `TuskPointSaver(target)`.
    """

    def __init__(self, target: str, log: ExecutionLog) -> None:
        super().__init__(target, agent_id=AGENT)
        self.witness = log

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint and note that it was acknowledged."""
        saved = super().put(config, checkpoint, metadata, new_versions)
        configurable = config["configurable"]
        self.witness.append(
            Record(
                event="checkpoint",
                thread=configurable["thread_id"],
                checkpoint=checkpoint["id"],
                parent=configurable.get("checkpoint_id") or "",
            )
        )
        return saved

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save the result of a task and note that it was acknowledged."""
        super().put_writes(config, writes, task_id, task_path)
        configurable = config["configurable"]
        if not {channel for channel, _ in writes} <= BOOKKEEPING:
            self.witness.append(
                Record(
                    event="writes",
                    thread=configurable["thread_id"],
                    checkpoint=configurable["checkpoint_id"],
                    task=task_id,
                )
            )


def run(target: str, thread: str, settings: Settings, answer: str | None) -> dict[str, Any]:
    """Drive the thread until it finishes or waits for an answer it was not given."""
    config: RunnableConfig = {
        "configurable": {"thread_id": thread},
        "metadata": {"run_id": str(uuid4())},  # tells the runs of a thread from one another
        "max_concurrency": BATCH + 2,
        "recursion_limit": 100,
    }
    agent = build_agent(WitnessedSaver(target, settings.log))
    before = agent.get_state(config)
    if not before.metadata:
        start: Briefing = {"current_plan": "Look at the documents."}
        agent.invoke(start, config, context=settings, durability="sync")
    elif before.tasks and not before.interrupts:  # `next` leaves out tasks with stored results
        agent.invoke(None, config, context=settings, durability="sync")
    if answer is not None and agent.get_state(config).interrupts:
        agent.invoke(Command(resume=answer), config, context=settings, durability="sync")

    after = agent.get_state(config)
    if after.interrupts:
        return {"status": "interrupted", "question": after.interrupts[0].value}
    return {
        "status": "finished",
        "plan": after.values["current_plan"],
        "briefing": after.values.get("briefing", ""),
    }


def main() -> int:
    """Read the command line, run, report."""
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--target", default=os.environ.get("TUSKPOINT_TARGET", "127.0.0.1:7390"))
    parser.add_argument("--thread", required=True, help="the thread to start or to continue")
    parser.add_argument("--log", type=Path, required=True, help="the execution log to append to")
    parser.add_argument("--documents", type=Path, default=here / "documents")
    parser.add_argument("--answer", help="what to answer when the agent asks")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds added to each step")
    parser.add_argument(
        "--hold", type=Path, help="a file: the node it names waits until it is gone"
    )
    options = parser.parse_args()
    settings = Settings(options.documents, ExecutionLog(options.log), options.pace, options.hold)
    if not options.documents.is_dir() or not documents_in(settings):
        parser.error(f"no .md or .txt documents in {options.documents}")
    result = run(options.target, options.thread, settings, options.answer)
    print(json.dumps({"thread": options.thread, **result}, ensure_ascii=False), flush=True)
    return INTERRUPTED if result["status"] == "interrupted" else FINISHED


if __name__ == "__main__":
    sys.exit(main())
