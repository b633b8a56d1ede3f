"""A command wraps and unwraps keys, and its failures are reported."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.keys import command
from tuskpoint_server.keys.command import CommandKeys

MEMBER = b"m" * 32
SERVICE = """
import base64, os, sys
data, mask = base64.b64decode(sys.stdin.readline()), os.environ["TUSKPOINT_TENANT"].encode()
open(sys.argv[1], "a").write(sys.argv[2] + "\\n")
print(base64.b64encode(mask + data if sys.argv[2] == "wrap" else data.removeprefix(mask)).decode())
"""


def keys_of(program: str, *arguments: str) -> CommandKeys:
    return CommandKeys(shlex.join([sys.executable, "-c", program, *arguments]))


async def problem_of(keys: CommandKeys, reason: Reason) -> str:
    with pytest.raises(Refusal) as caught:
        await keys.unwrap("acme", b"wrapped")
    assert caught.value.reason is reason
    return caught.value.message


async def test_a_command_wraps_and_unwraps_and_is_asked_once(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    keys = keys_of(SERVICE, str(log))
    wrapped = await keys.wrap("acme", MEMBER)
    assert wrapped == b"acme" + MEMBER
    assert [await keys.unwrap("acme", wrapped) for _ in range(3)] == [MEMBER] * 3
    assert log.read_text().split() == ["wrap", "unwrap"]


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; sys.exit('the vault is closed')", "code 1: the vault is closed"),
        ("print('no base64!')", "not base64"),
        ("pass", "not base64"),
    ],
)
async def test_a_command_that_fails_is_tried_again_later(program: str, said: str) -> None:
    assert said in await problem_of(keys_of(program), Reason.KEY_PROVIDER_UNAVAILABLE)


async def test_a_command_that_unwraps_something_else_is_wrong() -> None:
    said = await problem_of(keys_of("print('QUJD')"), Reason.KEY_WRONG)
    assert "3 bytes were unwrapped" in said


async def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "TIMEOUT_S", 0.2)
    keys = keys_of("import time; time.sleep(60)")
    assert "took longer" in await problem_of(keys, Reason.KEY_PROVIDER_UNAVAILABLE)


async def test_a_command_that_is_not_there_is_named() -> None:
    keys = CommandKeys("/no/such/program --flag")
    assert "cannot be run" in await problem_of(keys, Reason.KEY_PROVIDER_UNAVAILABLE)


@pytest.mark.parametrize("line", ["", "  ", "'unbalanced"])
def test_a_command_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"empty|quotation"):
        CommandKeys(line)
