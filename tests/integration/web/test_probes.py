"""`/healthz` and `/readyz` answer probes, and a wrong path gets no page."""

from __future__ import annotations

import httpx
import pytest

from tuskpoint_server.api.server.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOREIGN = {"host": "balancer.example", "origin": "https://evil.example"}


async def test_probes_are_answered_to_everybody(http: httpx.AsyncClient) -> None:
    for path, status in (("/healthz", "ALIVE"), ("/readyz", "SERVING")):
        for headers in ({}, FOREIGN):
            answer = await http.get(path, headers=headers)
            assert (answer.status_code, answer.json()) == (200, {"status": status})
            assert answer.headers["cache-control"] == "no-store"
            assert "access-control-allow-origin" not in answer.headers
        assert (await http.head(path)).status_code == 200
        refused = await http.post(path)
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


async def test_readiness_follows_health(http: httpx.AsyncClient, both: Server) -> None:
    both.report("journal", "the disk is gone")
    try:
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()) == (503, {"status": "NOT_SERVING"})
        assert (await http.get("/healthz")).status_code == 200
    finally:
        both.report("journal", "")
    assert (await http.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health"),
        ("GET", "/healthz/"),
        ("GET", "/metrics"),
        ("GET", "/api/threads"),
        ("GET", "/grpc.health.v1.Health/Check"),
        ("POST", "/grpc.health.v1.Health/Check"),
        ("POST", "/api/tuskpoint.v1.ThreadService/ListThreads"),
        ("POST", "/threads"),
    ],
)
async def test_a_wrong_path_is_not_answered_with_a_page(
    http: httpx.AsyncClient, method: str, path: str
) -> None:
    answer = await http.request(method, path)
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"
    assert answer.json()["message"].startswith(f"there is nothing at {path}: ")
    assert "/readyz" in answer.json()["message"]
