"""A server loads no module at its start that only a setting needs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
"""Libraries that load slowly, and the purpose of each."""

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
    """Run a program in a new interpreter; return the heavy modules that it loaded."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    return HEAVY.keys() & set(json.loads(done.stdout.splitlines()[-1]))


def test_a_server_that_serves_has_loaded_nothing_that_only_a_setting_needs(tmp_path: Path) -> None:
    loaded("-c", SERVE, str(tmp_path))  # the first start creates the tables
    assert loaded("-c", SERVE, str(tmp_path)) == set()


def test_the_list_of_loaded_modules_names_an_imported_one() -> None:
    program = "import json, sys, numpy; print(json.dumps(list(sys.modules)))"
    assert "numpy" in loaded("-c", program)


@pytest.mark.parametrize("arguments", [["--help"], ["token", "--help"], ["--version"]])
def test_help_is_shown_without_the_server(arguments: list[str]) -> None:
    program = (
        "import contextlib, json, sys\n"
        "from tuskpoint_server.__main__ import main\n"
        f"with contextlib.suppress(SystemExit): main({arguments})\n"
        "print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *shown, modules = done.stdout.splitlines()
    assert shown
    assert not {"grpc", "tuskpoint_server.commands.serve"} & set(json.loads(modules))


def test_an_interrupt_while_the_server_loads_ends_it_without_a_traceback() -> None:
    program = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'tuskpoint_server.commands.serve':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from tuskpoint_server.__main__ import main\n"
        "sys.exit(main([]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
