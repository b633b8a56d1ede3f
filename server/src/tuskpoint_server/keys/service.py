"""Base of the providers that ask a service: calls in threads, and a cache of unwrapped keys."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict

from ..core.errors import Reason, Refusal
from .local import KEY_BYTES

_KEPT = 256  # unwrapped keys in the cache


class ServiceKeys(ABC):
    """Wraps and unwraps by asking a service, in a thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()

    @abstractmethod
    def ask(self, verb: str, tenant: str, data: bytes) -> bytes:
        """Return the service's result of `verb` (`wrap` or `unwrap`) for `data`; may block.

        Raises:
            Refusal: The refusals of `KeyProvider`.
        """

    async def wrap(self, tenant: str, key: bytes) -> bytes:
        """Return a key, wrapped by the service."""
        return await asyncio.to_thread(self.ask, "wrap", tenant, key)

    async def unwrap(self, tenant: str, wrapped: bytes) -> bytes:
        """Return the unwrapped key, from the cache or from the service."""
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
        """Return true: the service decides by itself which of its keys wraps."""
        return True


def service_unavailable(provider: str, problem: str) -> Refusal:
    """Return the refusal for a service that does not answer, or refuses."""
    return Refusal(Reason.KEY_PROVIDER_UNAVAILABLE, provider=provider, problem=problem)


def wrong_key(tenant: str, problem: str) -> Refusal:
    """Return the refusal of a wrapped key that was changed, or wrapped for another tenant."""
    return Refusal(Reason.KEY_WRONG, tenant=tenant, problem=problem)


def missing_key(tenant: str, problem: str) -> Refusal:
    """Return the refusal for a service that lacks the key that wrapped a key."""
    return Refusal(Reason.KEY_MISSING, what=f"content of tenant '{tenant}'", problem=problem)
