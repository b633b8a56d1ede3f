"""The session of an application chooses its threads and its end; no server is needed."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint import ApplicationSession, Client
from tuskpoint.applications import MAX_LABEL_BYTES, input_label


@given(st.text(), st.integers(0, 300))
def test_a_label_is_the_message_as_far_as_it_fits(message: str, times: int) -> None:
    whole = " ".join((message * times).replace("\0", " ").split())
    label = input_label(message * times)
    assert 0 < len(label.encode()) <= MAX_LABEL_BYTES
    if not whole:
        assert label == "(empty)"
    else:
        assert whole.startswith(label)
        rest = whole[len(label) :].lstrip()
        assert not rest or len((label + " " + rest[0]).encode()) > MAX_LABEL_BYTES - 1


@pytest.mark.parametrize(
    ("message", "label"),
    [
        ("", "(empty)"),
        (" \n\0\t", "(empty)"),
        ("book a\n  flight\0", "book a flight"),
        ("x" * 300, "x" * 256),
        ("x" * 255 + "é", "x" * 255),
        ("x" * 254 + "é", "x" * 254 + "é"),
        ("🜁" * 100, "🜁" * 64),
        ("x" * 255 + " y", "x" * 255),
        ("\ud800", "?"),
    ],
)
def test_a_label_is_one_line_and_is_cut_between_characters(message: str, label: str) -> None:
    assert input_label(message) == label


def test_a_session_is_of_this_host_and_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    client = Client("h:1")
    assert ApplicationSession(client, session_id="s")._where == {
        "session_id": "s",
        "hostname": socket.gethostname(),
        "working_directory": str(tmp_path),
    }
    anywhere = ApplicationSession(client, hostname="", working_directory="")
    assert set(anywhere._where.values()) == {""}


def test_threads_belong_once_and_until_they_are_untracked() -> None:
    session = ApplicationSession(Client("h:1"), threads=["a", "b", "a"])
    session.untrack("a")
    session.untrack("never")
    assert session.threads == ("b",)


def own_handler(number: int, frame: Any) -> None:
    """Stand for a program's own signal handler."""


@pytest.fixture
def _sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_sigterm")
def test_the_signal_is_caught_while_a_session_is_open() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with pytest.raises(SystemExit) as caught, ApplicationSession(Client("h:1")):
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.usefixtures("_sigterm")
@pytest.mark.parametrize("handler", [own_handler, signal.SIG_IGN])
def test_a_programs_own_handler_stays(handler: Any) -> None:
    signal.signal(signal.SIGTERM, handler)
    with ApplicationSession(Client("h:1")):
        assert signal.getsignal(signal.SIGTERM) is handler
    assert signal.getsignal(signal.SIGTERM) is handler
