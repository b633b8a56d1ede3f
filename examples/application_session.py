"""An application with an agent that continues where it stopped, or after an earlier input.

    tuskpoint-server &
    python examples/application_session.py "buy milk" "call Ann"
    python examples/application_session.py "water the plants"
    python examples/application_session.py --from "buy milk" "buy tea"

Each run is a new process. The last run starts the agent in a thread of its own, from the
checkpoint after the first input.
"""

import argparse
import sys
from typing import Any

from tuskpoint import ApplicationSession, BackgroundSaver, Client, NotFound
from tuskpoint.applications import input_label

THREAD = "notes"


def handle(message: str, thread_id: str, client: Client, saver: BackgroundSaver) -> None:
    """Handle an input in two steps; a real agent would call a model here."""
    try:
        state: dict[str, Any] = client.load(thread_id).state
    except NotFound:
        state = {"step": 0, "notes": []}
    for change in ({"reading": message}, {"reading": "", "notes": [*state["notes"], message]}):
        state |= change | {"step": state["step"] + 1}
        # Returns at once; the end of the input waits for the server.
        saver.handle_agent_step({"thread_id": thread_id, "step": state["step"], "state": state})


def launch_from(message: str, client: Client) -> str:
    """Create a thread from the checkpoint after an input; return the thread's ID."""
    record = next(client.list(THREAD, label=input_label(message), limit=1), None)
    if record is None:
        sys.exit(f"no checkpoint is labelled '{message}'")
    return client.fork(THREAD, record.checkpoint_id).new_thread_id


def main() -> None:
    """Handle the inputs of the command line and show the thread's state."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--from", dest="origin", help="continue after this earlier input")
    parser.add_argument("inputs", nargs="+")
    arguments = parser.parse_args()
    with (
        Client() as client,
        BackgroundSaver() as saver,
        ApplicationSession(client, session_id=THREAD, threads=[THREAD], background=saver) as app,
    ):
        app.restore_latest()
        thread_id = launch_from(arguments.origin, client) if arguments.origin else THREAD
        for message in arguments.inputs:
            handle(message, thread_id, client, saver)
            app.input_handled(thread_id, message)
        for checkpoint in client.history(thread_id):
            print(checkpoint.checkpoint_id, checkpoint.label)
        print("notes:")
        print("\n".join(client.load(thread_id).state["notes"]))


if __name__ == "__main__":
    main()
