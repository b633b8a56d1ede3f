"""What providers have in common that ask a service: threads, and keys that are remembered."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict

from ..core.errors import Reason, Refusal
from .local import KEY_BYTES

_KEPT = 256  # unwrapped keys that are remembered


class ServiceKeys(ABC):
    """Wraps and unwraps by asking a service, in a thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()

    @abstractmethod
    def ask(self, verb: str, tenant: str, data: bytes) -> bytes:
        """Return what the service makes of bytes: `wrap` or `unwrap`; may block.

        Raises:
            Refusal: As `KeyProvider`.
        """

    async def wrap(self, tenant: str, key: bytes) -> bytes:
        """Return a key, wrapped by the service."""
        return await asyncio.to_thread(self.ask, "wrap", tenant, key)

    async def unwrap(self, tenant: str, wrapped: bytes) -> bytes:
        """Return a key that the service unwrapped, now or before."""
        key = self._known.get((tenant, wrapped))
        if key is None:
            key = await asyncio.to_thread(self.ask, "unwrap", tenant, wrapped)
            if len(key) != KEY_BYTES:
                problem = f"{len(key)} bytes were unwrapped, and a key has {KEY_BYTES}"
                raise Refusal(Reason.KEY_WRONG, tenant=tenant, problem=problem)
            self._known[tenant, wrapped] = key
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return key

    def is_current(self, wrapped: bytes) -> bool:
        """Return true: which key wraps is the service's own matter."""
        return True


def service_unavailable(provider: str, problem: str) -> Refusal:
    """Return the refusal where a service does not answer, or refuses."""
    return Refusal(Reason.KEY_PROVIDER_UNAVAILABLE, provider=provider, problem=problem)


def wrong_key(tenant: str, problem: str) -> Refusal:
    """Return the refusal of something that was changed, or wrapped for another tenant."""
    return Refusal(Reason.KEY_WRONG, tenant=tenant, problem=problem)


def missing_key(tenant: str, problem: str) -> Refusal:
    """Return the refusal where a service has not the key that wrapped something."""
    return Refusal(Reason.KEY_MISSING, what=f"content of tenant '{tenant}'", problem=problem)
