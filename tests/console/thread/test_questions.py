"""`interrupt` returns the answers that a person gives in the console."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt
from playwright.sync_api import Locator, expect

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
    look.page.get_by_label("None").check()
    look.accessible()
    answer(look)
    assert asking.go_on()["answers"] == [0]


@pytest.mark.parametrize(
    ("question", "fill", "expected"),
    [
        ("Which city?", {"Answer": "Lisbon"}, "Lisbon"),
        ({"question": "Proceed?", "type": "boolean"}, {"No": None}, False),
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
    ids=["text", "yes or no", "schema", "review"],
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
        article.get_by_role("button", name="Answer…").click()
        expect(article.get_by_role("alert")).to_be_visible()
        article.get_by_role("textbox").fill("7")
        _answer(look, article)
        article = open_ones.filter(has_text="Really?")
        article.get_by_label("No").check()
        _answer(look, article)
        article = open_ones.filter(has_text="Which?")
        article.get_by_role("button", name="Answer with JSON").click()
        article.get_by_role("textbox").fill('{"way": "back"}')
        _answer(look, article)
        expect(region).to_contain_text("Answered: the agent can continue")
        done = agent.invoke(None, config)
    assert done["answers"] == [7, False, {"way": "back"}]


def _answer(look: Look, question: Locator) -> None:
    before = look.page.locator(".notice").count()
    question.get_by_role("button", name="Answer…").click()
    look.page.get_by_role("dialog").get_by_role("button", name="Save the answer").click()
    expect(look.page.locator(".notice")).to_have_count(before + 1)
