"""Starts with --accept-rows after rows were deleted: threads continue with the remaining rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.journal_edits.edited_journal import STEPS, Home, is_verified, of_thread
from tuskpoint import Client, NotFound

VICTIMS = ("shorter", "emptied", "gap", "middle", "last")


@pytest.fixture(scope="module", params=[True, False], ids=["certified", "journaled"])
def home(
    tmp_path_factory: pytest.TempPathFactory, database: str, request: pytest.FixtureRequest
) -> Iterator[Home]:
    """A server that started once with --accept-rows over edited threads, and now runs without
    it."""
    home = Home(tmp_path_factory.mktemp("home"), certified=request.param, victims=VICTIMS)
    tail = "', '".join(home.ids["shorter"][-2:])
    home.edit(
        f"DELETE FROM checkpoints WHERE {of_thread('shorter')} AND checkpoint_id IN ('{tail}')",
        f"DELETE FROM checkpoints WHERE {of_thread('emptied')}",
        f"DELETE FROM changes WHERE {of_thread('gap')} AND seq = 3",
        f"DELETE FROM changes WHERE {of_thread('middle')} AND seq > 2",
        f"DELETE FROM changes WHERE {of_thread('last')} AND seq > {STEPS - 1}",
    )
    with home.server:
        home.settings["TUSKPOINT_ACCEPT_ROWS"] = "true"
        home.server.start()
        home.server.stop()
        del home.settings["TUSKPOINT_ACCEPT_ROWS"]
        home.server.start()
        yield home


def test_the_latest_checkpoint_is_the_latest_that_is_there(home: Home, client: Client) -> None:
    *_, kept, _, _ = home.ids["shorter"]
    loaded = client.load("shorter")
    assert loaded.checkpoint_id == kept
    assert loaded.state == {"state": f"shorter {STEPS - 3}"}
    assert len(list(client.list("shorter"))) == STEPS - 2
    assert client.get_thread("shorter").checkpoint_count == STEPS - 2
    saved = client.save("shorter", {"state": "more"}, durability="certified")
    assert client.load("shorter").checkpoint_id == saved
    assert not client.verify("shorter").journal_details
    log = home.server.log.read_text(encoding="utf-8")
    assert f"the latest checkpoint of thread 'shorter' of tenant default is now '{kept}'" in log


def test_a_thread_without_any_checkpoint_has_no_latest(client: Client) -> None:
    with pytest.raises(NotFound):
        client.load("emptied")
    saved = client.save("emptied", {"state": "first"})
    assert client.load("emptied").checkpoint_id == saved


def test_a_log_with_a_gap_begins_after_it(client: Client) -> None:
    client.save("gap", {"state": "more"})
    assert is_verified(client, "gap")
    assert not client.verify("gap").journal_details


@pytest.mark.parametrize("name", ["middle", "last"])
def test_a_checkpoint_whose_change_is_gone_is_stored_all_the_same(
    client: Client, name: str
) -> None:
    """If a thread is certified up to its end, the blob store has every checkpoint."""
    client.save(name, {"state": "more"}, durability="certified")
    outcome = client.verify(name)
    assert outcome.ok, outcome
    assert outcome.passed == STEPS + 1
