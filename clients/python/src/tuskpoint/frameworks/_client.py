"""How adapters get the client that they call."""

from __future__ import annotations

from typing import TypedDict

from .._transport.settings.token import FilePath
from ..aio import AsyncClient
from ..client import Client


class ClientOptions(TypedDict, total=False):
    """Options of `AsyncClient`, which adapters take for the client that they make."""

    timeout_s: float
    token: str | None
    ca_file: FilePath | None
    cert_file: FilePath | None
    key_file: FilePath | None
    tls: bool | None


class OwnedClient:
    """A client, closed with the adapter only if the adapter made it.

    Args:
        target: The server's address as `AsyncClient` takes it, or a client.
        options: Options of the client to make.

    Raises:
        TypeError: `target` is a client and there are options, or it is a blocking client.
        InvalidRequest: The target or an option is malformed.
    """

    def __init__(self, target: str | AsyncClient | None, options: ClientOptions) -> None:
        if isinstance(target, Client):
            raise TypeError("an adapter takes an AsyncClient, not a Client")
        self._made: AsyncClient | None = None
        if isinstance(target, AsyncClient):
            if options:
                raise TypeError(f"a client has its own {', '.join(sorted(options))}")
            self.client = target
        else:
            self.client = self._made = AsyncClient(target, **options)

    async def aclose(self) -> None:
        """Close the client if it was made here."""
        if self._made is not None:
            await self._made.aclose()
