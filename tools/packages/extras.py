"""The extras of the distributions, each tried alone in an empty environment."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.packages.archives import CLIENT, EMULATORS, ROOT, SERVER, DistError
from tools.packages.installs import Install, InstallError, installed, lines
from tools.packages.trying import Environment
from tools.pages import markdown

# An extra and the statements that work with it. Those that begin with "from tuskpoint" and have no
# private module are in the pages.
STATEMENTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    CLIENT.name: {
        "agent-framework": (
            "from tuskpoint.frameworks.agent_framework import TuskPointCheckpointStorage",
            "from tuskpoint.frameworks.agent_framework import TuskPointHistoryProvider",
        ),
        "claude-agent-sdk": (
            "from tuskpoint.frameworks.claude_agent_sdk import TuskPointSessionStore",
        ),
        "cli": ("import tuskpoint.cli.app, tuskpoint.audit",),
        "crewai": (
            "from tuskpoint.frameworks.crewai import TuskPointFlowPersistence",
            "from tuskpoint.frameworks.crewai import TuskPointProvider",
        ),
        "google-adk": ("from tuskpoint.frameworks.google_adk import TuskPointSessionService",),
        "import-postgres": (
            "import tuskpoint.cli.app, tuskpoint.transfer.postgres",
            "import langgraph.checkpoint.postgres, tuskpoint.transfer.comparing",
        ),
        "import-redis": (
            "import tuskpoint.cli.app, tuskpoint.transfer.redis, tuskpoint.transfer.comparing",
        ),
        "import-sqlite": (
            "import tuskpoint.cli.app, tuskpoint.transfer.sqlite",
            "import langgraph.checkpoint.sqlite, tuskpoint.transfer.comparing",
        ),
        "langgraph": (
            "from langgraph.graph import StateGraph",
            "from tuskpoint import TuskPointSaver, TuskPointStore",
            "from tuskpoint import TuskPointCache",
            "StateGraph(dict).add_sequence([print]).set_entry_point('print')"
            ".compile(checkpointer=TuskPointSaver(), store=TuskPointStore(),"
            " cache=TuskPointCache())",
        ),
        "mcp": ("import tuskpoint.cli.app, tuskpoint.mcp.server, tuskpoint.mcp.http",),
        "objects": ("import tuskpoint.audit.objects",),
        "openai-agents": ("from tuskpoint.frameworks.openai_agents import TuskPointSession",),
        "otel": ("import opentelemetry.trace", "from tuskpoint import Client"),
        "pydantic-ai": ("from tuskpoint.frameworks.pydantic_ai import TuskPointConversationStore",),
    },
    SERVER.name: {
        "age": ("import pyrage",),
        "embedder": ("import fastembed, tuskpoint_server.search.embedders.local",),
        "http": ("import tuskpoint_server.api.web.listener, tuskpoint_server.api.web.connect",),
        "kms": ("import tuskpoint_server.keys.aws",),
        "memwal": ("import memwal, tuskpoint_server.search.memwal.relayer",),
        "objects": ("import tuskpoint_server.blobs.objects.store",),
        "otlp": (
            "import opentelemetry.exporter.otlp.proto.grpc.metric_exporter",
            "import opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
        ),
        "postgres": ("import tuskpoint_server.journal.sql.postgres",),
        "prometheus": ("import opentelemetry.exporter.prometheus, prometheus_client",),
        "vault": ("import tuskpoint_server.keys.vault",),
    },
}

# Why an extra cannot be installed with some releases of Python.
TOO_NEW = {"crewai": (3, 14)}


ALONE: Mapping[str, tuple[str, ...]] = {
    CLIENT.name: ("from tuskpoint import AsyncClient, Client",),
    EMULATORS.name: ("import tuskpoint_emulators.walrus.program",),
    SERVER.name: ("import tuskpoint_server.commands.serve",),
}
"""Statements that work with a distribution that is installed without an extra."""


def combinations(root: Path = ROOT) -> dict[tuple[Install, ...], str]:
    """Return what is tried together: each extra alone, and each line of pip on a page.

    Returns:
        The distributions with their extras, and where they come from.

    Raises:
        InstallError: A page installs something that is not there.
    """
    client: Install = (CLIENT.name, ())
    found: dict[tuple[Install, ...], str] = {}
    for extra in STATEMENTS[CLIENT.name]:
        found[((CLIENT.name, (extra,)),)] = f"the extra {extra}"
    for extra in STATEMENTS[SERVER.name]:
        found[client, (SERVER.name, (extra,))] = f"the extra {extra}"
    for page in markdown.pages(root):
        name = page.relative_to(root).as_posix()
        for line in lines(page.read_text("utf-8")):
            try:
                installs = {*installed(line)}
            except InstallError as error:
                raise InstallError(f"{name}: {error}") from None
            if {SERVER.name} == {distribution for distribution, _ in installs}:
                installs.add(client)  # the server requires the client
            if installs:
                found.setdefault(tuple(sorted(installs)), name)
    return found


def try_combinations(archives: Mapping[str, Path], folder: Path) -> None:
    """Install each combination into a fresh environment, and use its extras there.

    Args:
        archives: The archives of all distributions.
        folder: Folder of the environments, which are made one after another.

    Raises:
        DistError: A statement fails, or a combination cannot be installed.
    """
    for number, (installs, origin) in enumerate(combinations().items()):
        pairs = [(name, extra) for name, extras in installs for extra in extras]
        if any(sys.version_info >= TOO_NEW.get(extra, (4,)) for _, extra in pairs):
            print(f"skipped: {origin}, which needs an older Python")
            continue
        statements = [
            *(statement for name, _ in installs for statement in ALONE[name]),
            *(statement for name, extra in pairs for statement in STATEMENTS[name][extra]),
        ]
        environment = Environment(folder / str(number))
        try:
            environment.install(*(_requirement(archives, *install) for install in installs))
            environment.run("python", "-I", "-c", "\n".join(statements))
        except DistError as error:
            raise DistError(f"what {origin} installs does not work:\n{error}") from error
        shutil.rmtree(environment.folder)


def _requirement(archives: Mapping[str, Path], name: str, extras: tuple[str, ...]) -> str:
    return f"{archives[name]}[{','.join(extras)}]" if extras else str(archives[name])
