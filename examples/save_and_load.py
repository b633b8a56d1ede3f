"""The smallest program: save the state of an agent, and load it in any process.

    tuskpoint-server &
    python examples/save_and_load.py

Each run adds a checkpoint to the thread.
"""

from tuskpoint import Client


def main() -> None:
    """Save a plan, load it, and list the thread."""
    with Client() as client:  # what TUSKPOINT_TARGET says, else 127.0.0.1:7390
        client.save("first-steps", {"plan": ["read", "write"]}, summary="Planned.")
        record = client.load("first-steps")
        print(record.state["plan"], "as", record.checkpoint_id)
        for entry in client.list("first-steps", limit=10):
            print(entry.checkpoint_id, entry.summary)


if __name__ == "__main__":
    main()
