"""Results of effects that were evicted from the journal are read from the blob store."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.contract.effects.kit import Agent, calls_of
from tests.kit.archives import House, house
from tests.kit.drafts import TENANT, draft, key
from tests.kit.journal import save
from tuskpoint_server.archive.formats.bundles import decode_bundle, encode_bundle
from tuskpoint_server.core.model import Durability, Value, View
from tuskpoint_server.features.checkpoints.completing import Completer

COUNT = 8


async def results(home: House, thread_id: str) -> list[Value | None]:
    """Return the results of all effects of a thread."""
    calls = calls_of(home)
    answers = [
        await calls.get(TENANT, thread_id, f"k{number}", View.FULL) for number in range(COUNT)
    ]
    return [answer.result for answer in answers]


async def test_evicted_results_are_read_forked_and_handed_off(home: House, tmp_path: Path) -> None:
    agent = Agent(home.journal)
    await save(home.journal, draft("01"))
    expected: list[Value | None] = []
    for number in range(COUNT):
        data = b'"result %d of work"' % number
        expected.append(Value("json", data))
        await agent.do(f"k{number}", data)
    await home.flush()
    assert await home.evict() > 0
    absent = [await agent.result(f"k{number}") for number in range(COUNT)]
    assert None in absent, "nothing was evicted"
    assert await results(home, "t") == expected
    certified = await calls_of(home).complete(
        *(TENANT, "t", "k0", (await agent.all())[-1].record.idempotency_key),
        *(Value("json", b"other"), Durability.CERTIFIED),
    )
    assert certified.result == expected[0]

    completer = Completer(home.journal, home.archive)
    await completer.supplied(
        TENANT, partial(home.journal.lineage.fork, TENANT, key("01"), "fork", "")
    )
    await home.journal.removal.delete_thread(TENANT, "t")
    await home.flush()
    assert await results(home, "fork") == expected
    closure = await completer.supplied(
        TENANT, partial(home.journal.lineage.closure, TENANT, key("01", "fork"))
    )
    assert closure is not None
    bundle = encode_bundle(closure)
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    async with house(directory, home.store) as elsewhere:
        adopted = decode_bundle(bundle, "blob")
        await elsewhere.journal.lineage.adopt(TENANT, adopted, "ab" * 32, "adopted", "", "")
        await elsewhere.flush()
        assert await results(elsewhere, "adopted") == expected
