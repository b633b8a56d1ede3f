"""The file of webhooks, which has the addresses that get events of threads.

docs/servers/webhooks.md describes the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ...auth.tokens import Entry, EntryError, tenant_name, token_name
from ...core.limits import LIMITS, text_problem
from ...core.process import ConfigError, read_bytes
from ...core.webhooks import EVERY_TENANT, SigningSecret, Webhook, WebhookEvent
from ...features.webhooks.signing import parse_secrets

_EVENTS = {event.type: event for event in WebhookEvent}
_MAX_URL = 2048


@dataclass(frozen=True, slots=True)
class WebhookFile:
    """The content of a file of webhooks."""

    webhooks: tuple[Webhook, ...]
    console_url: str = ""


def read_webhooks(path: Path) -> WebhookFile:
    """Return the content of a file of webhooks, and of its files of secrets.

    Raises:
        ConfigError: A file cannot be used.
    """
    file = f"--webhooks {path}"
    try:
        document = tomllib.loads(read_bytes("--webhooks", path).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    tables, console_url = document.pop("webhook", []), document.pop("console_url", "")
    if document or not isinstance(tables, list):
        raise ConfigError(
            f"{file}: write each entry as [[webhook]], and above them at most console_url"
        )
    try:
        console = _url(console_url) if console_url else ""
    except EntryError as error:
        raise ConfigError(f"{file}: console_url: {error}") from None
    webhooks: dict[str, Webhook] = {}
    for number, table in enumerate(tables, start=1):
        try:
            webhook = _webhook(table, path.parent)
            if webhook.name in webhooks:
                raise EntryError("name: an earlier entry has the same")
        except EntryError as error:
            raise ConfigError(f"{file}: webhook {number}: {error}") from None
        webhooks[webhook.name] = webhook
    return WebhookFile(tuple(webhooks.values()), console)


def _webhook(table: object, folder: Path) -> Webhook:
    if not isinstance(table, Mapping):
        raise EntryError("write it as [[webhook]]")
    entry = Entry(dict(table))
    allow_private = entry.take_or("allow_private", _switch, otherwise=False)
    webhook = Webhook(
        entry.take("name", token_name),
        entry.take("url", _url),
        entry.take("events", _events),
        entry.take_or("tenant", _tenant, EVERY_TENANT),
        entry.take_or("agents", _agents, ()),
        _secrets(folder / entry.take("secret_file", _path)),
        allow_private,
    )
    entry.end()
    if webhook.url.startswith("http:") and not allow_private:
        raise EntryError(
            "url: an http address needs allow_private; everybody could read the events"
        )
    return webhook


def _secrets(path: Path) -> tuple[SigningSecret, ...]:
    try:
        return parse_secrets(read_bytes("secret_file", path).decode("ascii"))
    except ConfigError as error:  # it names the key and the file
        raise EntryError(str(error)) from None
    except ValueError as error:
        raise EntryError(f"secret_file: {path} cannot be used: {error}") from None


def _url(value: object) -> str:
    wanted = "an https address with a host, at most 2,048 characters, without user and password"
    if not isinstance(value, str) or not value.isprintable() or len(value) > _MAX_URL:
        raise EntryError(wanted)
    try:
        parts = urlsplit(value)
        is_valid = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_valid = False
    if not is_valid or parts.scheme not in ("https", "http") or "@" in parts.netloc or " " in value:
        raise EntryError(wanted)
    return value


def _events(value: object) -> frozenset[WebhookEvent]:
    names = ", ".join(_EVENTS)
    if not isinstance(value, list) or not value:
        raise EntryError(f"a list of at least one of {names}")
    for name in value:
        if not isinstance(name, str) or name not in _EVENTS:
            raise EntryError(f"events are {names}")
    return frozenset(_EVENTS[name] for name in value)


def _agents(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise EntryError("a list of names of agents; leave the key out for all agents")
    for name in value:
        if not isinstance(name, str) or text_problem(name, LIMITS.max_agent_id, required=True):
            raise EntryError(f"a name of an agent is a text of 1 to {LIMITS.max_agent_id} bytes")
    return tuple(value)


def _tenant(value: object) -> str:
    return EVERY_TENANT if value == EVERY_TENANT else tenant_name(value)


def _path(value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise EntryError("the path of a file, relative to this file")
    return value


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise EntryError("true or false")
    return value
