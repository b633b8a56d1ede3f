"""The extras of the distributions, each tried alone in an empty environment."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.packages.archives import CLIENT, SERVER, DistError, Distribution
from tools.packages.trying import Environment

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
            "StateGraph(dict).add_sequence([print]).set_entry_point('print')"
            ".compile(checkpointer=TuskPointSaver(), store=TuskPointStore())",
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


def try_extras(distribution: Distribution, archives: Mapping[str, Path], folder: Path) -> None:
    """Install each extra of a distribution alone into a fresh environment, and use it there.

    Args:
        distribution: The distribution.
        archives: The archives of all distributions.
        folder: Folder of the environments, which are made one after another.

    Raises:
        DistError: A statement fails, or an extra cannot be installed.
    """
    others = [str(archives[CLIENT.name])] if distribution != CLIENT else []
    for extra, statements in STATEMENTS[distribution.name].items():
        if sys.version_info >= TOO_NEW.get(extra, (4,)):
            print(f"skipped: {distribution.name}[{extra}], which needs an older Python")
            continue
        environment = Environment(folder / extra)
        try:
            environment.install(*others, f"{archives[distribution.name]}[{extra}]")
            environment.run("python", "-I", "-c", "\n".join(statements))
        except DistError as error:
            raise DistError(
                f"{distribution.name}[{extra}] alone does not work:\n{error}"
            ) from error
        shutil.rmtree(environment.folder)
