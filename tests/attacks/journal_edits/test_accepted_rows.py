"""Starts with --accept-rows over rows that were deleted: threads go on with what is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.journal_edits.edited_journal import OF_THREAD, STEPS, Home, is_verified, kind
from tuskpoint import Client, NotFound

__all__ = ["kind"]


@pytest.fixture(params=[True, False], ids=["certified", "journaled"])
def home(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> Iterator[Home]:
    home = Home(tmp_path / "home", certified=request.param)
    with home.server:
        yield home


def accept(home: Home) -> None:
    """Start the server so that it trusts the rows, and then as always."""
    home.settings["TUSKPOINT_ACCEPT_ROWS"] = "true"
    home.server.start()
    home.server.stop()
    del home.settings["TUSKPOINT_ACCEPT_ROWS"]
    home.server.start()


def test_the_latest_checkpoint_is_the_latest_that_is_there(home: Home) -> None:
    *_, kept, before, last = home.ids("victim")
    home.edit(
        f"DELETE FROM checkpoints WHERE {OF_THREAD} AND checkpoint_id IN ('{last}', '{before}')"
    )
    accept(home)
    with Client(home.server.target) as client:
        loaded = client.load("victim")
        assert loaded.checkpoint_id == kept
        assert loaded.state == {"state": f"victim {STEPS - 3}"}
        assert len(list(client.list("victim"))) == STEPS - 2
        assert client.get_thread("victim").checkpoint_count == STEPS - 2
        saved = client.save("victim", {"state": "more"}, durability="certified")
        assert client.load("victim").checkpoint_id == saved
        assert not client.verify("victim").journal_details
    log = home.server.log.read_text(encoding="utf-8")
    assert f"the latest checkpoint of thread 'victim' of tenant default is now '{kept}'" in log


def test_a_thread_without_any_checkpoint_has_no_latest(home: Home) -> None:
    home.edit(f"DELETE FROM checkpoints WHERE {OF_THREAD}")
    accept(home)
    with Client(home.server.target) as client:
        with pytest.raises(NotFound):
            client.load("victim")
        saved = client.save("victim", {"state": "first"})
        assert client.load("victim").checkpoint_id == saved


def test_a_log_with_a_gap_begins_after_it(home: Home) -> None:
    home.edit(f"DELETE FROM changes WHERE {OF_THREAD} AND seq = 3")
    accept(home)
    with Client(home.server.target) as client:
        client.save("victim", {"state": "more"})
        assert is_verified(client, "victim")
        assert not client.verify("victim").journal_details


@pytest.mark.parametrize("above", ["2", str(STEPS - 1)], ids=["middle", "last"])
def test_a_checkpoint_whose_change_is_gone_is_stored_all_the_same(home: Home, above: str) -> None:
    """Of a thread that is certified up to its end, the blob store has every checkpoint."""
    home.edit(f"DELETE FROM changes WHERE {OF_THREAD} AND seq > {above}")
    accept(home)
    with Client(home.server.target) as client:
        client.save("victim", {"state": "more"}, durability="certified")
        outcome = client.verify("victim")
        assert outcome.ok, outcome
        assert outcome.passed == STEPS + 1
