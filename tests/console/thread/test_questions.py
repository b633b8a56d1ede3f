"""`interrupt` returns the answers that a person gives in the console."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt
from playwright.sync_api import expect

from tests.console.asking_agent import Agent, answer
from tests.console.browser import Look
from tests.console.conftest import ConsoleServer
from tuskpoint import TuskPointSaver

EDITED = {"decisions": [{"type": "edit", "edited_action": {"name": "send", "args": {"to": "b"}}}]}


def test_an_answered_question_is_what_interrupt_returns(
    look: Look, agent: Callable[[Any], Agent]
) -> None:
    options = ["night", {"label": "None", "value": 0}]
    asking = agent({"question": "Which train?", "options": options})
    look.open(f"/thread?id={asking.thread_id}")
    expect(look.page.get_by_role("button", name="None", exact=True)).to_be_visible()
    look.accessible()
    answer(look, "None")
    assert asking.go_on()["answers"] == [0]


@pytest.mark.parametrize(
    ("question", "fill", "expected"),
    [
        ("Which city?", {"Answer": "Lisbon"}, "Lisbon"),
        (
            {
                "schema": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "seats": {"type": "integer"}},
                    "required": ["name"],
                }
            },
            {"name": "Ada", "seats (may be empty)": "2"},
            {"name": "Ada", "seats": 2},
        ),
        (
            {
                "action_requests": [{"name": "send", "args": {"to": "a"}}],
                "review_configs": [{"action_name": "send", "allowed_decisions": ["edit"]}],
            },
            {"Edit the arguments": None, "Arguments, as JSON": '{"to": "b"}'},
            EDITED,
        ),
    ],
    ids=["text", "schema", "review"],
)
def test_the_form_fits_the_question(
    look: Look,
    agent: Callable[[Any], Agent],
    question: Any,
    fill: dict[str, str | None],
    expected: Any,
) -> None:
    asking = agent(question)
    look.open(f"/thread?id={asking.thread_id}")
    for label, text in fill.items():
        control = look.page.get_by_label(label, exact=True)
        control.check() if text is None else control.fill(text)
    answer(look)
    assert asking.go_on()["answers"] == [expected]


def test_an_answer_can_be_changed_until_the_graph_continues(
    look: Look, agent: Callable[[Any], Agent]
) -> None:
    asking = agent({"question": "Proceed?", "type": "boolean"})
    look.open(f"/thread?id={asking.thread_id}")
    answer(look, "No")
    line = look.page.get_by_text("Answered: No")
    head = look.page.locator(".page-head")
    expect(head).to_contain_text("answered, ready to continue")
    expect(line).to_be_focused()  # the button that had the focus is gone
    look.page.reload()
    change = look.page.get_by_role("button", name="Change the answer")
    change.click()
    options = look.page.get_by_role("group", name="Answer")
    expect(options.get_by_role("button", pressed=True)).to_have_text("No")
    look.page.get_by_role("button", name="Keep the answer").click()
    expect(line).to_be_focused()
    change.click()
    look.page.get_by_role("button", name="Answer with JSON").click()
    expect(look.page.get_by_label("Answer, as JSON")).to_have_value("false")
    look.page.get_by_role("button", name="Answer with the form").click()
    answer(look, "Yes")
    expect(look.page.get_by_text("Answered: Yes")).to_be_visible()
    assert asking.go_on()["answers"] == [True]
    expect(change).to_have_count(0)
    expect(head).to_contain_text("idle")


def test_a_text_is_changed_where_it_was_typed(look: Look, agent: Callable[[Any], Agent]) -> None:
    asking = agent("Which city?")
    look.open(f"/thread?id={asking.thread_id}")
    look.page.get_by_label("Answer", exact=True).fill("Lisbon,\nOslo")
    answer(look)
    look.page.get_by_role("button", name="Change the answer").click()
    expect(look.page.get_by_label("Answer", exact=True)).to_have_value("Lisbon,\nOslo")
    look.page.get_by_label("Answer", exact=True).fill("Bergen")
    answer(look)
    expect(look.page.get_by_text("Answered: Bergen")).to_be_visible()
    assert asking.go_on()["answers"] == ["Bergen"]


def test_an_answer_that_is_refused_stays_in_the_form(
    look: Look, agent: Callable[[Any], Agent]
) -> None:
    asking = agent("Which city?")
    look.allows_failures = True  # the call is refused
    look.open(f"/thread?id={asking.thread_id}")
    look.page.route("**/SaveWrites", lambda call: call.fulfill(status=503))
    field = look.page.get_by_label("Answer", exact=True)
    field.fill("Lisbon")
    look.page.get_by_role("button", name="Answer", exact=True).click()
    expect(look.page.get_by_role("alert")).to_contain_text("The server does not answer")
    expect(field).to_have_value("Lisbon")
    look.page.unroute("**/SaveWrites")
    look.page.get_by_text("Advanced").click()
    look.page.get_by_label("Wait until the change is").select_option("certified")
    answer(look)
    expect(look.page.get_by_text("certified", exact=True)).to_be_visible()
    assert asking.go_on()["answers"] == ["Lisbon"]


class Answers(TypedDict):
    answers: Annotated[list[Any], operator.add]


class Asked(TypedDict):
    question: dict[str, Any]


def ask(state: Asked) -> Answers:
    return {"answers": [interrupt(state["question"])]}


def build(questions: list[dict[str, Any]]) -> Any:
    """Return a graph whose tasks ask in parallel."""
    graph = StateGraph(Answers)
    graph.add_node("ask", ask, input_schema=Asked)
    graph.add_conditional_edges(
        START, lambda state: [Send("ask", {"question": question}) for question in questions]
    )
    graph.add_edge("ask", END)
    return graph


def test_questions_of_parallel_tasks_get_their_own_answers(
    look: Look, server: ConsoleServer
) -> None:
    questions: list[dict[str, Any]] = [
        {"question": "How many?", "type": "integer"},
        {"question": "Really?", "type": "boolean"},
        {"question": "Which?", "options": ["left", "right"]},
    ]
    graph = build(questions)
    config: Any = {"configurable": {"thread_id": "asking"}}
    with TuskPointSaver(server.target) as saver:
        agent = graph.compile(checkpointer=saver)
        agent.invoke({"answers": []}, config)
        look.open("/thread?id=asking")
        region = look.page.get_by_role("region", name="Questions for a person")
        expect(region.get_by_role("heading").first).to_have_text("3 questions wait for a person")
        open_ones = region.get_by_role("article", name="An open question")

        article = open_ones.filter(has_text="How many?")
        article.get_by_role("textbox").fill("many")
        article.get_by_role("button", name="Answer", exact=True).click()
        expect(article.get_by_role("alert")).to_be_visible()
        article.get_by_role("textbox").fill("7")
        article.get_by_role("button", name="Answer", exact=True).click()
        article = open_ones.filter(has_text="Really?")
        article.get_by_role("button", name="Yes", exact=True).click()
        article = open_ones.filter(has_text="Which?")
        article.get_by_role("button", name="Answer with JSON").click()
        article.get_by_role("textbox").fill('{"way": "back"}')
        article.get_by_role("button", name="Answer", exact=True).click()
        expect(region).to_contain_text("The agent can continue")
        # Nothing was written since, so the page replaces each of its own answers.
        article = region.get_by_role("article").filter(has_text="Really?")
        article.get_by_role("button", name="Change the answer").click()
        article.get_by_role("button", name="No", exact=True).click()
        expect(article).to_contain_text("Answered: No")
        # Another page cannot know whether a task used its answer already.
        look.page.reload()
        expect(region.get_by_role("article")).to_have_count(3)
        expect(region.get_by_role("button", name="Change the answer")).to_have_count(0)
        done = agent.invoke(None, config)
    assert done["answers"] == [7, False, {"way": "back"}]
