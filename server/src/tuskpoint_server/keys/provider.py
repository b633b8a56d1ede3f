"""What a key provider does."""

from __future__ import annotations

from typing import Protocol


class KeyProvider(Protocol):
    """Wraps keys of tenants; what it wrapped says which of its own keys did it.

    Every method but `is_current` refuses: `KEY_PROVIDER_UNAVAILABLE`.
    """

    async def wrap(self, tenant: str, key: bytes) -> bytes:
        """Return a key, wrapped for a tenant."""

    async def unwrap(self, tenant: str, wrapped: bytes) -> bytes:
        """Return a key that was wrapped for a tenant.

        Raises:
            Refusal: `KEY_MISSING` if the provider has not the key that wrapped it; `KEY_WRONG` if
                it was changed, or wrapped for another tenant.
        """

    def is_current(self, wrapped: bytes) -> bool:
        """Return whether it was wrapped by the key that `wrap` uses now; if not, wrap it again."""
