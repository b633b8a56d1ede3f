"""Requests to Walrus follow proxies and URLs in the settings, and are measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kit.blobs.stores import many, member
from tests.kit.blobs.walrus_peer import (
    Reply,
    instead,
)
from tests.kit.blobs.walrus_stores import MALFORMED, PeerKit
from tests.kit.drafts import refused
from tuskpoint_server.core.errors import Reason, Refusal


async def test_proxy_is_not_asked_for_this_machine(
    kit: PeerKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    peer = await kit.peer()
    await kit.store(peer, peer.url.replace("127.0.0.1", "localhost")).put(many(1))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    await kit.store(peer, "http://walrus.example").put(many(2))
    assert kit.time.pauses == []


async def test_proxy_is_asked_for_the_world(kit: PeerKit, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = await kit.peer()
    monkeypatch.setenv("http_proxy", proxy.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    proxy.always = instead(MALFORMED)
    await refused(kit.store("http://walrus.example").put(many(1)), Reason.BLOB_REJECTED)
    assert len(proxy.requests) == 1


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/blobs", "/v1/quilts/"])
async def test_url_may_go_as_far_as_the_route(kit: PeerKit, suffix: str) -> None:
    peer = await kit.peer()
    store = kit.store(peer.url + suffix)
    [location] = (await store.put([member(b"one")])).locations
    assert await store.get(location) == b"one"
    assert [request.path.split("/")[1] for request in peer.requests] == ["v1", "v1"]


async def test_requests_are_measured(kit: PeerKit) -> None:
    peer = await kit.peer(instead(Reply(429, b"busy")))
    store = kit.store(peer)
    receipt = await store.put(many(2))
    await store.put(many(2))
    await store.get(receipt.locations[0])
    with pytest.raises(Refusal):
        await store.get(replace(receipt.locations[0], sha256=bytes(32)))
    assert kit.metric("tuskpoint.walrus.retries") == {
        ("put_quilt", "busy"): 1,
        ("get_patch", "mismatch"): 2,
    }
    assert kit.metric("tuskpoint.walrus.puts") == {
        ("put_quilt", "created"): 1,
        ("put_quilt", "found"): 1,
    }
    assert kit.metric("tuskpoint.walrus.billed_bytes") == {("put_quilt",): 66_034_000}
    assert kit.metric("tuskpoint.walrus.put.duration") == {
        ("put_quilt", "created"): 1,
        ("put_quilt", "found"): 1,
    }
    assert kit.metric("tuskpoint.walrus.get.duration") == {
        ("get_patch", "read"): 1,
        ("get_patch", "failed"): 1,
    }
