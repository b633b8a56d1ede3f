"""The messages of a checkpoint are a conversation: formatted, with tools, models and tokens."""

from __future__ import annotations

import json
from itertools import chain
from typing import Annotated, TypedDict

import pytest
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, _messages_delta_reducer
from playwright.sync_api import Locator, expect

from tests.console.browser import Look
from tests.console.conftest import ConsoleServer, Looking
from tuskpoint import Client, TuskPointSaver

CODE = 'if a < b:\n    print("**a**")'
ANSWER = f"""\
# Flights

The cheapest is **SK 835**, see [the fares](https://example.org/fares?a=1) and `SK_835`.

| flight | price |
|:--|--:|
| SK 835 | 1,204 |
| {"AF-1275-" * 20} | 1,980 |

- [x] price
- [ ] seat

```python
{CODE}
```

![map](https://example.org/map.png) <b>bold</b>
"""
LONG = "\n".join(f"trip {number}" for number in range(500))
FLIGHTS = [{"id": f"SK {number}", "price": number} for number in range(40)]
CALLS = [
    {"name": "search", "args": {"from": "OSL", "to": {"city": "Paris"}}, "id": "call-search"},
    {"name": "profile", "args": {}, "id": "call-profile"},
    {"name": "weather", "args": {"city": "Paris"}, "id": "call-weather"},
]
MODEL = {"model_name": "example-model"}


def tokens(in_: int, out: int) -> UsageMetadata:
    return UsageMetadata(input_tokens=in_, output_tokens=out, total_tokens=in_ + out)


TRAVEL: list[AnyMessage] = [
    SystemMessage("## Rules\n\nNever book without a *yes*."),
    HumanMessage("To Paris,\nplease.", name="Ada"),
    AIMessage(
        "I look.",
        tool_calls=CALLS,
        usage_metadata=tokens(1200, 86),
        response_metadata=MODEL,
    ),
    ToolMessage(LONG, tool_call_id="call-profile", name="profile"),
    ToolMessage(json.dumps({"flights": FLIGHTS}), tool_call_id="call-search", name="search"),
    ToolMessage("**no answer**", tool_call_id="call-weather", status="error"),
    AIMessage(ANSWER, usage_metadata=tokens(2300, 512), response_metadata=MODEL),
    HumanMessage("Book it."),
    AIMessage("", tool_calls=[{"name": "book", "args": {"id": "SK 835"}, "id": "call-book"}]),
]
PAIRS = 500


class Talk(TypedDict):
    messages: Annotated[list[BaseMessage], DeltaChannel(_messages_delta_reducer)]


def said(number: int) -> list[AnyMessage]:
    """A question and its answer."""
    return [
        HumanMessage(f"Question {number}?"),
        AIMessage(f"It is **{number}**.\n\n- a\n- b\n\n```py\n{number}\n```"),
    ]


@pytest.fixture(scope="module", autouse=True)
def conversations(server: ConsoleServer) -> None:
    """Two conversations of LangGraph, and messages that report their tokens in part."""
    graph = StateGraph(MessagesState)
    graph.add_node("agent", lambda state: {})
    graph.add_edge(START, "agent")
    long = list(chain.from_iterable(map(said, range(PAIRS))))
    with TuskPointSaver(server.target) as saver, Client(server.target) as client:
        agent = graph.compile(checkpointer=saver)
        for thread_id, messages in (("travel", TRAVEL), ("long", long)):
            agent.invoke({"messages": messages}, {"configurable": {"thread_id": thread_id}})
        client.save(
            "dicts",
            {
                "messages": [
                    {"role": "user", "content": "hi"},
                    {
                        "role": "assistant",
                        "content": "hello",
                        "model": "m",
                        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
                    },
                    {"role": "assistant", "content": "bye"},
                ]
            },
        )


def opened(look: Look, thread_id: str) -> Locator:
    """Open the conversation of a thread's latest checkpoint."""
    look.open(f"/thread?id={thread_id}&tab=conversation")
    messages = look.page.get_by_role("log", name="Messages")
    messages.wait_for()
    return messages


def test_a_delta_channel_is_merged(look: Look, server: ConsoleServer) -> None:
    turns: list[list[BaseMessage]] = [
        [HumanMessage("Forget this.", id="1")],
        [RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage("Good day.", id="2")],
        [HumanMessage("Good evening.", id="2")],
    ]
    graph = StateGraph(Talk)
    graph.add_node("agent", lambda state: {"messages": AIMessage("Hello.", id="answer")})
    graph.add_edge(START, "agent")
    with TuskPointSaver(server.target) as saver:
        agent = graph.compile(checkpointer=saver)
        for turn in turns:
            agent.invoke({"messages": turn}, {"configurable": {"thread_id": "delta"}})
    articles = opened(look, "delta").get_by_role("article")
    expect(articles).to_contain_text(["Good evening.", "Hello."])
    expect(articles).to_have_count(2)
    expect(look.page.get_by_text("This channel is stored as writes")).to_be_visible()


