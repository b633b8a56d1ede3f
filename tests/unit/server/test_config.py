"""A setting is a flag, a variable and a key; mistakes are reported in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuskpoint_server.config import settings
from tuskpoint_server.config.command_line import server_parser
from tuskpoint_server.config.settings import Config
from tuskpoint_server.config.sources import from_flags
from tuskpoint_server.core.process import ConfigError


def load(*argv: str) -> Config:
    return from_flags(vars(server_parser("1.2.3").parse_args(argv)))


def refusal(*argv: str) -> str:
    """Return the error that settings cause: one line."""
    with pytest.raises(ConfigError) as refused:
        load(*argv)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("TUSKPOINT_", "OTEL_", "WALRUS_", "MEMWAL_")):
            monkeypatch.delenv(name)


def test_defaults_need_nothing() -> None:
    settings = load()
    assert settings.listen == "127.0.0.1:7390"
    assert str(settings.data_dir) == ".tuskpoint"
    assert settings.blob_directory == settings.data_dir / "blobs"
    assert settings.pointer == settings.data_dir / "catalog"
    assert settings.telemetry == "none"


def test_flag_beats_variable_beats_file_beats_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "server.toml"
    file.write_text("cache_bytes = 3\ndrain_grace = 3.0\nflush_interval = 3.0\n")
    monkeypatch.setenv("TUSKPOINT_CACHE_BYTES", "2")
    monkeypatch.setenv("TUSKPOINT_DRAIN_GRACE", "2")
    settings = load("--config", str(file), "--cache-bytes", "1")
    assert settings.cache_bytes == 1
    assert settings.drain_grace == 2
    assert settings.flush_interval == 3
    assert settings.max_call_seconds == Config.model_fields["max_call_seconds"].default


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUSKPOINT_DATA_DIR", "")
    assert str(load().data_dir) == ".tuskpoint"


def test_the_file_can_be_named_by_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "server.toml"
    file.write_text("reflection = true\n")
    monkeypatch.setenv("TUSKPOINT_CONFIG", str(file))
    assert load().reflection
    assert not load("--no-reflection").reflection


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        load("--version")
    assert ended.value.code == 0
    assert capsys.readouterr().out == "tuskpoint-server 1.2.3\n"


@pytest.mark.parametrize(
    ("argv", "reported"),
    [
        (["--no-such-flag"], "--no-such-flag"),
        (["stray"], "stray"),
        (["--listen"], "--listen"),
        (["--listen", "7390"], "HOST:PORT"),
        (["--listen", "::1:7390"], "[::1]:7390"),
        (["--listen", "127.0.0.1:x"], "HOST:PORT"),
        (["--listen", "127.0.0.1:70000"], "HOST:PORT"),
        (["--listen", "0.0.0.0:7390"], "--insecure-plaintext"),
        (["--listen", "[::]:7390"], "--insecure-plaintext"),
        (["--listen", "agents.example:7390"], "--insecure-plaintext"),
        (["--http-listen", "7391"], "HOST:PORT"),
        (
            ["--http-listen", "0.0.0.0:7391"],
            "--http-listen 0.0.0.0:7391 would serve",
        ),
        (
            ["--http-origins", "console.example.com"],
            "--http-origins has console.example.com",
        ),
        (
            ["--http-origins", "https://example.com/"],
            "https://example.com/, which is not an origin",
        ),
        (["--http-origins", "https://"], "https://, which is not an origin"),
        (["--http-origins", "https://Example.com"], "is not an origin"),
        (["--http-origins", "*"], "is not an origin"),
        (["--http-origins", "null"], "is not an origin"),
        (["--cache-bytes", "many"], "--cache-bytes"),
        (["--cache-bytes", "-1"], "--cache-bytes"),
        (["--flush-interval", "0"], "--flush-interval"),
        (["--log-level", "loud"], "--log-level"),
        (["--otel", "jaeger"], "--otel"),
        (["--backlog-soft-limit", "2", "--backlog-hard-limit", "1"], "--backlog-soft-limit"),
        (["--memwal-namespace", ""], "--memwal-namespace"),
        (["--memwal-namespace", "ä" * 65], "--memwal-namespace must be at most 128 bytes"),
        (["--walrus-renew-margin", "3", "--walrus-epochs", "3"], "--walrus-renew-margin"),
        (["--config", "no/such/file.toml"], "no/such/file.toml"),
    ],
)
def test_a_bad_setting_is_reported_in_one_line(argv: list[str], reported: str) -> None:
    assert reported in refusal(*argv)


@pytest.mark.parametrize(
    ("text", "reported"), [("no_such_key = 1", "no_such_key"), ("x = = 1", "not TOML")]
)
def test_a_bad_file_is_reported_in_one_line(tmp_path: Path, text: str, reported: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text(text)
    assert reported in refusal("--config", str(file))


@pytest.mark.parametrize("kind", ["publisher", "aggregator"])
def test_a_password_in_a_url_of_walrus_comes_from_a_variable(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WALRUS_AGGREGATOR_URL", raising=False)
    url = "https://me:secret@walrus.example"
    problem = refusal(f"--walrus-{kind}-url", "http://127.0.0.1", f"--walrus-{kind}-url", url)
    assert f"--walrus-{kind}-url has a password" in problem
    assert f"set WALRUS_{kind.upper()}_URL" in problem
    assert "secret" not in problem
    monkeypatch.setenv("WALRUS_AGGREGATOR_URL", url)
    assert load().walrus_aggregator_url == (url,)


def test_memwals_own_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMWAL_PRIVATE_KEY", "seed")
    monkeypatch.setenv("MEMWAL_ACCOUNT_ID", "0xaccount")
    monkeypatch.setenv("MEMWAL_NAMESPACE", "theirs")
    monkeypatch.setenv("TUSKPOINT_MEMWAL_NAMESPACE", "ours")
    settings = load()
    assert settings.memwal_private_key.get_secret_value() == "seed"
    assert (settings.memwal_account_id, settings.memwal_namespace) == ("0xaccount", "ours")
    assert "seed" not in repr(settings)


def test_a_secret_that_cannot_be_one_is_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("embedder_key = 4711")
    problem = refusal("--config", str(file))
    assert f"{file}: embedder_key: " in problem
    assert "4711" not in problem


def test_excluded_names_may_be_set_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUSKPOINT_SEARCH_EXCLUDE", "password, api_key token")
    assert load().search_exclude == ("password", "api_key", "token")
    origins = ("https://console.example.com", "http://localhost:5173", "http://[::1]:1")
    monkeypatch.setenv("TUSKPOINT_HTTP_ORIGINS", " ".join(origins))
    assert load().http_origins == origins


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "[::1]"])
def test_loopback_needs_no_permission(host: str) -> None:
    assert load("--listen", f"{host}:0").listen == f"{host}:0"


def test_other_machines_need_permission() -> None:
    assert load("--listen", "0.0.0.0:1", "--insecure-plaintext").insecure_plaintext


TLS = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"]
EVERYWHERE = ["--listen", "0.0.0.0:1"]
HTTP = ["--http-listen", "0.0.0.0:1"]


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["--tls-cert", "cert.pem"], "--tls-cert is set and --tls-key is not"),
        (["--tls-key", "key.pem"], "--tls-key is set and --tls-cert is not"),
        (["--tls-client-ca", "ca.pem"], "--tls-client-ca is set and --tls-cert is not"),
        ([*EVERYWHERE, "--tokens", "t.toml"], "--tls-cert and --tls-key, or add --insecure-plain"),
        ([*EVERYWHERE, "--insecure-anonymous"], "--insecure-plaintext"),
        ([*EVERYWHERE, *TLS], "--tokens or --tls-client-ca, or add --insecure-anonymous"),
        ([*EVERYWHERE, *TLS, "--insecure-plaintext"], "--insecure-anonymous"),
        ([*HTTP, "--tokens", "t.toml"], "--tls-cert and --tls-key, or add --insecure-plain"),
        ([*HTTP, *TLS], "--tokens or --tls-client-ca, or add --insecure-anonymous"),
    ],
)
def test_a_server_open_by_accident_is_refused(arguments: list[str], reported: str) -> None:
    assert reported in refusal(*arguments)


def test_a_token_in_place_of_the_file_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    token = "tusk_" + "x" * 43
    assert token not in refusal("--tokens", token)
    monkeypatch.setenv("TUSKPOINT_TOKEN", token)  # a variable of clients
    assert load().tokens is None


@pytest.mark.parametrize(
    "arguments",
    [
        TLS,
        ["--tokens", "t.toml"],
        [*TLS, "--tls-client-ca", "ca.pem", "--tokens", "t.toml"],
        [*EVERYWHERE, *TLS, "--tokens", "t.toml"],
        [*EVERYWHERE, *TLS, "--tls-client-ca", "ca.pem"],
        [*EVERYWHERE, *TLS, "--insecure-anonymous"],
        [*EVERYWHERE, "--tokens", "t.toml", "--insecure-plaintext"],
        [*HTTP, *TLS, "--tokens", "t.toml"],
        [*HTTP, "--insecure-plaintext"],
        ["--http-listen", "[::1]:0"],
    ],
)
def test_a_server_secured_or_open_on_purpose_is_allowed(arguments: list[str]) -> None:
    assert load(*arguments).listen


@pytest.mark.parametrize(
    ("variables", "telemetry"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4317"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"),
        ({"OTEL_METRICS_EXPORTER": "console"}, "console"),
        ({"OTEL_TRACES_EXPORTER": "none"}, "none"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, "none"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "TUSKPOINT_OTEL": "none"}, "none"),
    ],
)
def test_opentelemetry_variables_work_unchanged(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], telemetry: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert load().telemetry == telemetry


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "agents.example"])
def test_addresses_are_split(host: str) -> None:
    address = f"[{host}]:7390" if ":" in host else f"{host}:7390"
    assert settings.split_address(address) == (host, 7390)


# --- Walrus --------------------------------------------------------------------------------

URL, OTHER = "http://127.0.0.1:31415", "http://127.0.0.1:31416"


def test_ecosystem_variables_are_read_and_own_ones_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALRUS_PUBLISHER_URL", URL)
    monkeypatch.setenv("WALRUS_AGGREGATOR_URL", f"{URL}, {OTHER}")
    monkeypatch.setenv("WALRUS_EPOCHS", "7")
    monkeypatch.setenv("TUSKPOINT_PUBLIC", "true")
    settings = load()
    assert settings.walrus_publisher_url == (URL,)
    assert settings.walrus_aggregator_url == (URL, OTHER)
    assert settings.walrus_epochs == 7
    monkeypatch.setenv("TUSKPOINT_WALRUS_PUBLISHER_URL", OTHER)
    monkeypatch.setenv("WALRUS_EPOCHS", "")
    settings = load("--walrus-aggregator-url", OTHER, "--walrus-aggregator-url", URL)
    assert settings.walrus_publisher_url == (OTHER,)
    assert settings.walrus_aggregator_url == (OTHER, URL)
    assert settings.walrus_epochs == 5


def test_a_url_names_a_bucket_or_a_directory() -> None:
    assert load("--blobs", "s3://bucket/prefix").bucket == "s3://bucket/prefix"
    directory = load("--blobs", "file:///srv/some%20blobs")
    assert (directory.bucket, str(directory.blob_directory)) == ("", "/srv/some blobs")
    assert load().bucket == ""


def test_flushes_are_rarer_where_each_is_billed() -> None:
    walrus = ["--walrus-publisher-url", URL, "--walrus-aggregator-url", URL, "--public"]
    assert load().flush_seconds < load(*walrus).flush_seconds
    assert load(*walrus, "--flush-interval", "1").flush_seconds == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--walrus-publisher-url", URL], "--walrus-aggregator-url is not"),
        (["--walrus-aggregator-url", URL, "--blob-dir", "b"], "both --blob-dir"),
        (
            ["--walrus-aggregator-url", URL, "--blobs", "s3://b"],
            "both --blobs .* the bucket",
        ),
        (["--blobs", "s3://b", "--blob-dir", "b"], "both --blob-dir and --blobs"),
        (["--blobs", "file://host/b"], "is not file:///DIRECTORY"),
        (["--blobs", "file:///"], "is not file:///DIRECTORY"),
        (["--walrus-epochs", "1"], "--walrus-epochs"),
        (["--walrus-epochs", "54"], "--walrus-epochs"),
        (["--walrus-epoch-seconds", "1e300"], "--walrus-epoch-seconds"),
        (["--walrus-epoch-seconds", "0"], "--walrus-epoch-seconds"),
        (["--walrus-renew-margin", "0"], "--walrus-renew-margin"),
        (["--walrus-renew-interval", "inf"], "--walrus-renew-interval"),
        (["--walrus-puts-at-once", "0"], "--walrus-puts-at-once"),
        (["--walrus-puts-at-once", "257"], "--walrus-puts-at-once"),
        (["--walrus-max-put-bytes", "10485759"], "--walrus-max-put-bytes"),
        (["--walrus-max-put-bytes", "62914561"], "--walrus-max-put-bytes"),
        (["--walrus-put-timeout", "nan"], "--walrus-put-timeout"),
        (["--walrus-put-timeout", "0"], "--walrus-put-timeout"),
        (["--walrus-jwt-algorithm", "none"], "--walrus-jwt-algorithm"),
        (["--walrus-jwt-algorithm", "RS256"], "--walrus-jwt-algorithm"),
        (["--walrus-jwt-lifetime", "0"], "--walrus-jwt-lifetime"),
        (["--walrus-jwt-lifetime", "3601"], "--walrus-jwt-lifetime"),
        (["--packing", "box"], "--packing"),
    ],
)
def test_walrus_settings_that_cannot_be_used(arguments: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(*arguments)
