"""What a server loads before it serves: nothing that only a setting needs."""

import json
import subprocess
import sys
from pathlib import Path

HEAVY = {
    "connectrpc": "speaks Connect and gRPC-Web",
    "google.protobuf.json_format": "reads and writes JSON",
    "grpc_reflection.v1alpha": "describes the services to programs that do not have the contract",
    "httpx": "calls Walrus, an embedder or MemWal",
    "jwt": "signs the tokens that a publisher asks for",
    "langchain_core": "is an agent's",
    "langgraph": "is an agent's",
    "memwal": "calls MemWal",
    "numpy": "compares vectors",
    "opentelemetry.sdk": "exports telemetry",
    "protobuf": "is what connectrpc makes errors of",
    "rich": "is a terminal's",
    "starlette": "serves HTTP",
    "tuskpoint_server.api.web": "serves HTTP",
    "uvicorn": "serves HTTP",
}
"""Libraries that take long to load, and what each is for."""

SERVE = """
import asyncio, json, pathlib, sys
from tuskpoint_server.commands.serve import running_server
from tuskpoint_server.config.settings import Config

async def serve():
    config = Config(listen="127.0.0.1:0", data_dir=pathlib.Path(sys.argv[1]))
    async with running_server(config):
        print(json.dumps(list(sys.modules)))

asyncio.run(serve())
"""


def loaded(*arguments: str) -> set[str]:
    """Run a program in an interpreter of its own; return the heavy modules that it loaded."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    return HEAVY.keys() & set(json.loads(done.stdout.splitlines()[-1]))


def test_a_server_that_serves_has_loaded_nothing_that_only_a_setting_needs(tmp_path: Path) -> None:
    loaded("-c", SERVE, str(tmp_path))  # makes the tables
    assert loaded("-c", SERVE, str(tmp_path)) == set()


def test_the_list_of_loaded_modules_names_an_imported_one() -> None:
    program = "import json, sys, numpy; print(json.dumps(list(sys.modules)))"
    assert "numpy" in loaded("-c", program)
