"""Damage is always told, and what is not damaged never is, whatever happened to a thread."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.member_file import MemberFile
from tuskpoint_server.domain.errors import Refusal
from tuskpoint_server.domain.verification import VerdictKind
from tuskpoint_server.journal.api import ThreadQuery

from .archive_kit import TENANT, Kit, open_kit, write
from .recovery_kit import draft, flush, new_kit, recovered_kit, save
from .test_recovery_properties import Operation, Prune, histories
from .verify_kit import segment_files, verify

# --- what is not damaged -------------------------------------------------------------------


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
@given(histories)
def test_what_is_not_damaged_never_fails(
    lives: list[list[Operation]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_live(Path(folder), lives))


async def _live(folder: Path, lives: list[list[Operation]]) -> None:
    async with new_kit(folder) as kit:
        await save(kit, draft("0", thread_id="zero"))
        for life in lives:
            operations: list[Operation] = [*life, Prune("one")]
            for operation in operations:
                with suppress(Refusal):
                    await operation(kit)
                await _is_as_it_should_be(kit)
            await flush(kit)
            await _is_as_it_should_be(kit, {VerdictKind.PASS, VerdictKind.RETRACTED})
        catalog = await flush(kit)
        async with recovered_kit(folder / "recovered", kit, catalog) as found:
            await _is_as_it_should_be(found, {VerdictKind.PASS, VerdictKind.RETRACTED})


async def _is_as_it_should_be(
    kit: Kit, may_be: set[VerdictKind] = set(VerdictKind) - {VerdictKind.FAIL}
) -> None:
    for thread in await kit.journal.list_threads(TENANT, ThreadQuery(), "", 100):
        verdicts, total = await verify(kit, thread.thread_id)
        assert total.chain_problem == ""
        assert {verdict.kind for verdict in verdicts} <= may_be
        places = [(one.key.checkpoint_ns, one.key.checkpoint_id) for one in verdicts]
        assert places == sorted(set(places))
        detail = await kit.journal.thread(TENANT, thread.thread_id)
        assert detail is not None
        assert total.counts[VerdictKind.PASS] == (
            detail.checkpoint_count - detail.uncertified_count
        )


# --- what is damaged -----------------------------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """A certified thread, and the files that it is made of."""

    kit: Kit
    files: list[MemberFile]


@asynccontextmanager
async def _stored() -> AsyncIterator[Stored]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        async with open_kit(root) as kit:
            for number in range(12):
                await save(
                    kit,
                    draft(
                        f"{number:02}",
                        f"{number - 1:02}" if number else "",
                        delta=("log",) if number > 7 else (),
                        metadata={"run_id": f"r{number % 4}"},
                    ),
                )
            await flush(kit)
            for round_number in range(6):
                for number in range(12):
                    late = write(b"%d" % round_number, idx=round_number)
                    await kit.save_writes(f"{number:02}", late)
                await flush(kit)
            await kit.journal.delete_runs(TENANT, ["r1"])
            await kit.journal.copy_thread(TENANT, "t", "copy", "")
            await flush(kit)
            yield Stored(kit, await _needed(kit))


async def _needed(kit: Kit) -> list[MemberFile]:
    """Return the envelopes and segments of the thread."""
    blobs = kit.root / "blobs"
    envelopes = [at for entry in (await kit.manifest()).values() for at in entry.envelopes]
    head = await kit.archive.manifest_head(TENANT, "t")
    assert head is not None
    segments = segment_files(blobs, head.location)
    assert len(segments) > 1
    return [*(MemberFile.at(blobs, at) for at in envelopes), *segments]


@pytest.fixture(scope="module")
def stored() -> Iterator[tuple[asyncio.Runner, Stored]]:
    with asyncio.Runner() as runner:
        context: AbstractAsyncContextManager[Stored] = _stored()
        yield runner, runner.run(context.__aenter__())
        runner.run(context.__aexit__(None, None, None))


Damage = Callable[[bytes, bytes], bytes | None]
"""Stored bytes, and those of another file, to what is found instead; `None`: nothing."""

changes = st.builds(
    lambda place, bit: lambda data, _: _flipped(data, place % len(data), bit),
    st.integers(min_value=0),
    st.integers(0, 7),
)
cuts = st.builds(lambda place: lambda data, _: data[: place % len(data)], st.integers(min_value=0))
additions = st.builds(lambda more: lambda data, _: data + more, st.binary(min_size=1, max_size=9))
substitutions = st.just(lambda _, other: other)
losses = st.just(lambda _, __: None)
damages = st.one_of(changes, changes, cuts, additions, substitutions, losses)


def _flipped(data: bytes, place: int, bit: int) -> bytes:
    return data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), damages)
def test_damage_of_any_file_is_told(
    stored: tuple[asyncio.Runner, Stored], data: st.DataObject, damage: Damage
) -> None:
    runner, thread = stored
    path, other = data.draw(
        st.lists(st.sampled_from(thread.files), min_size=2, max_size=2, unique=True)
    )
    whole = path.read_bytes()
    found = damage(whole, other.read_bytes())
    if found is None:
        path.unlink()
    else:
        path.write_bytes(found)
    try:
        _, total = runner.run(verify(thread.kit))
        assert total.ok is False
        assert total.counts[VerdictKind.FAIL] or total.chain_problem
    finally:
        path.write_bytes(whole)
    verdicts, total = runner.run(verify(thread.kit))
    assert total.ok is True
    assert VerdictKind.FAIL not in {verdict.kind for verdict in verdicts}
