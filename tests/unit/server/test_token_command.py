"""`tuskpoint-server token` shows the token once, and writes a whole entry or nothing."""

from __future__ import annotations

import os
import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.auth.tokens import parse_tokens, read_tokens
from tuskpoint_server.commands import token
from tuskpoint_server.commands.token import new_token
from tuskpoint_server.core.credentials import Grant, Scope, token_digest
from tuskpoint_server.core.process import ConfigError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = re.compile(r"tusk_[A-Za-z0-9_-]{43}")
NAMED = ["--name", "ci", "--scope", "read"]


def expiry(text: str) -> datetime | None:
    return token.parse([*NAMED, "--expires", text], now=NOW)[0].expires


def test_a_token_and_its_entry_go_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--name", "ci", "--tenant", "acme", "--scope", "read", "--scope", "write"]
    assert tuskpoint_server(["token", *arguments]) == 0
    out, err = capsys.readouterr()
    token, _, entry = out.partition("\n\n")
    assert TOKEN.fullmatch(token)
    grants = parse_tokens(entry.encode(), "stdout")
    assert grants.find(token_digest(token)) == Grant(
        "ci", "acme", frozenset({Scope.READ, Scope.WRITE})
    )
    assert not err


def test_entries_are_appended_and_only_the_owner_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tokens.toml"
    made = []
    for name in ("first", "second"):
        assert (
            tuskpoint_server(["token", "--name", name, "--scope", "read", "--append", str(file)])
            == 0
        )
        made.append(capsys.readouterr().out.removesuffix("\n"))
        assert TOKEN.fullmatch(made[-1]), "the token alone"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.chmod(0o644)
    grants = read_tokens(file, certificates=False)
    appended_grants = [grants.find(token_digest(token)) for token in made]
    assert [grant.name for grant in appended_grants if grant] == ["first", "second"]
    assert os.listdir(tmp_path) == ["tokens.toml"]


def test_comments_and_a_last_line_without_a_newline_stay(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text("# of the whole team")
    token.append(file, new_token(Grant("a", "t", frozenset(Scope)))[1])
    assert file.read_text().startswith("# of the whole team\n\n[[token]]\n")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("tokens.toml")
    assert tuskpoint_server(["token", *NAMED, "--append", str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "tokens.toml").is_file()


def test_a_file_that_cannot_be_replaced_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tokens.toml"
    assert tuskpoint_server(["token", *NAMED, "--append", str(file)]) == 0
    before = file.read_bytes()
    capsys.readouterr()

    def fail(*names: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    assert tuskpoint_server(["token", *NAMED, "--append", str(file)]) == 5
    out, err = capsys.readouterr()
    assert not out, "no token that nobody knows"
    assert "No space left on device; nothing is changed" in err
    assert file.read_bytes() == before
    assert os.listdir(tmp_path) == ["tokens.toml"]


def test_a_file_that_is_no_token_file_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.toml"
    file.write_text("listen = '127.0.0.1:0'\n")
    assert tuskpoint_server(["token", *NAMED, "--append", str(file)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert "'listen' is not a kind of entry" in err
    assert file.read_text() == "listen = '127.0.0.1:0'\n"


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        ([], "--name"),
        (["--name", "ci"], "--scope"),
        ([*NAMED, "--scope", "raed"], "--scope: 'raed' is not a scope; scopes are read, write"),
        (["--name", "", "--scope", "read"], "--name: a name has 1 to 64"),
        ([*NAMED, "--tenant", "A"], "--tenant: a tenant is 1 to 64"),
        ([*NAMED, "--expires", "soon"], "--expires: days from now, such as 90d"),
        ([*NAMED, "--expires", "2999-01-01"], "--expires: days from now"),
        ([*NAMED, "--expires", "0d"], "--expires: days from now"),
        ([*NAMED, "--expires", "9999-12-31T23:59:59-01:00"], "--expires: days from now"),
        ([*NAMED, "--expires", "2020-01-01T00:00:00Z"], "--expires: 2020-01-01T00:00:00Z is in"),
        ([*NAMED, "--append"], "--append"),
        ([*NAMED, "stray"], "stray"),
    ],
)
def test_bad_arguments_are_reported_in_one_line(
    arguments: list[str], reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tuskpoint_server(["token", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    [line] = err.splitlines()
    assert line.startswith("tuskpoint-server: ")
    assert reported in line


def test_a_directory_that_is_not_there_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gone" / "tokens.toml"
    assert tuskpoint_server(["token", *NAMED, "--append", str(file)]) == 5
    assert f"--append {file} cannot be written: No such file" in capsys.readouterr().err


def test_an_expiry_is_days_from_now_or_a_time() -> None:
    assert expiry("90d") == NOW + timedelta(days=90)
    assert expiry("2027-01-01T00:00:00Z") == datetime(2027, 1, 1, tzinfo=UTC)
    assert expiry("2027-01-01T02:00:00+02:00") == datetime(2027, 1, 1, tzinfo=UTC)
    with pytest.raises(ConfigError):
        expiry("2027-01-01T00:00:00")
