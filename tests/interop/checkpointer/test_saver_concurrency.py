"""One saver serves many threads and event loops."""

import asyncio
import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from tuskpoint.errors import TuskPointError
from tuskpoint.langgraph import TuskPointSaver

from ..saver_arguments import at, id_of, made, metadata

STEPS = 5


def run_thread(saver: BaseCheckpointSaver[str], thread_id: str) -> list[str]:
    """Save a line of checkpoints with sync methods and return their IDs, newest first."""
    config = at(thread_id)
    saved = []
    for step in range(STEPS):
        version: ChannelVersions = {"x": step}
        config = saver.put(config, made({"x": step}, version), metadata(step), version)
        saver.put_writes(config, [("x", step)], "task")
        loaded = saver.get_tuple(at(thread_id))
        assert loaded is not None
        assert loaded.config == config
        saved.append(id_of(config))
    return saved[::-1]


async def arun_thread(saver: BaseCheckpointSaver[str], thread_id: str) -> list[str]:
    """Save a line of checkpoints with async methods and return their IDs, newest first."""
    config = at(thread_id)
    saved = []
    for step in range(STEPS):
        version: ChannelVersions = {"x": step}
        config = await saver.aput(config, made({"x": step}, version), metadata(step), version)
        await saver.aput_writes(config, [("x", step)], "task")
        loaded = await saver.aget_tuple(at(thread_id))
        assert loaded is not None
        assert loaded.config == config
        saved.append(id_of(config))
    return saved[::-1]


def test_many_threads_share_a_saver(server_target: str, thread_id: str) -> None:
    names = [f"{thread_id} {number}" for number in range(32)]
    with TuskPointSaver(server_target) as saver, ThreadPoolExecutor(16) as pool:
        saved = dict(zip(names, pool.map(lambda name: run_thread(saver, name), names), strict=True))
        for name in names:
            entries = [*saver.list(at(name))]
            assert [id_of(entry.config) for entry in entries] == saved[name]
            assert [entry.checkpoint["channel_values"]["x"] for entry in entries] == [4, 3, 2, 1, 0]
            assert [entry.pending_writes for entry in entries] == [
                [("task", "x", step)] for step in (4, 3, 2, 1, 0)
            ]


async def test_many_coroutines_share_a_saver(saver: TuskPointSaver, thread_id: str) -> None:
    names = [f"{thread_id} {number}" for number in range(32)]
    saved = await asyncio.gather(*(arun_thread(saver, name) for name in names))
    for name, expected in zip(names, saved, strict=True):
        assert [id_of(checkpoint.config) async for checkpoint in saver.alist(at(name))] == expected


async def test_many_writers_of_one_thread_lose_nothing(
    saver: TuskPointSaver, thread_id: str
) -> None:
    root = await saver.aput(at(thread_id), made(), metadata(), {})
    await asyncio.gather(
        *(saver.aput(root, made({"x": n}), metadata(1), {"x": 1}) for n in range(24)),
        *(saver.aput_writes(root, [("x", n)], f"task {n:02}") for n in range(24)),
    )
    checkpoints = [checkpoint async for checkpoint in saver.alist(at(thread_id))]
    values = [checkpoint.checkpoint["channel_values"]["x"] for checkpoint in checkpoints[:-1]]
    assert sorted(values) == [*range(24)]
    assert [value for _, _, value in checkpoints[-1].pending_writes or ()] == [*range(24)]


def test_event_loops_one_after_another(server_target: str, thread_id: str) -> None:
    saver = TuskPointSaver(server_target)
    for number in range(3):
        name = f"{thread_id} {number}"
        assert len(asyncio.run(arun_thread(saver, name))) == STEPS
        assert len(run_thread(saver, f"{name} sync")) == STEPS
    asyncio.run(saver.aclose())


def test_event_loops_at_once(server_target: str, thread_id: str) -> None:
    saver = TuskPointSaver(server_target)
    names = [f"{thread_id} {number}" for number in range(4)]
    together = threading.Barrier(len(names))

    def loop(name: str) -> list[str]:
        async def both() -> list[str]:
            together.wait()
            return await arun_thread(saver, name)

        return asyncio.run(both())

    with ThreadPoolExecutor(len(names)) as pool:
        saved = [*pool.map(loop, names)]
    for name, expected in zip(names, saved, strict=True):
        assert [id_of(checkpoint.config) for checkpoint in saver.list(at(name))] == expected
    asyncio.run(saver.aclose())


async def test_sync_methods_work_where_a_loop_is_running(
    saver: TuskPointSaver, thread_id: str
) -> None:
    assert len(run_thread(saver, thread_id)) == STEPS


async def test_sync_and_async_methods_see_the_same(saver: TuskPointSaver, thread_id: str) -> None:
    config = saver.put(at(thread_id), made({"x": 1}), metadata(), {"x": 1})
    assert await saver.aget_tuple(config) == saver.get_tuple(config)
    assert [checkpoint async for checkpoint in saver.alist(config)] == [*saver.list(config)]


async def test_copies_share_the_connection(server_target: str, thread_id: str) -> None:
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    saver = TuskPointSaver(server_target, serde=strict)
    clone = copy.copy(saver)
    config = await clone.aput(at(thread_id), made({"x": 1}), metadata(), {"x": 1})
    del clone
    loaded = saver.get_tuple(config)
    assert loaded is not None
    assert loaded.checkpoint["channel_values"] == {"x": 1}

    derived = saver.with_allowlist([("some.module", "Name")])
    assert derived is not saver
    assert isinstance(derived, TuskPointSaver)
    assert derived.get_tuple(config) == loaded
    assert await derived.aget_tuple(config) == loaded
    await saver.aclose()


async def test_a_closed_saver_raises_an_error(server_target: str, thread_id: str) -> None:
    with TuskPointSaver(server_target) as saver:
        saver.put(at(thread_id), made(), metadata(), {})
    with pytest.raises(TuskPointError, match="closed"):
        saver.get_tuple(at(thread_id))
    async with saver:
        assert await saver.aget_tuple(at(thread_id)), "async calls have a connection of their own"
    with pytest.raises(TuskPointError, match="closed"):
        await saver.aget_tuple(at(thread_id))
    saver.close()
    await saver.aclose()


async def test_later_changes_of_a_value_are_not_saved(
    saver: TuskPointSaver, thread_id: str
) -> None:
    value: list[Any] = [1]
    saving = asyncio.create_task(
        saver.aput(at(thread_id), made({"x": value}), metadata(), {"x": 1})
    )
    await asyncio.sleep(0)  # Run the task up to its first suspension.
    value.append("changed by a node")
    config = await saving
    written = asyncio.create_task(saver.aput_writes(config, [("x", value)], "task"))
    await asyncio.sleep(0)
    value.append("and again")
    await written
    loaded = await saver.aget_tuple(config)
    assert loaded is not None
    assert loaded.checkpoint["channel_values"] == {"x": [1]}
    assert loaded.pending_writes == [("task", "x", [1, "changed by a node"])]


def test_encrypted_values_come_back(server_target: str, thread_id: str) -> None:
    serde = EncryptedSerializer(_Reversed(), JsonPlusSerializer())
    with TuskPointSaver(server_target, serde=serde) as saver:
        config = saver.put(at(thread_id), made({"x": [1], "n": None}), metadata(), {"x": 1, "n": 1})
        loaded = saver.get_tuple(config)
    assert loaded is not None
    assert loaded.checkpoint["channel_values"] == {"x": [1], "n": None}


class _Reversed:
    """A cipher that reverses bytes, so that its use shows."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reversed", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "reversed"
        return ciphertext[::-1]
