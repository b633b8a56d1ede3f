"""`tuskpoint-server health` exits with 0 if the server with the same settings serves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.integration.access.tls_kit import write_certificates, write_tokens
from tests.kit.servers.processes import own_environment, unused_port
from tuskpoint_server.commands import health, serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core import process


async def checked(*arguments: str) -> int:
    return await asyncio.to_thread(health.main, arguments)


async def test_a_server_in_plaintext_is_checked_on_loopback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Config(listen="0.0.0.0:0", data_dir=tmp_path, insecure_plaintext=True)
    async with serve.running_server(config) as server:
        arguments = ("--listen", f"0.0.0.0:{server.port}", "--insecure-plaintext")
        assert await checked(*arguments) == 0
        server._health.set(serving=False)
        assert await checked(*arguments) == process.EXIT_DEFECT
        assert "does not serve: it is NOT_SERVING" in capsys.readouterr().err
    assert await checked(*arguments) == process.EXIT_DEFECT
    assert f"127.0.0.1:{server.port} does not serve" in capsys.readouterr().err


@pytest.mark.parametrize("client_ca", [False, True])
@pytest.mark.parametrize("name", ["agents.example", "*.agents.example", "192.0.2.7"])
async def test_a_certificate_need_not_name_loopback(
    tmp_path: Path, name: str, client_ca: bool
) -> None:
    issuer = trustme.CA()
    made = write_certificates(tmp_path / "tls", ca=issuer)
    issued = issuer.issue_cert(name)
    made.cert.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(made.key))
    write_tokens(tmp_path / "tokens.toml")
    settings: dict[str, Any] = {
        "tls_cert": made.cert,
        "tls_key": made.key,
        "tokens": tmp_path / "tokens.toml",
    }
    if client_ca:
        settings["tls_client_ca"] = made.ca
    config = Config(listen="127.0.0.1:0", data_dir=tmp_path / "data", **settings)
    async with serve.running_server(config) as server:
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in settings.items()]
        assert await checked("--listen", f"127.0.0.1:{server.port}", *flags) == 0


def test_a_setting_that_cannot_be_used_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    files = [f"--tls-{name}={tmp_path}/{name}.pem" for name in ("cert", "key")]
    for arguments, problem in (
        (["--listen", "127.0.0.1:0"], "port 0"),
        (files, "no certificate"),
    ):
        assert health.main(arguments) == process.EXIT_CONFIG
        assert problem in capsys.readouterr().err


def test_the_program_loads_no_more_than_it_needs() -> None:
    program = (
        "import sys; from tuskpoint_server import __main__;"
        "code = __main__.main();"
        "print(code, [name for name in sys.modules if name in ('sqlalchemy', 'numpy')])"
    )
    arguments = ["health", "--listen", f"127.0.0.1:{unused_port()}"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=own_environment(),
    )
    assert done.stdout == "1 []\n"
