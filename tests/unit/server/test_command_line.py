"""The program and its commands have help, and a mistyped command line gets a useful error."""

from __future__ import annotations

import importlib
import re

import pytest
from pydantic import SecretStr

from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.config.command_line import COMMANDS
from tuskpoint_server.config.option_groups import GROUPS
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.process import EXIT_CONFIG

Printed = pytest.CaptureFixture[str]


def help_of(capsys: Printed, *command: str) -> str:
    with pytest.raises(SystemExit) as ended:
        tuskpoint_server([*command, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def problem_of(capsys: Printed, *arguments: str) -> str:
    """Return the one line of the error of a command line."""
    assert tuskpoint_server(arguments) == EXIT_CONFIG
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    return line.removeprefix("tuskpoint-server: ")


def test_every_setting_is_in_one_group() -> None:
    names = [name for group in GROUPS.values() for name in group]
    assert sorted(names) == sorted(Config.model_fields)


def test_help_lists_every_setting_with_its_three_names(capsys: Printed) -> None:
    text = " ".join(help_of(capsys).split())
    for name, field in Config.model_fields.items():
        # Every user of a machine can read a program's options.
        has_option = re.search(rf" --{name.replace('_', '-')}[ ,]", text) is not None
        assert has_option is (field.annotation is not SecretStr), name
        assert f"TUSKPOINT_{name.upper()}" in text
        assert " ".join((field.description or "?").split()) in text


def test_help_has_the_commands_first_in_a_line_each_and_then_groups(capsys: Printed) -> None:
    lines = help_of(capsys).splitlines()
    begin = lines.index("commands:") + 1
    listed = [line.split(maxsplit=1) for line in lines[begin : begin + len(COMMANDS)]]
    assert dict(listed) == dict(COMMANDS)
    assert max(map(len, lines[: begin + len(COMMANDS)])) < 80
    titles = [line.removesuffix(":") for line in lines if re.fullmatch(r"[A-Za-z ]+:", line)]
    assert titles == ["commands", "options", *GROUPS]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_describes_what_matters_to_it(capsys: Printed, command: str) -> None:
    assert importlib.import_module(f"tuskpoint_server.commands.{command}").main
    text = help_of(capsys, command)
    assert text.startswith(f"usage: tuskpoint-server {command}")
    options = set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE))
    assert len(options) < 20
    assert "--walrus-epochs" not in text


@pytest.mark.parametrize("command", [["keys", "list"], ["keys", "drop"], ["keys", "create"]])
def test_commands_of_keys_describe_what_matters_to_them(
    capsys: Printed, command: list[str]
) -> None:
    text = help_of(capsys, *command)
    assert len(text.splitlines()) < 30


def test_a_command_takes_every_other_setting_too(capsys: Printed) -> None:
    assert "--walrus-epochs: " in problem_of(capsys, "health", "--walrus-epochs", "1")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--lisen", "127.0.0.1:0"], "unknown option --lisen; did you mean --listen?"),
        (["--data_dir=x"], "unknown option --data_dir; did you mean --data-dir?"),
        (["--port", "1"], "unknown option --port; see `tuskpoint-server --help`"),
        (["-x"], "unknown option -x; see `tuskpoint-server --help`"),
        (["devel"], "unknown command 'devel'; did you mean dev?"),
        (["7390"], "unknown command '7390'; see `tuskpoint-server --help`"),
        (["backup", "--too", "f"], "unknown option --too; did you mean --to?"),
        (["recover", "--catlog", "x"], "unknown option --catlog; did you mean --catalog?"),
        (["token", "--scopes", "read"], "unknown option --scopes; did you mean --scope?"),
        (["copy", "--form", "a"], "unknown option --form; did you mean --from?"),
        (["keys", "list", "f", "--datadir", "x"], "unknown option --datadir; did you mean --data-"),
        (["health", "now"], "unknown argument 'now'; see `tuskpoint-server health --help`"),
        (["dev", "--prot", "1"], "unknown option --prot; did you mean --port?"),
        (["config", "--chek"], "unknown option --chek; did you mean --check?"),
    ],
)
def test_a_mistyped_word_is_named_with_a_suggestion(
    capsys: Printed, arguments: list[str], problem: str
) -> None:
    assert problem_of(capsys, *arguments).startswith(problem)
