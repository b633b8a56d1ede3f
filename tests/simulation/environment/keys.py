"""A key provider without randomness of its own, so that a seed determines the schedule."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest import mock

from tuskpoint_server.archive.formats import sealing


class SimulatedKeys:
    """A key provider that wraps a key with a mask."""

    async def wrap(self, tenant: str, key: bytes) -> bytes:
        """Return the masked key."""
        mask = hashlib.sha256(tenant.encode()).digest()
        return bytes(byte ^ mask_byte for byte, mask_byte in zip(key, mask, strict=True))

    async def unwrap(self, tenant: str, wrapped: bytes) -> bytes:
        """Return the unwrapped key."""
        return await self.wrap(tenant, wrapped)

    def is_current(self, wrapped: bytes) -> bool:
        """Return whether the wrapped key is valid: there is only one mask."""
        return bool(wrapped)


@contextmanager
def keys_of(seed: int) -> Iterator[None]:
    """Let a seed choose the keys inside the context."""
    rng = random.Random(seed)
    draw = partial(rng.randbytes, sealing.KEY_BYTES)
    with mock.patch.object(sealing, "new_key", draw):
        yield
