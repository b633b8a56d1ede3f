"""LangGraph's own conformance suite, run against a real server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import CapabilityResult

from bench.agents import Saver
from bench.report import Table
from bench.running.servers import running_tuskpoint
from tuskpoint import TuskPointSaver


async def conformance_table(folder: Path) -> tuple[Table, list[str]]:
    """Run the suite; return its results by capability, and the tests that failed."""
    with running_tuskpoint(folder) as server:

        @checkpointer_test(name="TuskPointSaver")
        async def open_saver() -> AsyncGenerator[Saver, None]:
            async with TuskPointSaver(server.target) as saver:
                yield saver

        report = await validate(open_saver)
    rows = [[name, *_cells(result)] for name, result in sorted(report.results.items())]
    passed = sum(result.tests_passed for result in report.results.values())
    total = passed + sum(result.tests_failed for result in report.results.values())
    rows.append(["all", str(passed), str(total)])
    failures = [
        f"conformance, {name}: {failure}"
        for name, result in report.results.items()
        for failure in result.failures or ([] if result.detected else ["not detected"])
    ]
    note = "A capability counts as detected if the saver's class overrides the method."
    title = "Conformance to LangGraph's checkpointer contract"
    return Table(title, ("capability", "passed", "of"), rows, [note]), failures


def _cells(result: CapabilityResult) -> list[str]:
    if not result.detected:
        return ["not detected", "-"]
    return [str(result.tests_passed), str(result.tests_passed + result.tests_failed)]
