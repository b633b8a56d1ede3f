"""`mcp`."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exits import CommandError, Exit
from ..printing.output import Output
from ..program import OPERATE, command
from ..session import Session

if TYPE_CHECKING:
    import socket

    from ...aio import AsyncClient
    from ...mcp.http import Endpoint

_LISTEN = "127.0.0.1:7395"
_SHORTEST_TOKEN = 16
_EXTRA = frozenset({"anyio", "mcp", "mcp_types", "pydantic", "starlette", "uvicorn"})


@command("mcp", panel=OPERATE)
def mcp(
    cli: Session,
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP. Default: stdin and stdout.")
    ] = False,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help=f"Where to serve HTTP. [{_LISTEN}]")
    ] = None,
    serve_token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file with the token that MCP clients must send."),
    ] = None,
    serve_cert_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates to serve HTTPS with, PEM.")
    ] = None,
    serve_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The key of --serve-cert-file, PEM.")
    ] = None,
    serve_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A further name or address, besides --listen, where MCP clients connect.",
        ),
    ] = None,
    insecure_plaintext: Annotated[
        bool, typer.Option("--insecure-plaintext", help="Serve other machines without TLS.")
    ] = False,
    no_result_schemas: Annotated[
        bool,
        typer.Option("--no-result-schemas", help="List the tools without schemas of results."),
    ] = False,
) -> None:
    """Serve the checkpoints as tools for AI applications (Model Context Protocol).

    Without --http, an application starts it and speaks to it over stdin and stdout.
    """
    only_http = (listen, serve_token_file, serve_cert_file, serve_key_file, serve_host)
    if not http and (insecure_plaintext or any(option is not None for option in only_http)):
        raise CommandError(
            Exit.USAGE,
            "--listen, --serve-... and --insecure-plaintext are options of --http",
            "add --http",
        )
    _load()
    _log_to_stderr()
    if not http:
        # A read of stdin cannot be cancelled, so Ctrl-C ends the process directly, as it ends
        # `cat`.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _run(_serve_stdio(cli.async_client(), has_result_schemas=not no_result_schemas))
        return
    endpoint = _endpoint(
        listen or _LISTEN,
        serve_host or [],
        serve_token_file,
        serve_cert_file,
        serve_key_file,
        is_plaintext_meant=insecure_plaintext,
    )
    client = cli.async_client()
    listening = _listen(endpoint)
    with suppress(KeyboardInterrupt):
        serving = _serve_http(
            cli.out, client, endpoint, listening, has_result_schemas=not no_result_schemas
        )
        _run(serving)


def _run(serving: Coroutine[Any, Any, None]) -> None:
    import asyncio  # a slow import, which help and completion should not wait for

    asyncio.run(serving)


def _load() -> None:
    try:
        from ...mcp import http, server  # noqa: F401
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA:
            raise
        raise CommandError(
            Exit.USAGE,
            f"the MCP server needs release 2 of the package mcp, which is not installed: {error}",
            "pip install 'tuskpoint[mcp]'",
        ) from error


def _log_to_stderr() -> None:
    """Write the warnings of all packages to stderr; stdout belongs to the protocol."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )


async def _serve_stdio(client: AsyncClient, *, has_result_schemas: bool) -> None:
    from ...mcp.server import Access, make_server
    from ...mcp.setups import for_command

    program = shutil.which("tuskpoint") or "tuskpoint"
    setups = for_command([program, "mcp"], {"TUSKPOINT_TARGET": client.target})
    async with client:
        access = Access("stdio", setups)
        server = make_server(client, access, has_result_schemas=has_result_schemas)
        await server.run_stdio_async()


async def _serve_http(
    out: Output,
    client: AsyncClient,
    endpoint: Endpoint,
    listening: socket.socket,
    *,
    has_result_schemas: bool,
) -> None:
    from ...mcp.http import serve
    from ...mcp.server import Access, make_server
    from ...mcp.setups import for_url

    url = endpoint.url(listening.getsockname()[1])
    async with client:
        access = Access("streamable-http", for_url(url))
        server = make_server(client, access, has_result_schemas=has_result_schemas)
        out.say(f"tuskpoint mcp listening on {url}")
        if out.is_json:
            out.line({"url": url})
        sys.stdout.flush()
        await serve(server, endpoint, listening)


def _endpoint(
    listen: str,
    names: list[str],
    token_file: Path | None,
    cert_file: Path | None,
    key_file: Path | None,
    *,
    is_plaintext_meant: bool,
) -> Endpoint:
    """Return the address to listen on.

    Raises:
        CommandError: The address is malformed, or other machines could call without the intended
            restrictions.
    """
    from ..._transport.settings.token import TokenFile
    from ...mcp.http import Endpoint, is_loopback, is_wildcard

    host, port = _split(listen)
    if (cert_file is None) is not (key_file is None):
        raise CommandError(
            Exit.USAGE, "--serve-cert-file and --serve-key-file need each other", "give both"
        )
    if cert_file is not None and key_file is not None:
        _check_pair(cert_file, key_file)
    if not is_loopback(host):
        if token_file is None:
            raise CommandError(
                Exit.USAGE,
                f"--listen {listen} would let everyone who reaches it do everything",
                "give --serve-token-file",
            )
        if cert_file is None and not is_plaintext_meant:
            raise CommandError(
                Exit.USAGE,
                f"--listen {listen} would serve other machines in plaintext",
                "give --serve-cert-file and --serve-key-file, or add --insecure-plaintext if that "
                "network is trusted",
            )
        if is_wildcard(host) and not names:
            raise CommandError(
                Exit.USAGE,
                f"--listen {listen} does not name the host that clients connect to",
                "give --serve-host NAME",
            )
    authorization = None
    if token_file is not None:
        token = TokenFile(token_file, "--serve-token-file")
        if len(token.headers()[0][1]) < len("Bearer ") + _SHORTEST_TOKEN:
            raise CommandError(
                Exit.USAGE,
                f"the token in '{token_file}' can be guessed: it has less than "
                f"{_SHORTEST_TOKEN} characters",
                "`openssl rand -hex 32` makes one",
            )

        def authorization() -> str:
            return token.headers()[0][1]

    return Endpoint(host, port, tuple(names), authorization, cert_file, key_file)


def _check_pair(cert_file: Path, key_file: Path) -> None:
    import ssl

    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert_file, key_file)
    except OSError as error:  # TLS errors are among these errors
        raise CommandError(
            Exit.USAGE,
            f"'{cert_file}' and '{key_file}' cannot be used: {error.strerror or error}",
            "give a certificate and its key, PEM",
        ) from error


def _split(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise CommandError(
            Exit.USAGE, f"--listen is HOST:PORT, not '{listen}'", f"write such as {_LISTEN}"
        )
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host:
        raise CommandError(
            Exit.USAGE,
            f"--listen '{listen}' does not say where the IPv6 address ends",
            f"write the IPv6 address as [{host}]:{port}",
        )
    return host, int(port)


def _listen(endpoint: Endpoint) -> socket.socket:
    import socket

    from ...mcp.http import listen

    try:
        return listen(endpoint)
    except OSError as error:
        # Python appends the address to the text of a socket's own errors.
        is_own = not isinstance(error, socket.gaierror)
        why = os.strerror(error.errno) if is_own and error.errno else error.strerror
        raise CommandError(
            Exit.REFUSED,
            f"cannot listen on {endpoint.host}:{endpoint.port}: {why}",
            "choose another --listen address",
        ) from error
