"""Only allowed web pages may call the server, and the console loads only its own files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests.integration.access.tls_kit import write_tokens
from tests.integration.web.web_kit import http_client
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.api.web.console import Console
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALL = "/tuskpoint.v1.ThreadService/ListThreads"
ALLOWED = "https://console.example.com"


@pytest.fixture(scope="module")
def settings(settings: Config) -> Config:
    return settings.model_copy(update={"http_origins": (ALLOWED, "http://tuskpoint.example:8080")})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def with_tokens(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    """A client with a token, and a server that requires tokens."""
    directory = tmp_path_factory.mktemp("tokens")
    tokens = write_tokens(directory / "tokens.toml")
    config = Config(
        listen="127.0.0.1:0",
        http_listen="127.0.0.1:0",
        data_dir=directory / "data",
        tokens=directory / "tokens.toml",
        flush_interval=3600,
    )
    headers = {"authorization": f"Bearer {tokens['reader']}"}
    async with (
        serve.running_server(config) as server,
        http_client(server.http_url, headers=headers) as client,
    ):
        yield client


async def call(http: httpx.AsyncClient, **headers: str) -> httpx.Response:
    sent: Mapping[str, str] = {"content-type": "application/json", **headers}
    return await http.post(CALL, content=b"{}", headers=sent)


async def test_a_page_of_another_origin_is_refused(http: httpx.AsyncClient, both: Server) -> None:
    port = both.http_url.rpartition(":")[2]
    for origin in (
        "https://evil.example",
        "null",
        "http://127.0.0.1",
        f"https://127.0.0.1:{port}",
        f"http://127.0.0.1:{port}1",
        f"http://localhost:{port}",
        f"http://127.0.0.1:{port}.evil.example",
        "https://console.example.com.evil.example",
        "http://console.example.com",
        "",
        "http://[",
    ):
        answer = await call(http, origin=origin)
        assert answer.status_code == 403, origin
        assert answer.json()["code"] == "permission_denied"
        assert answer.json()["message"].startswith(f"pages of {origin} may not call this server")
        assert "access-control-allow-origin" not in answer.headers
        page = await http.get("/", headers={"origin": origin})
        assert page.status_code == 403, "nor may it read the console"


async def test_its_own_pages_may_call(http: httpx.AsyncClient, both: Server) -> None:
    answer = await call(http, origin=both.http_url)
    assert answer.status_code == 200
    port = both.http_url.rpartition(":")[2]
    host = f"localhost:{port}"
    assert (await call(http, host=host, origin=f"http://{host}")).status_code == 200
    assert (await call(http)).status_code == 200, "no browser"


async def test_an_origin_that_is_allowed_may_call_and_read_errors(http: httpx.AsyncClient) -> None:
    for kind in ("content-type", "content-type,connect-protocol-version,authorization"):
        preflight = await http.options(
            CALL,
            headers={
                "origin": ALLOWED,
                "access-control-request-method": "POST",
                "access-control-request-headers": kind,
            },
        )
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == ALLOWED
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in preflight.headers, "there are no cookies"
    answer = await call(http, origin=ALLOWED)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == ALLOWED
    assert "Origin" in answer.headers["vary"]
    exposed = set(answer.headers["access-control-expose-headers"].split(", "))
    assert exposed == {"grpc-message", "grpc-status", "grpc-status-details-bin"}


@pytest.mark.parametrize(
    "preflight",
    [
        {"access-control-request-method": "GET"},
        {"access-control-request-method": "DELETE"},
        {"access-control-request-method": "POST", "access-control-request-headers": "x-other"},
    ],
)
async def test_an_allowed_origin_may_send_calls_and_nothing_else(
    http: httpx.AsyncClient, preflight: dict[str, str]
) -> None:
    answer = await http.options(CALL, headers={"origin": ALLOWED, **preflight})
    assert answer.status_code == 400


FOREIGN_HOSTS = (
    "evil.example",
    "evil.example:7391",
    "localhost.evil.example",
    "localhost@evil.example",
    "127.0.0.1.evil.example",
    "[::1",
    "[::1].evil.example",
    "[evil]",
    "localhost/evil",
    "",
)


async def test_without_tokens_only_known_names_are_answered(
    http: httpx.AsyncClient, with_tokens: httpx.AsyncClient
) -> None:
    for host in FOREIGN_HOSTS:
        for answer in (await call(http, host=host), await http.get("/", headers={"host": host})):
            assert answer.status_code == 403, host
            assert f"'{host}' is none" in answer.json()["message"]
        assert (await call(with_tokens, host=host)).status_code == 200
    for host in (
        "localhost",
        "LocalHost:7391",
        "127.0.0.1",
        "10.1.2.3:80",
        "[::1]:7391",
        "[2001:db8::1]",
        "console.example.com",
        "tuskpoint.example:9",
    ):
        assert (await call(http, host=host)).status_code == 200, host


async def test_http_1_0_names_no_host(both: Server) -> None:
    host, port = both.http_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST %s HTTP/1.0\r\norigin: null\r\ncontent-length: 2\r\n\r\n{}" % CALL.encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 403 ")
    writer.close()
    await writer.wait_closed()


async def test_tokens_are_asked_for_before_anything_is_parsed(
    with_tokens: httpx.AsyncClient,
) -> None:
    for body in (b"{}", b"{", b"\xff"):
        answer = await with_tokens.post(
            CALL, content=body, headers={"content-type": "application/json", "authorization": ""}
        )
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


@pytest_asyncio.fixture(loop_scope="module")
async def console(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a built console."""
    assets = tmp_path / "assets"
    (assets / "static").mkdir(parents=True)
    (assets / "index.html").write_text("<!doctype html>")
    (assets / "static" / "app.js").write_text("let a;")
    (tmp_path / "secret").write_text("secret")
    transport = httpx.ASGITransport(app=Console(assets))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def test_the_console_has_its_page_and_its_files(console: httpx.AsyncClient) -> None:
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    for path in ("/", "/threads/t", "/static", "/index.html"):
        page = await console.get(path, headers=browser)
        assert (page.status_code, page.text) == (200, "<!doctype html>"), path
        assert page.headers["cache-control"] == "no-cache"
        assert page.headers["vary"] == "accept"
    assert (await console.get("/")).text == "<!doctype html>"
    assert (await console.get("/threads/t")).status_code == 404
    script = await console.get("/static/app.js")
    assert (script.status_code, script.text) == (200, "let a;")
    assert script.headers["content-type"].startswith("text/javascript")
    again = await console.get("/static/app.js", headers={"if-none-match": script.headers["etag"]})
    assert again.status_code == 304
    head = await console.head("/")
    assert (head.status_code, head.content) == (200, b"")
    for answer in (page, script, head):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/static/",
        "/static/none.js",
        "/static/%2e%2e/index.html",
        "/static/..%2f..%2fsecret",
        "/static//etc/passwd",
        "/static/%00",
        "/static/..%5csecret",
    ],
)
async def test_no_other_file_is_in_the_console(console: httpx.AsyncClient, path: str) -> None:
    answer = await console.get(path)
    assert answer.status_code == 404
    assert "content-security-policy" in answer.headers


async def test_the_console_is_only_read(console: httpx.AsyncClient) -> None:
    for path in ("/", "/static/app.js"):
        assert (await console.post(path)).status_code == 405


async def test_a_server_without_the_console_says_so(tmp_path: Path) -> None:
    transport = httpx.ASGITransport(app=Console(tmp_path))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/")
    assert answer.status_code == 404
    assert "make console" in answer.text
