"""Effects work through both clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.client.faces import Face
from tuskpoint import (
    AsyncClient,
    EffectInputChanged,
    EffectNotUnknown,
    EffectRefused,
    EffectUnknown,
    InvalidRequest,
    NotFound,
)
from tuskpoint._async.calls import AsyncCalls
from tuskpoint.effects import input_digest
from tuskpoint.v1.effect_service_pb2 import BeginEffectRequest
from tuskpoint_server.api.server.server import Server


@pytest.fixture(params=["sync", "async"])
async def face(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Face]:
    made = Face(request.param, f"127.0.0.1:{server.port}")
    yield made
    await made.aclose()


async def block(face: Face, work: Any, key: str, **options: Any) -> Any:
    """Enter the block of an effect, let `work` act on it, and return its result."""
    if face.kind == "async":
        async with face.aio.effect("t", key, **options) as run:
            outcome = work(run)
            if asyncio.iscoroutine(outcome):
                await outcome
        return run.result

    def blocking() -> Any:
        with face.sync.effect("t", key, **options) as run:
            work(run)
        return run.result

    return await asyncio.to_thread(blocking)


async def test_the_calls_record_what_happened(face: Face) -> None:
    digest = input_digest({"b": 1, "a": (2,)})
    assert digest == input_digest({"a": [2], "b": 1})
    begun = await face.call(
        *("begin_effect", "t", "a"), name="charge", input_digest=digest, owner="me", timeout_s=90
    )
    assert (begun.run, begun.state, begun.attempt, begun.owner) == (True, "running", 1, "me")
    assert begun.expires is not None
    assert begun.begun is not None
    assert (begun.expires - begun.begun).total_seconds() == 90
    assert not (await face.call("begin_effect", "t", "a")).run
    with pytest.raises(EffectInputChanged, match="was begun with another input"):
        await face.call("begin_effect", "t", "a", input_digest=b"other")
    report = {"idempotency_key": begun.idempotency_key}
    done = await face.call("complete_effect", "t", "a", **report, result={"id": [1]})
    assert (done.state, done.result) == ("done", {"id": [1]})
    again = await face.call("complete_effect", "t", "a", **report, result="another")
    assert again == done == await face.call("get_effect", "t", "a")
    assert (await face.call("get_effect", "t", "a", view="entry")).result is None
    with pytest.raises(NotFound, match="effect 'z' of thread 't' not found"):
        await face.call("get_effect", "t", "z")

    other = await face.call("begin_effect", "t", "b")
    report = {"idempotency_key": other.idempotency_key, "attempt": 1}
    failed = await face.call("fail_effect", "t", "b", **report, outcome="unknown", error="x" * 9999)
    assert (failed.state, len(failed.error)) == ("unknown", 1024)
    assert [effect.key for effect in await face.take("list_effects", 9, "t")] == ["b", "a"]
    assert [effect.key for effect in await face.take("list_effects", 9, "t", states="done")] == [
        "a"
    ]
    decided = await face.call("resolve_effect", "t", "b", attempt=1, done=False, resolved_by="eve")
    assert (decided.state, decided.retryable, decided.resolved_by) == ("failed", True, "eve")
    with pytest.raises(EffectNotUnknown, match="cannot be decided"):
        await face.call("resolve_effect", "t", "b", attempt=1, done=True)
    for problem, call in (
        ("work that was not done", ("resolve_effect", {"attempt": 1, "done": False, "result": 1})),
        ("states", ("list_effects", {"states": ["lost"]})),
        ("timeout_s", ("begin_effect", {"timeout_s": 0.5})),
        ("on_unknown", ("begin_effect", {"on_unknown": "maybe"})),
    ):
        name, named = call
        call_of = face.take(name, 1, "t", **named) if name == "list_effects" else None
        with pytest.raises(InvalidRequest, match=problem):
            await (call_of or face.call(name, "t", "b", **named))


async def test_a_block_does_the_work_once_and_reports_what_it_knows(face: Face) -> None:
    assert await block(face, lambda run: run.complete(b"paid"), "a", input={"x": 1}) == b"paid"
    assert await block(face, lambda run: None, "a", input={"x": 1}) == b"paid"
    with pytest.raises(EffectInputChanged):
        await block(face, lambda run: None, "a", input={"x": 2})
    with pytest.raises(EffectRefused, match="was refused: no money") as refused:
        await block(face, lambda run: run.refused("no money"), "b")
    assert refused.value.effect.state == "failed"
    with pytest.raises(InvalidRequest, match="result"):
        await block(face, lambda run: run.complete(object()), "c")
    with pytest.raises(EffectUnknown, match="the work was done, but its result was not recorded"):
        await block(face, lambda run: run.complete(1), "c")
    with pytest.raises(ZeroDivisionError):
        await block(face, lambda run: 1 // 0, "d")
    with pytest.raises(EffectUnknown, match=r"ZeroDivisionError"):
        await block(face, lambda run: run.complete(1), "d")
    assert await block(face, lambda run: run.complete(run.attempt), "d", on_unknown="retry") == 2


@pytest.mark.parametrize("arrived", [True, False], ids=["answer-lost", "request-lost"])
async def test_a_cancelled_begin_leaves_no_attempt_that_runs(
    server: Server, monkeypatch: pytest.MonkeyPatch, arrived: bool
) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        asked, begin = asyncio.Event(), AsyncCalls.begin_effect

        async def without_answer(calls: AsyncCalls, request: BeginEffectRequest) -> None:
            monkeypatch.undo()
            if arrived:
                assert (await begin(calls, request)).run
            asked.set()
            await asyncio.Event().wait()

        async def do() -> None:
            async with client.effect("t", "charge", timeout_s=3600):
                raise AssertionError("the block was entered")

        monkeypatch.setattr(AsyncCalls, "begin_effect", without_answer)
        task = asyncio.create_task(do())
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        effect = await client.get_effect("t", "charge")
        assert (effect.state, effect.retryable, effect.attempt) == ("failed", True, 1)
        assert "was interrupted" in effect.error
        async with client.effect("t", "charge") as again:
            assert (again.pending, again.attempt) == (True, 2)
            await again.complete("receipt")
