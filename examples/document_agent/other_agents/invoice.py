"""An agent that pays invoices: read, match, payment. The payment, a subgraph, fails."""

import time
from typing import TypedDict
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph

from tuskpoint import TuskPointSaver

AGENT = "accounts"
INVOICE = "Invoice 4711\nBrass lamp oil, 40 l   1,240.00\nWicks, 200          600.00\n"
ORDERED = {"Brass lamp oil, 40 l": 1240.0, "Wicks, 200": 600.0}


class PaymentRefused(Exception):
    """The bank did not execute a transfer."""


class Invoice(TypedDict, total=False):
    """The state of the agent."""

    text: str
    lines: dict[str, float]
    total: float
    differences: list[str]
    reservation: str
    receipt: str


def read(state: Invoice) -> Invoice:
    """Read the lines of the invoice."""
    time.sleep(0.12)
    lines = [line.rpartition(" ") for line in state["text"].splitlines()[1:]]
    return {"lines": {name.strip(): float(amount.replace(",", "")) for name, _, amount in lines}}


def match(state: Invoice) -> Invoice:
    """Compare the invoice with the order."""
    time.sleep(0.25)
    names = state["lines"].keys() | ORDERED.keys()
    differences = [name for name in names if state["lines"].get(name) != ORDERED.get(name)]
    return {"differences": sorted(differences), "total": sum(state["lines"].values())}


def reserve(state: Invoice) -> Invoice:
    """Reserve the amount in the budget."""
    time.sleep(0.1)
    return {"reservation": f"{state['total']:,.2f} EUR of the budget for materials"}


def transfer(state: Invoice) -> Invoice:
    """Ask the bank to transfer the amount, which fails."""
    time.sleep(0.3)
    raise PaymentRefused(
        f"the bank refused the transfer of {state['total']:,.2f} EUR for invoice 4711: "
        "the supplier's account is closed; ask the supplier for another account"
    )


def run(target: str, thread: str) -> None:
    """Leave a thread that failed."""
    payment = StateGraph(Invoice).add_sequence([reserve, transfer]).add_edge(START, "reserve")
    graph = StateGraph(Invoice).add_node(read).add_node(match)
    graph.add_node("payment", payment.compile())
    graph.add_edge(START, "read").add_edge("read", "match").add_edge("match", "payment")
    config: RunnableConfig = {
        "configurable": {"thread_id": thread},
        "metadata": {"run_id": str(uuid4())},
    }
    with TuskPointSaver(target, agent_id=AGENT) as saver:
        try:
            graph.compile(checkpointer=saver).invoke({"text": INVOICE}, config, durability="sync")
        except PaymentRefused:
            return
    raise AssertionError("the payment did not fail")
