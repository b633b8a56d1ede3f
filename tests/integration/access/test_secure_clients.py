"""The Python clients work with a server process that uses TLS and tokens."""

from __future__ import annotations

import asyncio
import copy
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from tests.integration.access.tls_kit import (
    SecureServer,
    running_secure_server,
    write_certificates,
    write_tokens,
)
from tests.unit.client.faces import Face
from tuskpoint import (
    BackgroundSaver,
    Client,
    PermissionDenied,
    ThreadEvent,
    TuskPointSaver,
    Unauthenticated,
)
from tuskpoint_server.auth import access
from tuskpoint_server.commands import serve
from tuskpoint_server.commands.token import new_token
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.credentials import Grant, Scope

LARGE = "x" * (5 * 2**20)
WAIT_S = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    with running_secure_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_state_of_any_size_goes_both_ways(server: SecureServer, kind: str) -> None:
    face = Face(kind, server.target, ca_file=server.ca_file, token=server.tokens["writer"])
    thread_id = f"large-{kind}"
    first = await face.call("save", thread_id, {"plan": "small"})
    await face.call("save", thread_id, {"plan": "small", "notes": LARGE})
    assert (await face.call("load", thread_id)).state["notes"] == LARGE
    assert len(await face.take("replay", 2, thread_id)) == 2
    (event,) = await face.take("watch", 1, thread_id)
    assert event.checkpoint.checkpoint_id == first
    await face.call("flush")
    assert (await face.call("load", thread_id, source="blob")).state["notes"] == LARGE
    await face.aclose()


async def test_a_saver_and_its_copies_save_both_ways(server: SecureServer) -> None:
    config: Any = {"configurable": {"thread_id": "saver", "checkpoint_ns": ""}}
    token = server.tokens["writer"]
    async with TuskPointSaver(server.target, ca_file=server.ca_file, token=token) as saver:
        first, other = empty_checkpoint(), empty_checkpoint()
        await asyncio.to_thread(saver.put, config, first, {}, {})
        await copy.copy(saver).aput(config, other, {}, {})
        ids = {checkpoint.checkpoint["id"] async for checkpoint in saver.alist(config)}
    assert ids == {first["id"], other["id"]}


async def test_steps_are_saved_in_the_background(server: SecureServer) -> None:
    credentials: Any = {"ca_file": server.ca_file, "token": server.tokens["writer"]}
    async with BackgroundSaver(server.target, **credentials) as saver:
        saver.handle_agent_step({"thread_id": "background", "step": 1, "state": {"n": 1}})
    with Client(server.target, **credentials) as client:
        assert (await asyncio.to_thread(client.load, "background")).state == {"n": 1}


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_call_that_a_token_does_not_allow_is_refused(
    server: SecureServer, kind: str
) -> None:
    reader = Face(kind, server.target, ca_file=server.ca_file, token=server.tokens["reader"])
    for state in ({"plan": 1}, {"plan": LARGE}):  # in one message, and on a stream
        with pytest.raises(PermissionDenied) as caught:
            await reader.call("save", "t", state, parent="")
        assert (caught.value.scope, caught.value.reason) == ("write", "SCOPE_MISSING")
    assert "'write'" in caught.value.message
    await reader.aclose()
    for token in (server.tokens["unknown"], None):
        stranger = Face(kind, server.target, ca_file=server.ca_file, token=token)
        with pytest.raises(Unauthenticated, match="TUSKPOINT_TOKEN") as refused:
            await stranger.call("save", "t", {"plan": 1})
        assert refused.value.reason == "CREDENTIAL_INVALID"
        assert str(token) not in str(refused.value)
        await stranger.aclose()


async def test_a_watch_outlives_the_token_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "LOOK_SECONDS", 0.01)
    made, known, held = write_certificates(tmp_path), tmp_path / "tokens.toml", tmp_path / "token"
    replace_file(held, write_tokens(known)["writer"])
    monkeypatch.setenv("TUSKPOINT_TOKEN_FILE", str(held))
    config = Config(
        listen="127.0.0.1:0",
        data_dir=tmp_path / "data",
        tls_cert=made.cert,
        tls_key=made.key,
        tokens=known,
    )
    async with serve.running_server(config) as running:
        target = f"localhost:{running.port}"
        seen = await asyncio.to_thread(seen_over_a_rotation, target, made.ca, known, held)
    assert [event.checkpoint.state for event in seen if event.checkpoint] == [{"n": 1}, {"n": 2}]


def seen_over_a_rotation(target: str, ca: Path, known: Path, held: Path) -> list[ThreadEvent]:
    """Watch while a new token is added, then used, and then the old token is revoked."""
    writer, begun = held.read_text(), threading.Event()
    with (
        ThreadPoolExecutor() as pool,
        Client(target, ca_file=ca) as client,
        Client(target, ca_file=ca, token=writer) as old,
    ):

        def watch() -> list[ThreadEvent]:
            with closing(client.watch("t", kinds=["checkpoint_saved"])) as events:
                first = next(events)
                begun.set()
                return [first, next(events)]

        client.save("t", {"n": 1})
        watching = pool.submit(watch)
        assert begun.wait(WAIT_S)
        token, entry = new_token(Grant("next", "default", frozenset(Scope)))
        replace_file(known, f"{known.read_text()}\n{entry}")
        with Client(target, ca_file=ca, token=token) as ready:
            until(lambda: is_known(ready))
        replace_file(held, token)
        replace_file(known, entry)
        until(lambda: not is_known(old))
        client.save("t", {"n": 2})
        return watching.result(WAIT_S)


def replace_file(path: Path, text: str) -> None:
    """Replace a file in one step."""
    beside = path.with_name(f"{path.name}.next")
    beside.write_text(text)
    os.replace(beside, path)


def is_known(client: Client) -> bool:
    """Return whether the server admits a client."""
    try:
        client.info()
    except Unauthenticated:
        return False
    return True


def until(condition: Any) -> None:
    """Wait for a condition: the server reads its files again from time to time."""
    pause = threading.Event()
    for _ in range(WAIT_S * 20):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError("the server did not read its token file again")
