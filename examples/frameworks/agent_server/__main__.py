"""An Agent Server that is killed while a person thinks, and another one that continues.

    make example NAME=agent_server

Both are `langgraph dev`, each in a folder of its own, as if on two machines. They share a server of
TuskPoint and nothing else.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import httpx
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from tuskpoint import Client

OFFLINE = {
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGGRAPH_NO_VERSION_CHECK": "1",
    "LANGSMITH_TRACING": "false",
}


@contextmanager
def agent_server() -> Iterator[SyncLangGraphClient]:
    """Run `langgraph dev` in a copy of this folder; yield a client; kill it at the end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("langgraph")
    options = ("--no-browser", "--no-reload", "--host", "127.0.0.1", "--port", str(port))
    with TemporaryDirectory() as folder:
        project = copytree(Path(__file__).parent, Path(folder) / "project")
        process = subprocess.Popen(
            [program, "dev", *options],
            cwd=project,
            env={**os.environ, **OFFLINE},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        url = f"http://127.0.0.1:{port}"
        try:
            while not answers(url):
                if process.poll() is not None:
                    sys.exit("the Agent Server did not start: run `langgraph dev` to see why")
                time.sleep(0.1)
            with get_sync_client(url=url) as server:
                yield server
        finally:
            process.kill()
            process.wait()


def answers(url: str) -> bool:
    """Whether the Agent Server is ready."""
    try:
        return httpx.get(f"{url}/ok", trust_env=False).is_success
    except httpx.TransportError:
        return False


def main() -> None:
    """Ask one Agent Server, and approve on another."""
    thread_id = str(uuid4())
    question: dict[str, Any] = {"said": ["The kettle leaks."]}
    with agent_server() as server:
        server.threads.create(thread_id=thread_id)
        state: Any = server.runs.wait(thread_id, "clerk", input=question)
        print("first Agent Server: waits for", state["__interrupt__"][0]["value"])
    print("it was killed")
    with agent_server() as server:
        server.threads.create(thread_id=thread_id, if_exists="do_nothing")
        state = server.runs.wait(thread_id, "clerk", command={"resume": "Ada"})
        print("second Agent Server:", *state["said"], sep="\n    ")
    with Client() as client:
        print("the thread in TuskPoint:")
        for checkpoint in client.history(thread_id):
            print("   ", checkpoint.checkpoint_id, checkpoint.summary)


if __name__ == "__main__":
    main()
