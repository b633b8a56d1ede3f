"""If few candidates pass, a search lists the passing checkpoints first, with the same results."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.contract.search.kit import Nearest, drain, look, save
from tests.kit.drafts import TENANT, draft, key
from tests.kit.journal import Journal
from tuskpoint_server.core.search import SearchScope, pack_vector
from tuskpoint_server.core.state import matches, parse_metadata
from tuskpoint_server.search import finding
from tuskpoint_server.search.finding import Candidate

METADATA = (
    b"{}",
    b'{"outcome":"success"}',
    b'{ "outcome" :\n"success" , "step" : 1 }',
    b'{"out\\u0063ome":"success"}',
    b'{"outcome":"succ\\u0065ss"}',
    b'{"outcome":"failure","note":"success"}',
    b'{"note":{"outcome":"success"}}',
    b'{"outcome":"failure","outcome":"success"}',
    '{"outcome":"schön"}'.encode(),
    b'{"outcome":"sch\\u00f6n"}',
    b'{"outcome":"a \\"quoted\\" word"}',
    b'{"outcome":"a\\\\b"}',
    b'{"outcome":"a\\/b"}',
    b'{"outcome":"a/b"}',
    b'{"outcome":"\\ud83d"}',
    '{"outcome":"\N{GRINNING FACE}"}'.encode(),
    b'{"outcome":"\\ud83d\\ude00"}',
    b'{"outcome":true}',
    b'{"outcome":false}',
    b'{"outcome":null}',
    b'{"outcome":1}',
    b'{"outcome":1.0}',
    b'{"outcome":10e-1}',
    b'{"outcome": -1, "step":1E+0}',
    b'{"outcome" : 12}',
    b'{"outcome":"1"}',
    b'{"outcome":["success"]}',
    b'{"outcome":{"a":[1,true]}}',
    b'{"":"success"}',
    b'{"a\\tb":"success"}',
    b'{"a\x7fb":"success"}',
)

FILTERS: tuple[dict[str, object], ...] = (
    {"outcome": "success"},
    {"outcome": "success", "step": 1},
    {"outcome": "schön"},
    {"outcome": 'a "quoted" word'},
    {"outcome": "a\\b"},
    {"outcome": "a/b"},
    {"outcome": "\ud83d"},
    {"outcome": "\N{GRINNING FACE}"},
    {"outcome": True},
    {"outcome": False},
    {"outcome": None},
    {"outcome": 1},
    {"outcome": 1.0, "step": 1},
    {"outcome": -1, "step": 1.0},
    {"outcome": 12},
    {"outcome": "1"},
    {"outcome": ["success"]},
    {"outcome": {"a": [1, True]}},
    {"": "success"},
    {"a\tb": "success"},
    {"a\x7fb": "success"},
    {"absent": "success"},
)


@pytest.fixture(autouse=True)
def ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the search ask for the passing checkpoints after the first candidate."""
    for name, value in (("FIRST_PAGE", 1), ("LOOKED_AT_FIRST", 1), ("MANY", -1)):
        monkeypatch.setattr(finding, name, value)


async def test_filters_match_values_in_any_spelling(journal: Journal) -> None:
    for number, raw in enumerate(METADATA):
        made = draft(f"{number:02d}", summary="saved")
        metadata = parse_metadata(raw, "metadata_json")
        await journal.save_checkpoint(
            TENANT, replace(made, metadata=metadata, vector=pack_vector((1.0, number)))
        )
    await drain(journal)
    rows = await journal.finding.scan(TENANT, 0, 100)
    for wanted in FILTERS:
        scope = SearchScope(filter=wanted)
        matching = [
            key(f"{number:02d}")
            for number, raw in enumerate(METADATA)
            if matches(raw, wanted, typed=True)
        ]
        keys = await look(journal, "saved", scope, limit=100)
        assert sorted(keys, key=str) == matching, json.dumps(wanted)
        nearest = Nearest(*(Candidate(row.number, 0.1) for row in rows))
        by_vectors = await journal.finding.by_vectors(TENANT, nearest, scope, 100)
        assert [result.key for result in by_vectors] == matching, json.dumps(wanted)
        assert nearest.numbers is not None


async def test_only_live_candidates_in_scope_pass(journal: Journal) -> None:
    for agent in ("a", "b"):
        for number in range(3):
            made = draft(f"0{number}", summary="saved", thread_id=f"t{agent}", agent_id=agent)
            await journal.save_checkpoint(TENANT, replace(made, vector=pack_vector((1.0, number))))
    await save(journal, "09", "saved", tenant="another", thread_id="ta", agent_id="a")
    await drain(journal)
    by_a = [key(f"0{number}", "ta") for number in range(3)]
    for scope in (SearchScope(agent_id="a"), SearchScope("ta"), SearchScope("ta", "a")):
        assert sorted(await look(journal, "saved", scope), key=str) == by_a
    assert await look(journal, "saved", SearchScope("ta", "b")) == []
    await journal.removal.delete_thread(TENANT, "ta")
    assert await look(journal, "saved", SearchScope(agent_id="a")) == []
    assert len(await look(journal, "saved")) == 3


async def test_candidates_are_looked_up_as_they_come_while_enough_of_them_pass(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "MANY", 2)
    for number in range(8):
        await save(journal, f"0{number}", "saved", vector=(1.0, number))
    rows = await journal.finding.scan(TENANT, 0, 100)
    numbers = [row.number for row in rows]
    enough = Nearest(*(Candidate(number, 0.1) for number in numbers))
    assert len(await journal.finding.by_vectors(TENANT, enough, SearchScope(), 2)) == 2
    assert enough.numbers is None
    too_few = Nearest(*(Candidate(number, 0.1) for number in [901, 902, 903, *numbers]))
    assert len(await journal.finding.by_vectors(TENANT, too_few, SearchScope(), 2)) == 2
    assert too_few.numbers == set(numbers)


async def test_a_filter_of_very_many_keys_is_none_too_many(journal: Journal) -> None:
    wanted: dict[str, object] = {f"key {number}": "x" * (number % 7) for number in range(1500)}
    for checkpoint_id, metadata in (("01", {**wanted, "key 1499": "y"}), ("02", wanted)):
        await journal.save_checkpoint(
            TENANT, draft(checkpoint_id, metadata=metadata, summary="saved")
        )
    await drain(journal)
    assert await look(journal, "saved", SearchScope(filter=wanted)) == [key("02")]
