"""An audit imports neither the server nor gRPC, and runs where both are absent."""

from __future__ import annotations

import pkgutil
import sys

import pytest

import tuskpoint.audit
from tests.unit.client.package.programs import run
from tuskpoint.cli import main

MODULES = [
    module.name
    for module in pkgutil.walk_packages(tuskpoint.audit.__path__, f"{tuskpoint.audit.__name__}.")
]


def test_all_of_it_is_imported_without_the_server_and_without_grpc() -> None:
    program = f"""
        import sys
        from importlib import import_module

        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in ("tuskpoint_server", "grpc", "grpc_status"):
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

        sys.meta_path.insert(0, Absent())
        for name in {MODULES!r}:
            import_module(name)
        print(len({MODULES!r}))
    """
    assert int(run(program)) > 10


def test_without_httpx_the_command_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    assert main(["audit", "catalog", "x", "--aggregator", "http://127.0.0.1:1"]) == 2
    assert "pip install 'tuskpoint[cli]'" in capsys.readouterr().err
