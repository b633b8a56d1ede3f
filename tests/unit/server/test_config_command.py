"""`tuskpoint-server config` shows settings with their origins, typos, and problems of a start."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.access.tls_kit import write_certificates
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.config.settings import Config
from tuskpoint_server.config.sources import CLIENT_VARIABLES, from_flags, without_secrets
from tuskpoint_server.core.process import EXIT_CONFIG

Printed = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(("TUSKPOINT_", "OTEL_", "WALRUS_", "MEMWAL_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def printed_by(capsys: Printed, *arguments: str) -> str:
    assert tuskpoint_server(["config", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def refused(capsys: Printed, *arguments: str) -> list[str]:
    """Return the lines of a `config` that ends with 2."""
    assert tuskpoint_server(["config", *arguments]) == EXIT_CONFIG
    printed = capsys.readouterr()
    assert printed.out == ""
    return [line.removeprefix("tuskpoint-server: ") for line in printed.err.splitlines()]


def test_each_setting_has_its_value_and_its_origin(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("server.toml").write_text('cache_bytes = 3\nsearch_exclude = ["a", "b"]\n')
    monkeypatch.setenv("TUSKPOINT_DRAIN_GRACE", "2")
    monkeypatch.setenv("WALRUS_EPOCHS", "7")
    text = printed_by(capsys, "--config", "server.toml", "--data-dir", "d", "--no-search")
    lines = {" ".join(line.split()) for line in text.splitlines()}
    assert lines >= {
        'data_dir = "d" # command line',
        "search = false # command line",
        "drain_grace = 2.0 # variable TUSKPOINT_DRAIN_GRACE",
        "walrus_epochs = 7 # variable WALRUS_EPOCHS",
        "cache_bytes = 3 # file server.toml",
        'search_exclude = ["a", "b"] # file server.toml',
        'listen = "127.0.0.1:7390" # default',
        "# blob_dir: not set # default",
    }
    for name in Config.model_fields:
        assert len(re.findall(rf"^(?:# )?{name}(?: =|:) ", text, re.MULTILINE)) == 1, name


def test_what_is_printed_is_a_settings_file(capsys: Printed, tmp_path: Path) -> None:
    arguments = ["--listen", "[::1]:1", "--search-exclude", 'a"\\', "--flush-interval", "7"]
    file = tmp_path / "printed.toml"
    file.write_text(printed_by(capsys, *arguments, "--data-dir", "Zoë"))
    assert from_flags({"config": str(file)}) == Config(
        listen="[::1]:1", search_exclude=('a"\\',), flush_interval=7, data_dir=Path("Zoë")
    )


def test_secrets_are_hidden(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUSKPOINT_EMBEDDER_KEY", "s3cret")
    monkeypatch.setenv("MEMWAL_PRIVATE_KEY", "s3cret")
    monkeypatch.setenv("TUSKPOINT_KEYS", "s3cret")
    monkeypatch.setenv("TUSKPOINT_JOURNAL", "postgresql://me:s3cret@db/x?sslpassword=s3cret&a=b")
    monkeypatch.setenv("WALRUS_PUBLISHER_URL", "https://me:s3cret@a.example https://b.example")
    monkeypatch.setenv("WALRUS_AGGREGATOR_URL", "https://b.example")
    text = printed_by(capsys)
    assert "s3cret" not in text
    lines = {" ".join(line.split()) for line in text.splitlines()}
    assert lines >= {
        "# embedder_key: hidden # variable TUSKPOINT_EMBEDDER_KEY",
        "# memwal_private_key: hidden # variable MEMWAL_PRIVATE_KEY",
        "# journal: postgresql://me:***@db/x?sslpassword=***&a=b # variable TUSKPOINT_JOURNAL",
        "# walrus_publisher_url: https://me:***@a.example https://b.example "
        "# variable WALRUS_PUBLISHER_URL",
        'walrus_aggregator_url = ["https://b.example"] # variable WALRUS_AGGREGATOR_URL',
    }


@pytest.mark.parametrize("text", ["", "no url", "http://[", "s3://bucket/a?region=eu", "a=b&c"])
def test_a_text_without_a_password_is_shown_as_it_is(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    ("variable", "problem"),
    [
        ("TUSKPOINT_DATADIR", "did you mean TUSKPOINT_DATA_DIR?"),
        ("TUSKPOINT_LISTN", "did you mean TUSKPOINT_LISTEN?"),
        ("TUSKPOINT_CONFIGS", "did you mean TUSKPOINT_CONFIG?"),
        ("TUSKPOINT_TOKNES", "did you mean TUSKPOINT_TOKENS?"),
    ],
)
def test_a_mistyped_variable_is_refused(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch, variable: str, problem: str
) -> None:
    monkeypatch.setenv(variable, "s3cret")
    line = f"variable {variable} is not a setting; {problem}"
    assert refused(capsys) == refused(capsys, "--check") == [line]
    assert tuskpoint_server(["--listen", "127.0.0.1:0"]) == EXIT_CONFIG


def test_variables_of_other_programs_are_not_refused(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_kubernetes = ("SERVICE_HOST", "SERVICE_PORT_GRPC", "PORT", "PORT_7390_TCP_ADDR")
    for name in ("FAILPOINT", *of_kubernetes, *(f"AGENTS_{name}" for name in of_kubernetes)):
        monkeypatch.setenv(f"TUSKPOINT_{name}", "x")
    for variable in CLIENT_VARIABLES - {"TUSKPOINT_KEYS", "TUSKPOINT_KEY_FILE"}:
        monkeypatch.setenv(variable, "x")
    assert printed_by(capsys, "--check") == "the settings can be used\n"
    monkeypatch.setenv("TUSKPOINT_COLOUR", "x")
    assert tuskpoint_server(["config", "--check"]) == 0
    assert "variable TUSKPOINT_COLOUR is ignored" in capsys.readouterr().err


def test_the_variables_of_the_clients_are_known() -> None:
    sources = [
        path
        for folder in ("python/src", "typescript/src", "go")
        for path in (ROOT / "clients" / folder).rglob("*")
        if path.suffix in (".go", ".py", ".ts") and "test" not in path.parent.name
    ]
    named = {
        variable
        for path in sources
        for variable in re.findall(r"""["'](TUSKPOINT_[A-Z_]+)["']""", path.read_text("utf-8"))
    }
    assert named == CLIENT_VARIABLES


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("data-dir = 1", "there is no setting 'data-dir'; did you mean data_dir?"),
        ("drain_gace = 1", "there is no setting 'drain_gace'; did you mean drain_grace?"),
        ("[server]\nlisten = 1", "there is no setting 'server'"),
        ("cache_bytes = -1", "cache_bytes: input should be greater than or equal to 0, not '-1'"),
    ],
)
def test_a_key_that_cannot_be_used_is_named_with_its_file(
    capsys: Printed, text: str, problem: str
) -> None:
    Path("server.toml").write_text(text)
    [line] = refused(capsys, "--config", "server.toml")
    assert line.startswith(f"server.toml: {problem}")


