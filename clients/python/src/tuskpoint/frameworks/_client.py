"""How adapters get the client that they call."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TypedDict, TypeVar

from .._transport.settings.token import FilePath
from ..aio import AsyncClient
from ..client import Client

ClientT = TypeVar("ClientT", Client, AsyncClient)


class ClientOptions(TypedDict, total=False):
    """Options of `AsyncClient`, which adapters take for the client that they make."""

    timeout_s: float
    token: str | None
    ca_file: FilePath | None
    cert_file: FilePath | None
    key_file: FilePath | None
    tls: bool | None


def client_of(
    kind: type[ClientT], target: str | ClientT | None, options: ClientOptions
) -> tuple[ClientT, bool]:
    """Return a client, and whether it was made here.

    Args:
        kind: The class of the client.
        target: The server's address as the class takes it, or a client.
        options: Options of the client to make.

    Raises:
        TypeError: `target` is a client and there are options, or is a client of another class.
        InvalidRequest: The target or an option is malformed.
    """
    if isinstance(target, kind):
        if options:
            raise TypeError(f"a client has its own {', '.join(sorted(options))}")
        return target, False
    if isinstance(target, Client | AsyncClient):
        wrong = type(target).__name__
        raise TypeError(f"this adapter takes an address or {kind.__name__}, not {wrong}")
    return kind(target, **options), True


class AsyncAdapter:
    """An adapter with a client, which it closes only if it made it. A context manager."""

    _client: AsyncClient
    _made: bool

    def _connect(self, target: str | AsyncClient | None, options: ClientOptions) -> None:
        """Set the client; arguments and errors are those of `client_of`."""
        self._client, self._made = client_of(AsyncClient, target, options)

    async def aclose(self) -> None:
        """Close the client, if the adapter made it."""
        if self._made:
            await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
