"""The leader posts the events of every server, and the next leader continues after its death."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from aiohttp import web

from tests.kit.servers.webhook_receiver import receiving
from tests.many.fleet import running_fleet
from tuskpoint.aio import AsyncClient

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]


def webhook_file(folder: Path, url: str) -> Path:
    """Write a file with one webhook."""
    (folder / "ops.secret").write_text("whsec_" + base64.b64encode(bytes(32)).decode())
    file = folder / "webhooks.toml"
    file.write_text(
        f'[[webhook]]\nname = "ops"\nurl = "{url}"\nevents = ["lease.taken_over"]\n'
        'secret_file = "ops.secret"\nallow_private = true\n'
    )
    return file


async def test_the_next_leader_posts_what_the_killed_leader_did_not_record(tmp_path: Path) -> None:
    async with receiving() as receiver:
        file = webhook_file(tmp_path, receiver.url)
        with running_fleet(tmp_path, {"TUSKPOINT_WEBHOOKS": str(file)}) as fleet:
            leader, *others = fleet.servers

            def answer(number: int) -> web.Response:
                if number == 0:
                    leader.kill()  # before the answer, so it records nothing
                return web.Response()

            receiver.answer = answer
            async with AsyncClient(others[0].target) as client:
                for owner in ("one", "two"):
                    await client.acquire_lease("t", owner=owner, on_busy="take_over")
            await receiver.wait_for(2)
            async with AsyncClient(others[-1].target) as client:
                await client.acquire_lease("t", owner="three", on_busy="take_over")
                await receiver.wait_for(3)
                while (await client.webhooks())[0].waiting:  # the time limit ends this loop
                    pass
            first, again, *later = receiver.posts
            assert first.message_id == again.message_id
            assert [post.message_id for post in later] != [first.message_id]
            owners = [post.content["data"]["lease"]["owner"] for post in receiver.posts]
            assert owners == ["two", "two", "three"]
