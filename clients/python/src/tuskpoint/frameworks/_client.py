"""The client of an adapter: passed by the caller, or created from options."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TypedDict, TypeVar

from .._transport.settings.token import FilePath
from ..aio import AsyncClient
from ..client import Client

ClientT = TypeVar("ClientT", Client, AsyncClient)


class ClientOptions(TypedDict, total=False):
    """Options of `AsyncClient` for the client that an adapter creates."""

    timeout_s: float
    token: str | None
    ca_file: FilePath | None
    cert_file: FilePath | None
    key_file: FilePath | None
    tls: bool | None


def client_of(
    kind: type[ClientT], target: str | ClientT | None, options: ClientOptions
) -> tuple[ClientT, bool]:
    """Return a client, and whether this function created it.

    Args:
        kind: Class of the client.
        target: Address of the server in a form that the class accepts, or a client.
        options: Options of the client to create.

    Raises:
        TypeError: `target` is a client and options are given, or `target` is a client of another
            class.
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
    """Adapter with a client. Closes the client only if it created the client. A context manager."""

    _client: AsyncClient
    _made: bool

    def _connect(self, target: str | AsyncClient | None, options: ClientOptions) -> None:
        """Set the client. Arguments and errors are the same as in `client_of`."""
        self._client, self._made = client_of(AsyncClient, target, options)

    async def aclose(self) -> None:
        """Close the client, if the adapter created it."""
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
