"""Two agents on one thread: a writer drafts an announcement, and an editor changes the draft.

    collect ── draft ── review ── publish

`review` asks whether to publish. The editor does not answer the first time: it replaces the draft,
and `review` asks again.
"""

import time
from typing import TypedDict
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, interrupt

from tuskpoint import TuskPointSaver

WRITER, EDITOR = "writer", "editor"
TOPIC, TIME = "new disks", "Saturday, 06:00 to 08:00 UTC"
EDITS = (
    ("We will do some maintenance", "We replace disks of the storage cluster"),
    ("may be slow or fail during this time", "wait during this time, and none is lost"),
    ("are not affected, probably", "work as usual"),
    ("We apologize for any inconvenience.", "You need to do nothing."),
)
"""Texts of the draft, and what the editor writes instead."""


class Announcement(TypedDict, total=False):
    """The state that both agents share."""

    topic: str
    facts: dict[str, str]
    draft: str
    decision: str
    published: str


def collect(state: Announcement) -> Announcement:
    """Collect the facts."""
    time.sleep(0.15)
    return {"facts": {"what": state["topic"], "when": TIME}}


def draft(state: Announcement) -> Announcement:
    """Write a first draft."""
    time.sleep(0.4)
    return {
        "draft": (
            "# Maintenance\n\n"
            f"We will do some maintenance on {state['facts']['when']}. "
            "Uploads may be slow or fail during this time; downloads are not affected, probably."
            "\n\nWe apologize for any inconvenience. Follow the status page for news.\n"
        )
    }


def review(state: Announcement) -> Announcement:
    """Ask whether to publish."""
    answer = interrupt({"question": "Publish the announcement?", "answers": ["publish", "drop"]})
    return {"decision": str(answer)}


def publish(state: Announcement) -> Announcement:
    """Publish the draft."""
    time.sleep(0.1)
    return {"published": state["draft"] if state["decision"] == "publish" else ""}


def _graph(
    saver: TuskPointSaver,
) -> CompiledStateGraph[Announcement, None, Announcement, Announcement]:
    graph = StateGraph(Announcement).add_sequence([collect, draft, review, publish])
    return graph.add_edge(START, "collect").compile(checkpointer=saver)


def run(target: str, thread: str) -> tuple[str, str]:
    """Leave a published announcement; return the checkpoints before and after the edit."""
    place: RunnableConfig = {"configurable": {"thread_id": thread}}
    with TuskPointSaver(target, agent_id=WRITER) as saver:
        writer = _graph(saver)
        first: RunnableConfig = {**place, "metadata": {"run_id": str(uuid4())}}
        writer.invoke({"topic": TOPIC}, first, durability="sync")
        drafted = writer.get_state(place)
    with TuskPointSaver(target, agent_id=EDITOR) as saver:
        editor = _graph(saver)
        text = drafted.values["draft"]
        for words, better_words in EDITS:
            text = text.replace(words, better_words)
        edited = editor.update_state(drafted.config, {"draft": text}, as_node="draft")
        second: RunnableConfig = {**place, "metadata": {"run_id": str(uuid4())}}
        editor.invoke(None, second, durability="sync")
        editor.invoke(Command(resume="publish"), second, durability="sync")
    before, after = (at["configurable"]["checkpoint_id"] for at in (drafted.config, edited))
    return before, after
