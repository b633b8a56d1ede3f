"""The command `tuskpoint-server dev`: a server for this machine, as a newcomer needs it.

The command serves like `tuskpoint-server`, with other defaults and more output.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from ..api.server.server import Server
from ..config.command_line import settings_parser
from ..config.settings import Config
from ..config.sources import read_settings, without_secrets
from ..core import process
from . import serve
from .startup import start_line
from .startup.listening import AddressError, can_serve_http

PORT, HTTP_PORT = 7390, 7391
HOST = "127.0.0.1"
_FLAGS = {"--listen": "--port", "--http-listen": "--http-port"}


def main(arguments: Sequence[str], version: str) -> int:
    """Serve with the arguments after `dev` until a signal stops the server."""
    parser = settings_parser(
        version,
        prog="tuskpoint-server dev",
        description="Serve programs on this machine: gRPC, the console and JSON over HTTP, with "
        "journal and blobs in one folder. It needs no account and no other settings.",
        shown=("data_dir", "log_level"),
    )
    parser.add_argument(
        "--port",
        type=_port,
        default=PORT,
        metavar="NUMBER",
        help="Port of gRPC; 0 picks free ones, also for the console. Default: %(default)s.",
    )
    parser.add_argument(
        "--http-port",
        type=_port,
        metavar="NUMBER",
        help=f"Port of the console and of JSON over HTTP. Default: {HTTP_PORT}.",
    )
    flags = vars(parser.parse_args(arguments))
    for flag, own_flag in _FLAGS.items():
        if flag.strip("-").replace("-", "_") in flags:
            raise process.ConfigError(
                f"dev serves only this machine, and {flag} names an address; give {own_flag}, or "
                f"use `tuskpoint-server {flag} HOST:PORT`"
            )
    port = flags.pop("port")
    http_port = flags.pop("http_port", HTTP_PORT if port else 0)
    flags["listen"] = f"{HOST}:{port}"
    flags["http_listen"] = f"{HOST}:{http_port}" if can_serve_http() else ""
    settings = read_settings(flags, defaults={"log_level": "warning"})
    try:
        serve.run(settings, version, partial(_announce, version))
    except AddressError as error:
        taken, flag = (port, "--port") if error.flag == "--listen" else (http_port, "--http-port")
        raise process.StartError(
            error.code,
            f"port {taken} of {HOST} cannot be used: {error.reason}; {error.advice}choose "
            f"another: tuskpoint-server dev {flag} {_another(taken)} (0 picks a free one)",
        ) from None
    print(f"stopped; {_data(settings.config)}")  # noqa: T201 - for who started it
    return 0


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a port is a number up to 65535, not '{text}'")
    return int(text)


def _another(port: int) -> int:
    """Return a port to suggest in place of a port that cannot be used."""
    return port + 10 if 1024 <= port <= 65525 else PORT + 10


def _announce(version: str, config: Config, server: Server) -> None:
    serve.announce_addresses(config, server)
    address = start_line.address(config, server)
    lines = [f"version {version}", *_lack_of_console(config, server), _data(config)]
    options = ', token="TOKEN"' if config.tokens else ""
    if config.tls_cert is not None:
        options += ', ca_file="CA.pem"'
    lines += [
        "",
        "Paste into Python:",
        f'  from tuskpoint import Client; client = Client("{address}"{options}); '
        'client.save("hello", {"step": 1}); print(client.load("hello").state)',
        "",
        "Ctrl-C stops the server.",
    ]
    print("\n".join(lines), flush=True)  # noqa: T201 - for who started it


def _lack_of_console(config: Config, server: Server) -> list[str]:
    """Return a line if this installation has no console."""
    if not config.http_listen:
        return [
            "no console and no JSON over HTTP: their libraries are not installed; "
            "pip install 'tuskpoint-server[http]'"
        ]
    if not server.has_console:
        return ["the console is not built in this installation; in a checkout: make console"]
    return []


def _data(config: Config) -> str:
    """Return the location of the data, for a line."""
    text = f"data in {config.data_dir.absolute()}"
    if config.journal:
        text += f", journal in {config.journal_name}"
    if config.walrus_aggregator_url:
        text += ", blobs on Walrus"
    elif config.bucket or config.blob_directory != config.data_dir / "blobs":
        text += f", blobs in {without_secrets(config.bucket) or config.blob_directory.absolute()}"
    return text
