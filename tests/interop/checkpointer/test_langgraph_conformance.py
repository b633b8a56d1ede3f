"""The saver passes every capability of LangGraph's own conformance suite."""

from collections.abc import AsyncIterator

from langgraph.checkpoint.conformance import checkpointer_test, validate

from tuskpoint.langgraph import TuskPointSaver

TESTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


async def test_every_capability_is_detected_and_every_test_passes(server_target: str) -> None:
    async def savers() -> AsyncIterator[TuskPointSaver]:
        async with TuskPointSaver(server_target) as saver:
            yield saver

    report = await validate(checkpointer_test(name="TuskPointSaver")(savers))

    report.print_report()
    for name, result in report.results.items():
        print(f"{name:16} {result.tests_passed:3} passed {result.tests_failed:3} failed")
    assert {name: result.failures for name, result in report.results.items()} == {
        name: [] for name in TESTS
    }
    assert all(result.detected for result in report.results.values())
    assert not any(result.tests_skipped for result in report.results.values())
    assert {name: result.tests_passed for name, result in report.results.items()} == TESTS
    assert report.conformance_level() == "FULL"
