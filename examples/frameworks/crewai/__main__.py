"""A flow of CrewAI that is killed, continues in another process, and waits there for a person.

    make example NAME=crewai

No step asks a model, so no key is needed. The first process dies in the middle of a step. The
second one has only the ID of the flow.
"""

import os
import signal
import subprocess
import sys
from typing import Any

# CrewAI sends telemetry unless it is told not to before its import.
os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"
os.environ["CREWAI_TRACING_ENABLED"] = "false"
os.environ["OTEL_SDK_DISABLED"] = "true"

from crewai.flow.async_feedback import HumanFeedbackPending, PendingFeedbackContext
from crewai.flow.flow import Flow, listen, start
from crewai.flow.human_feedback import human_feedback
from crewai.flow.persistence import persist
from pydantic import BaseModel

from tuskpoint import Client
from tuskpoint.frameworks.crewai import TuskPointFlowPersistence

FLOW = "refund-a-17"
DIES = "--die" in sys.argv


class Refund(BaseModel):
    """What the flow has done so far."""

    id: str = ""
    price: int = 0
    offer: str = ""


class Desk:
    """Asks a person, who answers later."""

    def request_feedback(self, context: PendingFeedbackContext, flow: Flow[Any]) -> str:
        """Leave the question; CrewAI saves it and ends the run."""
        raise HumanFeedbackPending(context=context)


@persist(TuskPointFlowPersistence())
class RefundFlow(Flow[Refund]):
    """Look a price up, make an offer that a person approves, and pay."""

    @start()
    def look_up(self) -> None:
        """Look the price up, unless an earlier run did."""
        if self.state.price:
            print(f"look_up: the price {self.state.price} is known", flush=True)
            return
        self.state.price = 40
        print(f"look_up: the price is {self.state.price}", flush=True)

    @listen(look_up)
    @human_feedback(message="Pay this?", provider=Desk())
    def offer(self) -> str:
        """Make the offer."""
        if DIES:
            print("offer: the process dies", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        offer = f"{self.state.price} euros back"
        self.state.offer = offer
        return offer

    @listen(offer)
    def pay(self, answer: Any) -> str:
        """Do as the person says."""
        return f"{self.state.offer}: {answer.feedback}"


def main() -> None:
    """Run the flow in a process that dies, then here."""
    if DIES:
        RefundFlow(suppress_flow_events=True).kickoff(inputs={"id": FLOW})
        return
    print("first process")
    first = subprocess.run([sys.executable, *sys.argv, "--die"], check=False)
    print("second process, because the first ended with", first.returncode)
    result = RefundFlow(suppress_flow_events=True).kickoff(inputs={"id": FLOW})
    assert isinstance(result, HumanFeedbackPending)
    print("the flow waits:", result.context.message, result.context.method_output)

    # A person answers; this could be days later, in a third process.
    persistence = TuskPointFlowPersistence()
    flow = RefundFlow.from_pending(FLOW, persistence, suppress_flow_events=True)
    print("the flow ends:", flow.resume("yes, pay"))
    with Client() as client:
        for checkpoint in client.history(FLOW):
            print(checkpoint.checkpoint_id, checkpoint.summary)


if __name__ == "__main__":
    main()
