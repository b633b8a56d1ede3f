"""Webhooks: addresses that get events of threads, and which events they want."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple
from urllib.parse import urlsplit

EVERY_TENANT = "*"


class WebhookEvent(IntEnum):
    """Kind of an event. The contract defines the numbers."""

    THREAD_WAITING = 1
    THREAD_FAILED = 2
    THREAD_CERTIFIED = 3
    HANDOFF_OFFERED = 4
    EFFECT_UNKNOWN = 5
    LEASE_TAKEN_OVER = 6

    @property
    def type(self) -> str:
        """The `type` of the payload, such as `thread.waiting`; the file of webhooks has it too."""
        return self.name.lower().replace("_", ".", 1)


class SigningSecret(NamedTuple):
    """A secret that signs payloads by a scheme of the Standard Webhooks specification.

    A `v1` secret is the key of HMAC-SHA256; a `v1a` secret is the seed of an Ed25519 key.
    """

    scheme: str
    key: bytes

    def __repr__(self) -> str:
        """Return the scheme alone: logs must not have the key."""
        return f"SigningSecret({self.scheme})"


@dataclass(frozen=True, slots=True)
class Webhook:
    """An entry of the file of webhooks."""

    name: str
    url: str = field(repr=False)  # its path may be a secret
    events: frozenset[WebhookEvent]
    tenant: str  # `EVERY_TENANT`: events of all tenants
    agents: tuple[str, ...]  # empty: threads of all agents
    secrets: tuple[SigningSecret, ...]  # each signs every payload
    allow_private: bool = False  # whether the address may be in a private network

    @property
    def origin(self) -> str:
        """Scheme, host and port of the address."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def is_for(self, tenant: str) -> bool:
        """Return whether the webhook gets events of a tenant."""
        return self.tenant in (EVERY_TENANT, tenant)

    def wants(self, tenant: str, agent_id: str, event: WebhookEvent) -> bool:
        """Return whether the webhook gets an event of a thread of an agent."""
        return (
            event in self.events
            and self.is_for(tenant)
            and (not self.agents or agent_id in self.agents)
        )


class Subscriptions:
    """The webhooks of a server; replaced as a whole when their file changes.

    Attributes:
        webhooks: The webhooks.
        console_url: Address of the console, for links; empty: payloads have no links.
        events: Number of events that this server has committed since its start.
    """

    __slots__ = ("console_url", "events", "webhooks")

    def __init__(self) -> None:
        self.webhooks: tuple[Webhook, ...] = ()
        self.console_url = ""
        self.events = 0

    def replace(self, webhooks: Sequence[Webhook], console_url: str) -> None:
        """Use other webhooks from now on."""
        self.webhooks, self.console_url = tuple(webhooks), console_url

    def find(self, tenant: str, name: str) -> Webhook | None:
        """Return a webhook that is for a tenant, by its name."""
        found = (hook for hook in self.webhooks if hook.name == name and hook.is_for(tenant))
        return next(found, None)

    def names(self, tenant: str, agent_id: str, event: WebhookEvent) -> list[str]:
        """Return the names of the webhooks that get an event."""
        return [hook.name for hook in self.webhooks if hook.wants(tenant, agent_id, event)]
