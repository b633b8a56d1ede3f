"""A newcomer repairs a run in the console alone, once with a mouse, once with the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser import Look
from tests.console.conftest import ConsoleServer
from tests.console.hands import HANDS, Hands, checkpoint_menu
from tuskpoint import Client, TuskPointSaver


class Program:
    """The program that runs the graph. A person does not see the program; the console shows its
    steps."""

    def __init__(self, demo: Any, target: str, thread: str, folder: Path) -> None:
        self.demo, self.target, self.thread = demo, target, thread
        self.settings = demo.Settings(demo.HERE / "documents", demo.ExecutionLog(folder / "log"))

    @contextmanager
    def _agent(self) -> Iterator[Any]:
        from agent import build_agent

        with TuskPointSaver(self.target) as saver:
            yield build_agent(saver)

    def go_on(self) -> dict[str, Any]:
        """Continue from the saved state, `graph.invoke(None, config)`; return the new state."""
        config = {"configurable": {"thread_id": self.thread}, "recursion_limit": 100}
        with self._agent() as agent:
            agent.invoke(None, config, context=self.settings)
            values: dict[str, Any] = agent.get_state(config).values
        return values


def state_of(target: str, thread: str) -> dict[str, Any]:
    """Return the state at the head of a thread, without the channels that LangGraph adds."""
    with Client(target) as client:
        state = client.load(thread, view="json").state
    return {name: value for name, value in state.items() if not name.startswith(("__", "branch:"))}


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_newcomer_finds_the_fault_goes_back_answers_and_hands_off(
    look: Look, server: ConsoleServer, demo: Any, tmp_path: Path, by: str
) -> None:
    page, hands, repaired = look.page, HANDS[by](look.page), f"repaired-{by}"
    program = Program(demo, server.target, repaired, tmp_path)
    panel = page.get_by_role("region", name="Checkpoint", exact=True)
    tree = page.get_by_role("listbox")
    said = page.get_by_role("status").filter(has=page.get_by_role("button", name="Dismiss"))

    # Which step went wrong?
    look.open("/")
    failed = page.get_by_role("region", name="Failed")
    hands.press(failed.get_by_role("link", name=demo.BROKEN))
    expect(panel).to_contain_text("Failed")
    expect(panel).to_contain_text("UnicodeDecodeError")
    wrong = tree.get_by_role("option", selected=True)
    expect(wrong).to_contain_text("survey")

    # Fork before it.
    hands.pick(tree, tree.get_by_role("option").filter(has_text="Start").last)
    expect(panel.get_by_role("heading", level=2)).to_have_text("Start")
    hands.press(panel.get_by_role("button", name="Fork", exact=True))
    hands.write(page.get_by_label("ID of the new thread"), repaired)
    hands.press(page.get_by_role("dialog").get_by_role("button", name="Fork", exact=True))
    expect(said).to_contain_text(f"as thread “{repaired}”")
    hands.press(said.get_by_role("link", name="Open the new thread"))
    expect(page.get_by_role("heading", level=1)).to_have_text(repaired)
    with Client(server.target) as client:
        assert client.lineage(repaired).ancestors[-1].origin.thread_id == demo.BROKEN

    # The agent runs again, now with all documents, and asks.
    program.go_on()
    question = panel.get_by_role("region", name="Questions for a person")
    expect(question).to_contain_text("Publish it?")
    hands.press(question.get_by_role("button", name=demo.ANSWER))
    expect(question).to_contain_text(f"Answered: {demo.ANSWER}")
    expect(question).to_contain_text("The agent can continue")
    finished = program.go_on()
    assert finished["decision"] == demo.ANSWER
    newest = tree.get_by_role("option").first
    expect(newest).to_contain_text("publish")

    # Hand the result off.
    hands.pick(tree, newest)
    expect(panel.get_by_role("heading", level=2)).to_have_text("publish")
    descriptor = hand_off(page, hands, "editor")
    with Client(server.target) as client:
        adopted = client.adopt(descriptor, f"adopted-{by}")
    assert adopted.adopted_from.startswith(f"{repaired}:")
    assert state_of(server.target, f"adopted-{by}") == state_of(server.target, demo.FINISHED)


def hand_off(page: Page, hands: Hands, agent: str) -> str:
    """Hand the shown checkpoint off; return the descriptor that the console shows."""
    hands.choose(checkpoint_menu(page), "Hand off")
    hands.write(page.get_by_label("To agent"), agent)
    hands.press(page.get_by_role("dialog").get_by_role("button", name="Hand off"))
    shown = page.get_by_role("dialog", name="The descriptor")
    expect(shown.get_by_role("img", name="QR code")).to_be_visible()
    hands.press(shown.get_by_role("button", name="Copy the descriptor"))
    expect(shown.get_by_role("button", name="Copy the descriptor")).to_have_text("copied")
    descriptor: str = page.evaluate("navigator.clipboard.readText()")
    hands.press(shown.get_by_role("button", name="Close"))
    expect(shown).to_have_count(0)
    return descriptor
