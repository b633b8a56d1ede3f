"""Threads of the document agent to look at.

One waits, one finished, one failed, one was forked, and one was handed off.
"""

import shutil
import time
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from langchain_core.runnables import RunnableConfig

from agent import build_agent, documents_in
from execution_log import ExecutionLog, Settings
from processes import HERE, Forks
from proof import is_between, read_history
from run_agent import run
from tuskpoint import CheckpointRecord, Client, TuskPointSaver

FINISHED, WAITING, BROKEN = "briefing-october", "briefing-november", "briefing-scans"
FORKED, ADOPTED = "briefing-unabridged", "briefing-from-planner"
DOCUMENTS = HERE / "documents"
ANSWER, OTHER_ANSWER = "shorten", "publish"
EDITOR = "editor"
THINKING_SECONDS = 1.0
"""Time until the question of the finished thread is answered."""
KILLS = (("reader/split", "reader/count"), ("statistics", "key_sentences"))
"""For each kill of a process: a node with a stored result, and the node that is at work."""


def fill(target: str, folder: Path, documents: Path = DOCUMENTS) -> None:
    """Leave threads of every kind on one server, without a kill."""
    settings = Settings(documents, ExecutionLog(folder / "execution.log"))
    wait(target, settings)
    fail(target, folder, settings)
    run(target, FINISHED, settings, ANSWER)
    fork(target, settings)
    hand_off(target, target, settings)
    with Client(target) as client:
        client.flush()


def run_with_kills(forks: Forks, target: str, settings: Settings) -> None:
    """Run the finished thread in three processes, two of them killed in a step; then answer."""
    hold = settings.log.path.with_name("hold")
    for settled, running in KILLS:
        hold.write_text(running, "utf-8")
        process = forks.start(run, target, FINISHED, replace(settings, hold=hold), None)

        def is_in_step(settled: str = settled, running: str = running) -> bool:
            return is_between(read_history(settings.log.read(), FINISHED), settled, running)

        forks.until(process, f"{running} was at work", is_in_step)
        process.kill()
        process.join()
        hold.unlink()
    forks.finish(forks.start(run, target, FINISHED, settings, None))
    time.sleep(THINKING_SECONDS)
    run(target, FINISHED, settings, ANSWER)


def wait(target: str, settings: Settings) -> None:
    """Leave a thread that waits for an answer."""
    run(target, WAITING, settings, None)


def fail(target: str, folder: Path, settings: Settings) -> None:
    """Leave a thread whose readers meet a document that is not UTF-8."""
    spoiled = folder / "documents"
    shutil.copytree(settings.documents, spoiled)
    spoiled_settings = Settings(spoiled, settings.log, settings.pace)
    document = spoiled / documents_in(spoiled_settings)[0]
    document.write_bytes(document.read_bytes() + b"\xff")
    try:
        run(target, BROKEN, spoiled_settings, None)
    except UnicodeDecodeError:
        return
    raise AssertionError(f"thread {BROKEN!r} did not fail")


def label_approved(target: str, thread: str) -> CheckpointRecord:
    """Label the checkpoint after the approval; return the checkpoint."""
    with Client(target) as client:
        approved = next(
            record
            for record in client.list(thread, checkpoint_ns="", view="entry")
            if "approve ran" in record.summary
        )
        client.label(thread, "approved", checkpoint_id=approved.checkpoint_id)
    return approved


def fork(target: str, settings: Settings) -> None:
    """Fork the finished thread before its question, and give the other answer on the fork."""
    approved = label_approved(target, FINISHED)
    with Client(target) as client:
        # The checkpoint with the question keeps its answer, so the fork is one step earlier.
        asked = client.load(FINISHED, approved.parent_checkpoint_id, view="entry")
        client.fork(FINISHED, asked.parent_checkpoint_id, FORKED)
    run(target, FORKED, settings, OTHER_ANSWER)
    label_approved(target, FORKED)


def hand_off(target: str, editors_target: str, settings: Settings) -> None:
    """Hand the finished thread to another agent, on its own server; the agent edits the title.

    The fork is offered to a translator, which nobody has started.
    """
    with Client(target) as client, Client(editors_target) as editors:
        client.handoff(FORKED, to_agent="translator", expires_in_s=7 * 86_400)
        descriptor = client.handoff(FINISHED, to_agent=EDITOR)
        editors.adopt(descriptor, ADOPTED)
    config: RunnableConfig = {
        "configurable": {"thread_id": ADOPTED},
        "metadata": {"run_id": str(uuid4())},
    }
    with TuskPointSaver(editors_target, agent_id=EDITOR) as saver:
        agent = build_agent(saver)
        text = agent.get_state(config).values["briefing"]
        edited = text.replace("# Briefing on 28 documents", "# What 28 documents say in short")
        agent.update_state(config, {"briefing": edited}, as_node="editor")
        agent.invoke(None, config, context=settings, durability="sync")
