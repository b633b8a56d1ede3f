"""Loads the TLS files and the token file, and reloads them when they change.

A changed file is loaded once two checks in a row see the same state. So no file is read while a
program writes it, and no certificate without its new key. A file that cannot be used at the start
stops the server. Later, the error is logged once per change and the previous content stays in use.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from ..api.middleware.authentication import Authentication
from ..api.middleware.errors import incident
from ..api.server.tls import ServerCertificate, Tls
from ..config.settings import Config, split_address
from ..core.credentials import Credentials, is_loopback
from ..core.process import ConfigError
from .tokens import read_tokens

LOOK_SECONDS = 1.0  # time between two checks of the files

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from .oidc import OidcIssuers

T = TypeVar("T")

_Stamp = tuple[object, ...]


class FileFollower(Generic[T]):
    """The content of a group of files: at the start (`first`), and after every change."""

    def __init__(self, files: Sequence[Path], read: Callable[[], T]) -> None:
        self._files = files
        self._read = read
        # The stamp is taken before reading: a file that changes meanwhile is read again.
        self._known = self._last = _stamp(files)
        self._reported: _Stamp | None = None
        self.first = read()

    async def follow(self, take: Callable[[T], None]) -> None:
        """Pass on the content after every change, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look(take)
            except ConfigError as error:
                _log.error("%s; the content that was read before remains in use", error)
            except Exception as error:  # noqa: BLE001 - a defect must not end the looking for good
                incident(error, "the reading of changed files")

    async def look(self, take: Callable[[T], None]) -> None:
        """Check the files once, and pass on their content if it has changed."""
        stamp = await asyncio.to_thread(_stamp, self._files)
        settled, self._last = stamp == self._last, stamp
        if not settled or stamp == self._known:
            return
        try:
            content = await asyncio.to_thread(self._read)
        except Exception:
            # Every check tries again: the cause, such as too few descriptors, may be temporary.
            if self._reported == stamp:
                return
            self._reported = stamp
            raise
        if await asyncio.to_thread(_stamp, self._files) != stamp:
            return  # the content may be half old and half new
        self._known, self._reported = stamp, None
        take(content)
        _log.info("reloaded: %s", ", ".join(map(str, self._files)))


def _stamp(files: Sequence[Path]) -> _Stamp:
    stamp: list[object] = []
    for path in files:
        try:
            status = os.stat(path)
            # st_ctime is the time of the last change of content or rights; no program can set it
            # back.
            stamp += status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size
        except OSError as error:
            stamp.append(error.errno)
    return tuple(stamp)


@dataclass(frozen=True, slots=True)
class Access:
    """The credentials of callers, and the TLS to serve with; `None`: plaintext."""

    authentication: Authentication
    tls: Tls | None
    _tokens: FileFollower[Credentials] | None
    _files: FileFollower[ServerCertificate] | None
    _issuers: OidcIssuers | None

    async def follow(self) -> None:
        """Apply every change of the files, until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._tokens is not None:
                group.create_task(self._tokens.follow(self.authentication.replace))
            if self._issuers is not None:
                group.create_task(self._issuers.follow())
            if self._files is not None and self.tls is not None:
                group.create_task(self._files.follow(self.tls.replace))


def open_access(config: Config) -> Access:
    """Load the credentials and the TLS files of a configuration."""
    files = tokens = None
    if config.tls_cert is not None and config.tls_key is not None:
        from .certificates import read_tls

        pem = config.tls_cert, config.tls_key, config.tls_client_ca
        files = FileFollower([path for path in pem if path is not None], lambda: read_tls(*pem))
    if (path := config.tokens) is not None:
        certificates = config.tls_client_ca is not None
        tokens = FileFollower([path], lambda: read_tokens(path, certificates=certificates))
        credentials = tokens.first
        counts = len(credentials.tokens), len(credentials.subjects), len(credentials.issuers)
        _log.info("the token file was read: %d tokens, %d certificates, %d issuers", *counts)
    if not is_loopback(split_address(config.listen)[0]):
        if tokens is None and config.tls_client_ca is None:
            _log.warning(
                "%s is open: everyone who reaches it may read and change everything", config.listen
            )
        elif files is None:
            _log.warning(
                "%s is served in plaintext: tokens and state can be read on the way", config.listen
            )
    issuers = None
    authentication = Authentication()
    if tokens is not None:
        from .oidc import OidcIssuers

        issuers = OidcIssuers()
        authentication = Authentication(tokens.first, issuers=issuers)
        issuers.changed = authentication.check
        issuers.replace(tokens.first.issuers)
    return Access(authentication, Tls(files.first) if files else None, tokens, files, issuers)
