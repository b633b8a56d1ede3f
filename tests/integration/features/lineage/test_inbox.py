"""Offers survive a killed server, and so do the calls that watch and adopt offers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.kit.servers.processes import ServerProcess
from tuskpoint import AsyncClient, PreconditionFailed

SECONDS = 60.0  # before a test gives up


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path) as process:
        process.start()
        yield process


def restart(server: ServerProcess) -> None:
    server.kill()
    server.start()


async def test_an_offer_of_a_killed_server_is_adopted_once(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client, asyncio.timeout(SECONDS):
        await client.save("t", {"draft": "tea"}, summary="It waits.")
        handed_off = await client.handoff("t", to_agent="writer ü", expires_in_s=3600)
        restart(server)
        [offer] = [offer async for offer in client.list_handoffs("writer ü")]
        assert (offer.handoff_id, offer.is_open) == (handed_off.handoff_id, True)
        assert offer.descriptor == handed_off
        calls = [
            asyncio.create_task(offer.adopt(f"run-{number}", request_id=f"worker {number}"))
            for number in range(4)
        ]
        await asyncio.wait(calls, timeout=0.05)
        await asyncio.to_thread(restart, server)  # the clients retry
        answers = await asyncio.gather(*calls, return_exceptions=True)
        [adoption] = [answer for answer in answers if not isinstance(answer, BaseException)]
        winner = answers.index(adoption)
        assert adoption.new_thread_id == f"run-{winner}"
        for answer in answers:
            if answer is not adoption:
                assert isinstance(answer, PreconditionFailed), answer
                assert answer.metadata["adopted_thread_id"] == adoption.new_thread_id
        # As a worker that was killed before it read the answer:
        again = await offer.adopt(f"run-{winner}", request_id=f"worker {winner}")
        assert again == adoption
        names = {thread.thread_id async for thread in client.threads()}
        assert names == {"t", adoption.new_thread_id}
        [closed] = [offer async for offer in client.list_handoffs(thread_id="t")]
        assert (closed.state, closed.adopted_thread_id) == ("adopted", adoption.new_thread_id)
        with pytest.raises(PreconditionFailed, match="was adopted as thread"):
            await offer.withdraw()
        await client.delete("t")  # and with the thread its offer
        assert await offer.adopt(f"run-{winner}", request_id=f"worker {winner}") == adoption
        assert adoption.signer == handed_off.signer != ""


async def test_a_watch_goes_on_with_the_next_server(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client, asyncio.timeout(SECONDS):
        await client.save("t", {"draft": "tea"})
        first = await client.handoff("t", to_agent="writer")
        watch = client.watch_handoffs("writer", states=("offered", "withdrawn"))
        async with aclosing(watch) as watched:
            assert (await anext(watched)).handoff_id == first.handoff_id
            for _ in range(2):
                await asyncio.to_thread(restart, server)
                new = await client.handoff("t", to_agent="writer")
                offer = await anext(watched)
                assert (offer.handoff_id, offer.state) == (new.handoff_id, "offered")
            await offer.withdraw()
            withdrawn = await anext(watched)
            assert (withdrawn.handoff_id, withdrawn.state) == (offer.handoff_id, "withdrawn")
            assert withdrawn.closed is not None