def test_texts_are_formatted_and_their_source_is_one_click_away(look: Look) -> None:
    messages = opened(look, "travel")
    answer = messages.get_by_role("article").nth(3)
    expect(answer.get_by_role("cell", name="1,204")).to_be_visible()
    expect(answer.locator("strong", has_text="SK 835")).to_be_visible()
    expect(answer.get_by_role("checkbox").nth(0)).to_be_checked()
    expect(answer.get_by_role("checkbox").nth(1)).not_to_be_checked()
    link = answer.get_by_role("link", name="the fares")
    expect(link).to_have_attribute("href", "https://example.org/fares?a=1")
    expect(link).to_have_attribute("rel", "noreferrer noopener")
    expect(link).to_have_attribute("target", "_blank")
    expect(answer.get_by_role("link", name="Image: map")).to_be_visible()
    expect(answer).to_contain_text("<b>bold</b>")
    expect(messages.locator("img, h1, h2, h3, h4, h5, h6")).to_have_count(0)

    source = look.page.get_by_role("button", name="Source")
    source.click()
    expect(source).to_have_attribute("aria-pressed", "true")
    expect(answer).to_contain_text("The cheapest is **SK 835**, see [the fares]")
    expect(answer.get_by_role("table")).to_have_count(0)
    source.click()
    expect(answer.get_by_role("table")).to_be_visible()


def test_code_and_messages_are_copied_as_they_were_saved(look: Look) -> None:
    answer = opened(look, "travel").get_by_role("article").nth(3)
    copied = "navigator.clipboard.readText()"
    answer.get_by_role("button", name="Copy the code").click()
    expect(answer).to_contain_text("copied")
    assert look.page.evaluate(copied) == CODE
    answer.get_by_role("button", name="Copy the message").click()
    look.page.wait_for_function(f"{copied}.then((text) => text.startsWith('# Flights'))")
    assert look.page.evaluate(copied) == ANSWER


def test_each_call_of_a_tool_has_its_result(look: Look) -> None:
    messages = opened(look, "travel")
    # The three messages of tools are under their calls.
    expect(messages.get_by_role("article")).to_have_count(len(TRAVEL) - 3)
    search, profile, weather, book = messages.locator(".call").all()
    expect(search).to_contain_text("calls search")
    expect(search).to_contain_text("city: Paris")
    folded = search.get_by_role("button", name="result: {1}")
    expect(folded).to_have_attribute("aria-expanded", "false")
    folded.click()
    search.get_by_role("button", name="flights: [40]").click()
    search.get_by_role("button", name="39: {2}").click()
    expect(search).to_contain_text("id: SK 39")

    expect(profile).to_contain_text("trip 10")
    expect(profile).not_to_contain_text("trip 20")
    profile.get_by_role("button", name="Show more").click()
    expect(profile).to_contain_text("trip 499")

    expect(weather.get_by_text("failed", exact=True)).to_be_visible()
    expect(weather).to_contain_text("**no answer**")
    expect(search.get_by_text("failed", exact=True)).to_have_count(0)
    expect(book).to_contain_text("No result yet.")


def test_models_and_tokens_are_shown_where_they_are_reported(look: Look) -> None:
    messages = opened(look, "travel").get_by_role("article")
    expect(messages.nth(2)).to_contain_text("example-model · 1,200 in · 86 out")
    panel = look.page.get_by_role("region", name="Checkpoint", exact=True)
    expect(panel).to_contain_text(
        "9 messages · 4 tool calls · 3,500 tokens in, 598 out where messages report them"
    )
    messages = opened(look, "dicts").get_by_role("article")
    expect(messages.nth(1)).to_contain_text("m · 7 in · 2 out")
    expect(messages.nth(2)).not_to_contain_text("0 in")
    expect(panel).to_contain_text("3 messages · 7 tokens in, 2 out where messages report them")
    opened(look, "long")
    expect(panel).to_contain_text("1,000 messages")
    expect(panel).not_to_contain_text("token")


def test_the_newest_of_many_messages_are_in_sight(look: Look) -> None:
    messages = opened(look, "long")
    articles = messages.get_by_role("article")
    expect(articles).to_have_count(50)
    expect(articles.last).to_be_in_viewport()
    messages.get_by_role("button", name="Show 50 of 950 earlier").click()
    expect(articles).to_have_count(100)
    expect(articles.first).to_contain_text(f"Question {PAIRS - 50}?")
    expect(articles.first).not_to_be_in_viewport()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_conversation_is_accessible_and_fits(look_at: Looking, width: int, dark: bool) -> None:
    with look_at(width=width, dark=dark) as look:
        messages = opened(look, "travel")
        look.accessible(".checkpoint")
        look.fits()
        messages.get_by_role("article").nth(3).hover()
        look.accessible(".checkpoint")
        look.page.get_by_role("button", name="Source").click()
        look.accessible(".checkpoint")
        look.fits()
