"""Items of stores, over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.messages import FIRST, channel, collect, ref, refused, save_request
from tuskpoint.v1 import admin_service_pb2 as admin_pb
from tuskpoint.v1 import checkpoint_pb2, errors_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import search_service_pb2 as search_pb
from tuskpoint.v1 import store_service_pb2 as spb
from tuskpoint.v1 import thread_service_pb2 as tpb
from tuskpoint.v1.search_service_pb2_grpc import SearchServiceStub
from tuskpoint.v1.store_service_pb2_grpc import StoreServiceStub

if TYPE_CHECKING:
    import grpc

    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.store_service_pb2_grpc import StoreServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub


CERTIFIED = checkpoint_pb2.DURABILITY_CERTIFIED
DAY = {"seconds": 86_400}


@pytest.fixture
def store(grpc_channel: grpc.aio.Channel) -> StoreServiceAsyncStub:
    return StoreServiceStub(grpc_channel)


def change(key: str = "k", value: bytes = b"{}", *labels: str, **fields: object) -> spb.ItemChange:
    namespace = labels or ("a", "b")
    return spb.ItemChange(namespace=namespace, key=key, value_json=value, **fields)  # type: ignore[arg-type]


async def put(store: StoreServiceAsyncStub, *changes: spb.ItemChange) -> spb.PutItemsResponse:
    return await store.PutItems(spb.PutItemsRequest(changes=changes))


async def test_an_item_is_certified_before_the_answer_that_waits_for_it(
    store: StoreServiceAsyncStub, admin: AdminServiceAsyncStub
) -> None:
    value = b'{"value" : {"x":[1, 2.50]}}'
    request = spb.PutItemsRequest(changes=[change("k", value, ttl=DAY)], durability=CERTIFIED)
    answer = await store.PutItems(request)
    assert (answer.durability, list(answer.warnings)) == (CERTIFIED, [])
    status = await admin.GetArchiveStatus(admin_pb.GetArchiveStatusRequest())
    assert (status.backlog_checkpoints, status.certified_checkpoints) == (0, 1)
    keys = [spb.ItemKey(namespace=["a", "b"], key=name) for name in ("none", "k")]
    response = await store.GetItems(spb.GetItemsRequest(keys=keys))
    [item] = response.items
    assert (response.answered_keys, item.value_json) == (2, value)
    assert item.create_time == item.update_time
    assert item.expire_time.ToSeconds() - item.update_time.ToSeconds() == 86_400


async def test_items_are_out_of_sight_of_all_other_calls(
    store: StoreServiceAsyncStub,
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    grpc_channel: grpc.aio.Channel,
) -> None:
    value = b'{"text":"zebras","run_id":"r","parents":{"":"1"}}'
    await put(store, change(FIRST, value, "t"))
    await checkpoints.SaveCheckpoint(save_request(FIRST, [channel("x")], thread_id="t"))
    listed = await threads.ListThreads(tpb.ListThreadsRequest())
    assert [each.thread_id for each in listed.threads] == ["t"]
    for query in (
        pb.ListCheckpointsRequest(),
        pb.ListCheckpointsRequest(checkpoint_id=FIRST),
    ):
        hits = await collect(checkpoints.ListCheckpoints(query))
        assert [each.ref.thread_id for each in hits] == ["t"]
    searched = SearchServiceStub(grpc_channel).SearchCheckpoints(
        search_pb.SearchCheckpointsRequest(text="zebras")
    )
    assert list((await searched).results) == []
    assert (await threads.DeleteRuns(tpb.DeleteRunsRequest(run_ids=["r"]))).deleted_checkpoints == 0
    inside = "$store/t"
    for call in (
        threads.GetThread(tpb.GetThreadRequest(thread_id=inside)),
        threads.DeleteThread(tpb.DeleteThreadRequest(thread_id=inside)),
        threads.VerifyThread(tpb.VerifyThreadRequest(thread_id=inside)),
        checkpoints.SaveCheckpoint(save_request(thread_id=inside)),
        checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=ref("", inside))),
    ):
        answer = await refused(call)
        assert (answer.reason, "the server's own" in answer.message) == ("INVALID_FIELD", True)
    await threads.DeleteThread(tpb.DeleteThreadRequest(thread_id="t"))
    [kept] = (await store.SearchItems(spb.SearchItemsRequest())).items
    assert (kept.item.value_json, kept.HasField("score")) == (value, False)


async def test_a_query_without_an_embedder_changes_nothing_and_warns(
    store: StoreServiceAsyncStub,
) -> None:
    await put(store, change("k"), change("l", b'{"n":1}'))
    plain = await store.SearchItems(spb.SearchItemsRequest())
    queried = await store.SearchItems(spb.SearchItemsRequest(query="anything"))
    assert queried.items == plain.items
    assert not plain.warnings
    [warning] = queried.warnings
    assert warning.kind == errors_pb2.WARNING_KIND_SEARCH_FELL_BACK


@pytest.mark.parametrize(
    ("bad", "reason", "problem"),
    [
        (change("k", b"[]"), "METADATA_NOT_JSON", "changes[1].value_json is not a JSON object"),
        (change("k", b'{"a":NaN}'), "METADATA_NOT_JSON", "NaN"),
        (change("k", b'{"a":' * 101 + b"1" + b"}" * 101), "INVALID_FIELD", "deeper than 100"),
        (change("k", b" " * (1 << 20) + b"{}"), "LIMIT_EXCEEDED", "max_item_value_bytes"),
        (change(""), "INVALID_FIELD", "changes[1].key: must not be empty"),
        (change("k" * 513), "INVALID_FIELD", "changes[1].key: must be at most 512 bytes"),
        (spb.ItemChange(key="k"), "INVALID_FIELD", "changes[1].namespace: must not be empty"),
        (change("k", b"{}", "a", ""), "INVALID_FIELD", "changes[1].namespace[1]"),
        (change("k", b"{}", *"a" * 33), "INVALID_FIELD", "must be at most 32 labels"),
        (change("k", b"{}", *("é" * 32,) * 8), "INVALID_FIELD", "must be at most 512 bytes"),
        (change(ttl={"seconds": 0}), "INVALID_FIELD", "changes[1].ttl: must be above 0"),
        (change(index_paths=["a..b"]), "INVALID_FIELD", "changes[1].index_paths[0]: must be a"),
    ],
)
async def test_what_breaks_a_limit_is_refused_and_nothing_is_put(
    store: StoreServiceAsyncStub, bad: spb.ItemChange, reason: str, problem: str
) -> None:
    answer = await refused(put(store, change("good"), bad))
    assert answer.reason == reason
    assert problem in answer.message
    assert not (await store.SearchItems(spb.SearchItemsRequest())).items


async def test_reads_that_break_a_limit_are_refused(store: StoreServiceAsyncStub) -> None:
    pattern = spb.NamespacePattern(labels=["a"])
    for call, problem in (
        (store.PutItems(spb.PutItemsRequest()), "changes: must not be empty"),
        (store.GetItems(spb.GetItemsRequest()), "keys: must not be empty"),
        (store.SearchItems(spb.SearchItemsRequest(limit=1001)), "limit: must be at most 1000"),
        (store.SearchItems(spb.SearchItemsRequest(query="x" * 4097)), "query: must be at most"),
        (
            store.SearchItems(spb.SearchItemsRequest(filter_json=b'{"a":{"$in":[]}}')),
            "'$in' is not an operator",
        ),
        (
            store.ListItemNamespaces(spb.ListItemNamespacesRequest(patterns=[pattern] * 65)),
            "patterns: must be at most 64",
        ),
    ):
        assert problem in (await refused(call)).message
