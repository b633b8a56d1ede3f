"""Threads are rolled back to an earlier state: all their rows, with the MACs that the server wrote.

The rows of such a thread are consistent. The server detects the rollback by facts outside of these
rows: the segments that the journal records, and the records in the blob store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
import pytest

from tests.attacks.journal_edits.edited_journal import STEPS, Home, is_verified, of_thread
from tuskpoint import Client, DataLoss
from tuskpoint.v1.checkpoint_pb2 import VIEW_FULL
from tuskpoint.v1.checkpoint_service_pb2 import ListCheckpointsRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.store_service_pb2 import (
    GetItemsRequest,
    ItemChange,
    ItemKey,
    PutItemsRequest,
    SearchItemsRequest,
)
from tuskpoint.v1.store_service_pb2_grpc import StoreServiceStub

OLDER = "an older state of it was put in its place"
ROWS = {"threads": "number", "checkpoints": "thread", "writes": "thread", "changes": "thread"}
VICTIMS = ("read", "begins-again", "erased", "was-deleted", "without-segments", "forward")
STORE = "$store/users"


def put_item(home: Home, value_json: bytes) -> None:
    """Put the only item of a store."""
    change = ItemChange(namespace=["users"], key="ann", value_json=value_json)
    with grpc.insecure_channel(home.server.target) as channel:
        StoreServiceStub(channel).PutItems(PutItemsRequest(changes=[change]))


def keep(home: Home, *thread_ids: str) -> None:
    """Copy the rows of threads into other tables."""
    names = ", ".join(f"'{thread_id}'" for thread_id in thread_ids)
    for table, column in ROWS.items():
        home.edit(
            f"CREATE TABLE kept_{table} AS SELECT * FROM {table} WHERE {column} IN"
            f" (SELECT number FROM threads WHERE thread_id IN ({names}))",
            anyway=True,
        )


def put_back(home: Home) -> None:
    """Restore the copied rows."""
    for table, column in ROWS.items():
        home.edit(
            f"DELETE FROM {table} WHERE {column} IN (SELECT number FROM kept_threads)",
            f"INSERT INTO {table} SELECT * FROM kept_{table}",
            anyway=True,
        )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, database: str) -> Iterator[Home]:
    """A server whose victims were rolled back to a state before a certified change.

    When its rows were copied, no change of the thread "fresh" was certified. The witness records no
    change of a victim, because the change of "other" is the last one. Two of the victims are not
    indexed yet.
    """
    home = Home(tmp_path_factory.mktemp("home"), certified=True, victims=VICTIMS)
    with home.server:
        home.server.start()
        with Client(home.server.target) as client:
            put_item(home, b'{"owes": 100}')
            client.flush()
            client.save("fresh", {"state": "first"})
        home.server.stop()
        keep(home, *VICTIMS[:-1], "fresh", STORE)
        home.server.start()
        with Client(home.server.target) as client:
            for thread_id in ("read", "begins-again", "erased", "without-segments", "fresh"):
                client.save(thread_id, {"state": "later"})
            put_item(home, b'{"owes": 0}')
            client.delete("was-deleted")
            client.flush()
            client.save("other", {"state": f"other {STEPS - 1}"})
        home.server.stop()
        put_back(home)
        [(through,)] = home.rows(
            "SELECT certified_seq FROM kept_threads WHERE thread_id = 'without-segments'"
        )
        home.edit(
            f"DELETE FROM members WHERE {of_thread('without-segments')} AND last_seq > {through}",
            "UPDATE threads SET seq = seq + 1 WHERE thread_id = 'forward'",
            "UPDATE threads SET indexed_seq = 0, unindexed_since_us = 1"
            " WHERE thread_id IN ('read', 'begins-again')",
        )
        home.server.start()
        yield home


READS: dict[str, Callable[[Client, str], object]] = {
    "load": lambda client, _: client.load("read"),
    "load-by-ID": lambda client, old: client.load("read", old),
    "load-what-is-gone": lambda client, _: client.load("read", "ffffffff"),
    "describe": lambda client, _: client.thread("read"),
    "list": lambda client, _: list(client.list("read")),
    "list-a-few": lambda client, _: list(client.list("read", limit=2)),
    "replay": lambda client, _: list(client.history("read", full=True)),
    "watch": lambda client, _: next(iter(client.watch("read"))),
    "save": lambda client, _: client.save("read", {"state": "more"}),
    "fork": lambda client, old: client.fork("read", "forked", old),
}


@pytest.mark.parametrize("name", READS)
def test_a_thread_put_back_to_an_earlier_state_is_refused(
    home: Home, client: Client, name: str
) -> None:
    with pytest.raises(DataLoss, match=f"thread 'read' is damaged.*{OLDER}"):
        READS[name](client, home.ids["read"][0])


def test_other_threads_are_served(client: Client) -> None:
    assert client.load("other").state == {"state": f"other {STEPS - 1}"}
    assert len(list(client.list("other"))) > STEPS
    assert is_verified(client, "other")


def test_a_listing_over_all_threads_leaves_it_out_and_says_so(home: Home) -> None:
    request, listed = ListCheckpointsRequest(view=VIEW_FULL), set[str]()
    with grpc.insecure_channel(home.server.target) as channel:
        answers = CheckpointServiceStub(channel).ListCheckpoints(request)
        with pytest.raises(grpc.RpcError, match=f"is damaged.*{OLDER}"):
            listed.update(answer.checkpoint.ref.thread_id for answer in answers)
    assert listed >= {"other", "was-deleted", "without-segments"}
    assert listed.isdisjoint({"read", "fresh"})


def test_an_item_of_a_store_that_was_put_back_is_not_shown(home: Home) -> None:
    with grpc.insecure_channel(home.server.target) as channel:
        items = StoreServiceStub(channel)
        wanted = GetItemsRequest(keys=[ItemKey(namespace=["users"], key="ann")])
        with pytest.raises(grpc.RpcError, match=OLDER):
            items.GetItems(wanted)
        answer = items.SearchItems(SearchItemsRequest(namespace_prefix=["users"]))
        assert not answer.items
        assert OLDER in answer.warnings[0].message


def test_a_search_leaves_it_out_and_says_so(client: Client) -> None:
    results = client.search_history("step", limit=50)
    assert {checkpoint.thread_id for checkpoint in results} >= {"other", "without-segments"}
    assert not any(checkpoint.thread_id in ("read", "fresh") for checkpoint in results)
    results = client.search_history("step", thread_id="read")
    assert not results
    assert any(OLDER in str(warning) for warning in results.warnings)


def test_the_index_goes_on_for_all_others(home: Home, client: Client) -> None:
    for word in ("quaternion", "octonion", "sedenion"):
        client.save("other", {"state": f"other {STEPS - 1}"}, summary=f"it says {word}")
        results = client.search_history(word, thread_id="other")
        assert [checkpoint.summary for checkpoint in results] == [f"it says {word}"]
        assert not results.warnings
    log = home.server.log.read_text(encoding="utf-8")
    assert log.count("not indexed: thread 'read' is damaged") == 1


def test_what_is_left_of_it_can_be_deleted_and_begins_again(client: Client) -> None:
    assert client.delete("begins-again") == STEPS
    saved = client.save("begins-again", {"n": 1}, summary="anew", durability="certified")
    assert client.load("begins-again").checkpoint_id == saved
    results = client.search_history("anew", thread_id="begins-again")
    assert [checkpoint.checkpoint_id for checkpoint in results] == [saved]
    assert not results.warnings
    assert is_verified(client, "begins-again")


def test_what_is_left_of_it_can_be_erased_once_it_is_deleted(client: Client) -> None:
    client.save("beside", {"n": 1})
    with pytest.raises(DataLoss, match=OLDER):
        client.erase(["beside", "erased"])
    assert client.load("beside").state == {"n": 1}
    assert client.delete("erased") == STEPS
    assert client.erase("erased").content


def test_a_flush_stores_nothing_of_it_and_goes_on(home: Home, client: Client) -> None:
    saved = client.save("other", {"state": f"other {STEPS - 1}"}, durability="certified")
    assert client.load("other").checkpoint_id == saved
    log = home.server.log.read_text(encoding="utf-8")
    assert "thread 'fresh' of tenant default is not stored" in log
    assert OLDER in log


@pytest.mark.parametrize("name", ["read", "was-deleted", "without-segments"])
def test_a_verification_compares_a_thread_with_the_blob_store(client: Client, name: str) -> None:
    """Segments of the later state may be missing, too; a deletion has no segments."""
    if name != "read":
        assert client.load(name).state == {"state": f"{name} {STEPS - 1}"}
    outcome = client.verify(name)
    assert not outcome.ok
    assert any(OLDER in detail for detail in outcome.journal_details)


def test_a_number_set_forward_is_named(client: Client) -> None:
    with pytest.raises(DataLoss, match="thread 'forward' is damaged"):
        client.verify("forward")


def test_an_operator_can_accept_the_earlier_state(home: Home) -> None:
    home.server.stop()
    home.settings["TUSKPOINT_ACCEPT_ROWS"] = "true"
    home.server.start()
    with Client(home.server.target) as client:
        assert client.load("read").state == {"state": f"read {STEPS - 1}"}
        saved = client.save("read", {"state": "after"}, durability="certified")
        assert client.load("read").checkpoint_id == saved
        assert is_verified(client, "read")
