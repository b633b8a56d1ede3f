"""The interface of key providers."""

from __future__ import annotations

from typing import Protocol


class KeyProvider(Protocol):
    """Wraps keys of tenants; a wrapped key records which of the provider's keys wrapped it.

    Every method except `is_current` can refuse with `KEY_PROVIDER_UNAVAILABLE`.
    """

    async def wrap(self, tenant: str, key: bytes) -> bytes:
        """Return a key, wrapped for a tenant."""

    async def unwrap(self, tenant: str, wrapped: bytes) -> bytes:
        """Return a key that was wrapped for a tenant.

        Raises:
            Refusal: `KEY_MISSING` if the provider does not have the key that wrapped this key;
                `KEY_WRONG` if the wrapped key was changed, or wrapped for another tenant.
        """

    def is_current(self, wrapped: bytes) -> bool:
        """Return whether the current key of `wrap` wrapped this key; if not, wrap the key again."""
