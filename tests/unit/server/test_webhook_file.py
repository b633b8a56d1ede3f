"""The file of webhooks is read, and each mistake in it is reported."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tuskpoint_server.commands.startup.webhook_file import WebhookFile, read_webhooks
from tuskpoint_server.core.process import ConfigError
from tuskpoint_server.core.webhooks import EVERY_TENANT, WebhookEvent

SECRET = "whsec_" + base64.b64encode(bytes(24)).decode()
ENTRY = """
[[webhook]]
name = "ops"
url = "https://hooks.example.com/T0"
events = ["thread.waiting"]
secret_file = "ops.secret"
"""


def read(tmp_path: Path, text: str) -> WebhookFile:
    (tmp_path / "ops.secret").write_text(SECRET + "\n")
    (tmp_path / "bad.secret").write_text("letmein\n")
    file = tmp_path / "webhooks.toml"
    file.write_text(text)
    return read_webhooks(file)


def test_webhooks_are_read(tmp_path: Path) -> None:
    more = 'tenant = "acme"\nagents = ["writer"]\nallow_private = true\n'
    found = read(tmp_path, 'console_url = "https://console.example.com"\n' + ENTRY + more)
    [hook] = found.webhooks
    assert (hook.name, hook.tenant, hook.agents, hook.allow_private) == (
        *("ops", "acme", ("writer",)),
        True,
    )
    assert hook.events == {WebhookEvent.THREAD_WAITING}
    assert hook.wants("acme", "writer", WebhookEvent.THREAD_WAITING)
    assert not hook.wants("acme", "writer", WebhookEvent.THREAD_FAILED)
    assert not hook.wants("acme", "planner", WebhookEvent.THREAD_WAITING)
    assert not hook.wants("other", "writer", WebhookEvent.THREAD_WAITING)
    assert found.console_url == "https://console.example.com"
    [hook] = read(tmp_path, ENTRY).webhooks
    assert (hook.tenant, hook.agents, hook.allow_private) == (EVERY_TENANT, (), False)
    assert read(tmp_path, "").webhooks == ()
    assert "T0" not in repr(hook)


BAD = [
    ("[[webhook", "is not TOML"),
    ("[[hook]]", r"write each entry as \[\[webhook\]\]"),
    ("[webhook]", r"write each entry as \[\[webhook\]\]"),
    ("[[webhook]]", "webhook 1: name is missing"),
    (ENTRY + ENTRY, "webhook 2: name: an earlier entry has the same"),
    (ENTRY + "retries = 3", "'retries' is not a key"),
    (ENTRY.replace("https:", "http:"), "an http address needs allow_private"),
    (ENTRY.replace("https:", "ftp:"), "url: an https address"),
    (ENTRY.replace("hooks.example.com", "user:pass@hooks.example.com"), "url: an https address"),
    (ENTRY.replace("hooks.example.com", "hooks.example.com:99999"), "url: an https address"),
    (ENTRY.replace('["thread.waiting"]', "[]"), "events: a list of at least one"),
    (ENTRY.replace("thread.waiting", "thread.saved"), "events: events are thread.waiting"),
    (ENTRY.replace("ops.secret", "none.secret"), "secret_file .*none.secret cannot be read"),
    (ENTRY.replace("ops.secret", "bad.secret"), "begins with whsec_"),
    (ENTRY + "agents = []", "agents: a list of names"),
    (ENTRY + 'agents = [""]', "agents: a name of an agent"),
    (ENTRY + 'tenant = "a b"', "tenant: a tenant is"),
    (ENTRY + "allow_private = 1", "allow_private: true or false"),
    ('console_url = "console"', "console_url: an https address"),
]


@pytest.mark.parametrize(("text", "problem"), BAD)
def test_a_mistake_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        read(tmp_path, text)
    assert "letmein" not in str(refused.value)
