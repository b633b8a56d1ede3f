"""After a change, the console shows the line that continues the run, until the run continues."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Locator, expect

from tests.console.asking_agent import Agent, answer
from tests.console.browser import Look
from tests.console.conftest import ConsoleServer
from tests.console.hands import Mouse, checkpoint_menu
from tests.integration.cli.command_line.kit import run
from tuskpoint import Client, TuskPointSaver

ODD = "a'b\"c\\\n\u202e{x}"
"""A thread ID that a line of code must quote."""


@pytest.fixture
def odd(server: ConsoleServer, client: Client, look: Look) -> Iterator[Agent]:
    """An agent that asks, on a thread with an odd ID."""
    with TuskPointSaver(server.target) as saver:
        yield Agent(saver, {"question": "Proceed?", "options": ["yes", "no"]}, ODD)
    look.page.goto("about:blank")  # The page may still ask for the thread.
    client.delete(ODD)


def open_thread(look: Look, thread_id: str) -> None:
    look.open(f"/thread?{urlencode({'id': thread_id})}")


def copied(part: Locator, language: str = "Python") -> str:
    """Copy the line that a part of the page shows for a language; return the clipboard."""
    button = part.get_by_role("button", name=f"Copy the line of {language}")
    button.click()
    expect(button).to_have_text("copied")
    line: str = part.page.evaluate("navigator.clipboard.readText()")
    return line


def config_of(line: str) -> Any:
    """Return the config that a line of Python passes to `graph.invoke`."""
    call = ast.parse(line, mode="eval").body
    assert isinstance(call, ast.Call)
    assert ast.unparse(call.func) == "graph.invoke"
    nothing, config = (ast.literal_eval(argument) for argument in call.args)
    assert nothing is None
    return config


def card(look: Look, what: str) -> Locator:
    """Return the card that reports a change."""
    card = look.page.locator(".next-step").filter(has_text=what)
    expect(card).to_be_visible()
    return card


def test_the_line_after_an_answer_continues_the_run(
    look: Look, server: ConsoleServer, odd: Agent
) -> None:
    open_thread(look, ODD)
    answer(look, "yes")
    question = look.page.get_by_role("region", name="Questions for a person")
    expect(question).to_contain_text("The agent can continue")
    look.accessible()
    line = copied(question)
    assert f"  {line}\n" in run(server.target, "show", ODD).out
    assert copied(question, "TypeScript").startswith("await graph.invoke(null, {")
    done = odd.graph.invoke(None, config_of(line))
    assert done["answers"] == ["yes"]
    expect(question).to_have_count(0)


def test_a_question_before_the_head_is_answered_on_a_fork(
    look: Look, agent: Callable[[Any], Agent], client: Client
) -> None:
    asking = agent({"question": "Proceed?", "type": "boolean"})
    asked = client.get_thread(asking.thread_id).head_checkpoint_id
    look.open(f"/thread?id={asking.thread_id}&checkpoint={asked}")
    yes = look.page.get_by_role("button", name="Yes", exact=True)
    expect(yes).to_be_visible()
    client.rollback(asking.thread_id, asked)
    expect(look.page.get_by_text("To answer, fork from here")).to_be_visible()
    expect(yes).to_have_count(0)
    look.accessible()
    look.page.get_by_role("button", name="Fork", exact=True).click()
    look.page.get_by_role("dialog").get_by_role("button", name="Fork", exact=True).click()
    look.page.get_by_role("link", name="Open the new thread").click()
    answer(look, "Yes")
    config = config_of(copied(look.page.get_by_role("region", name="Questions for a person")))
    assert config["configurable"]["thread_id"] != asking.thread_id
    assert asking.graph.invoke(None, config)["answers"] == [True]


def test_a_fork_and_its_line_are_shown_on_both_threads(look: Look, odd: Agent) -> None:
    open_thread(look, ODD)
    fork = f"{ODD} fork"
    look.page.get_by_role("button", name="Fork", exact=True).click()
    dialog = look.page.get_by_role("dialog")
    # A field of one line makes spaces of line breaks.
    dialog.get_by_label("ID of the new thread").fill(fork)
    dialog.get_by_role("button", name="Fork", exact=True).click()
    config = config_of(copied(card(look, "Forked checkpoint")))
    assert config == {"configurable": {"thread_id": fork.replace("\n", " ")}}
    look.page.reload()
    card(look, "Forked checkpoint").get_by_role("link", name="Open the new thread").click()
    here = card(look, "Forked checkpoint")
    expect(here.get_by_role("link")).to_have_count(0)
    look.accessible()
    assert "__interrupt__" in odd.graph.invoke(None, config)
    here.get_by_role("button", name="Dismiss").click()
    expect(here).to_have_count(0)
    look.page.go_back()
    expect(look.page.get_by_role("heading", level=1)).to_contain_text("a'b")
    expect(look.page.locator(".next-step")).to_have_count(0)


@pytest.mark.parametrize("change", ["roll back", "edit"])
def test_the_line_stays_until_the_run_continues(
    look: Look, agent: Callable[[Any], Agent], client: Client, change: str
) -> None:
    asking = agent("Proceed?")
    look.open(f"/thread?id={asking.thread_id}")
    dialog = look.page.get_by_role("dialog")
    if change == "edit":
        Mouse(look.page).choose(checkpoint_menu(look.page), "Edit and save")
        dialog.get_by_label("Channel", exact=True).select_option("plan")
        dialog.get_by_label("Value").fill('["edited"]')
        dialog.get_by_role("button", name="Save as a new checkpoint").click()
        made = card(look, "Saved a new checkpoint")
    else:
        look.page.get_by_role("listbox").get_by_role("option").nth(1).click()
        look.page.get_by_role("button", name="Roll back", exact=True).click()
        dialog.get_by_role("button", name="Roll back", exact=True).click()
        made = card(look, "Rolled thread")
    config = config_of(copied(made))
    head = client.get_thread(asking.thread_id).head_checkpoint_id
    client.label(asking.thread_id, "kept", checkpoint_id=head)
    made.get_by_role("link").click()
    row = look.page.get_by_role("listbox").get_by_role("option", selected=True)
    expect(row).to_contain_text("kept")
    expect(made).to_be_visible()
    asking.graph.invoke(None, config)
    if change == "edit":  # a new checkpoint follows only a rolled back run: the edited run asks
        client.save(asking.thread_id, {}, summary="later")
    expect(made).to_have_count(0)


def test_an_adopted_thread_shows_its_line(
    look: Look, agent: Callable[[Any], Agent], client: Client
) -> None:
    asking = agent("Proceed?")
    look.open("/adopt")
    look.page.get_by_label("Descriptor").fill(client.handoff(asking.thread_id).to_json())
    look.page.get_by_label("ID of the new thread").fill("it's adopted")
    look.page.get_by_role("button", name="Adopt", exact=True).click()
    line = copied(look.page.get_by_role("region", name="Progress"))
    assert config_of(line) == {"configurable": {"thread_id": "it's adopted"}}
    look.page.get_by_role("link", name="it's adopted").click()
    assert copied(card(look, "Adopted")) == line