def test_a_file_that_cannot_be_read_is_not_called_missing(capsys: Printed, tmp_path: Path) -> None:
    [line] = refused(capsys, "--config", str(tmp_path))
    assert line == f"--config: {tmp_path} cannot be read: Is a directory"


def test_a_value_of_a_variable_is_named_by_the_variable(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALRUS_EPOCHS", "many")
    [line] = refused(capsys)
    assert line.startswith("WALRUS_EPOCHS: ")
    assert line.endswith(", not 'many'")


def test_a_check_lists_every_problem_of_the_settings(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("server.toml").write_text("lisen = 1\nmemory_bytes = 1\n")
    monkeypatch.setenv("TUSKPOINT_DATADIR", "x")
    lines = refused(capsys, "--check", "--config", "server.toml", "--cache-bytes", "-1")
    assert [line.partition(": ")[0].partition(" is not")[0] for line in lines] == [
        "server.toml",
        "variable TUSKPOINT_DATADIR",
        "--cache-bytes",
        "server.toml",
    ]


def test_a_check_reads_the_files_that_settings_name_and_writes_nothing(
    capsys: Printed, tmp_path: Path
) -> None:
    made = write_certificates(tmp_path / "tls")
    tls = ["--tls-cert", str(made.cert), "--tls-key", str(made.key)]
    before = sorted(tmp_path.rglob("*"))
    assert printed_by(capsys, "--check", *tls) == "the settings can be used\n"
    bad = tmp_path / "bad"
    bad.write_text("[")
    lines = refused(
        capsys,
        "--check",
        *("--tls-cert", str(made.cert), "--tls-key", str(bad)),
        *("--key-file", str(tmp_path / "none")),
        *("--identity", str(tmp_path / "none")),
        *("--signing-key", str(tmp_path / "none")),
        *("--retention-file", str(bad)),
        *("--data-dir", str(bad / "data")),
        *("--walrus-aggregator-url", "http://127.0.0.1:1"),
    )
    flags = {flag for line in lines for flag in re.findall(r"^--[a-z-]+", line)}
    assert flags == {
        "--walrus-aggregator-url",
        "--tls-key",
        "--key-file",
        "--identity",
        "--signing-key",
        "--retention-file",
        "--data-dir",
    }
    bad.unlink()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_check_reports_folders_that_this_user_may_not_use(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The tests may run as root, which file permissions do not stop."""
    data = str(tmp_path / "locked" / "data")
    permits = {"lstat": os.lstat, "stat": os.stat}

    def refuse(name: str, path: Any, **options: Any) -> Any:
        if str(path).startswith(data):
            raise PermissionError(13, "Permission denied")
        return permits[name](path, **options)

    for name in permits:
        monkeypatch.setattr(os, name, partial(refuse, name))
    line = f"--data-dir {data} cannot be used: Permission denied"
    assert refused(capsys, "--check", "--data-dir", data) == [line]
    monkeypatch.undo()
    monkeypatch.setattr(os, "access", lambda *_: False)
    [line] = refused(capsys, "--check", "--data-dir", data)
    assert line.endswith(f"this user may not read and write {tmp_path}")
