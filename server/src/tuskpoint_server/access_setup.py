"""Who may call, as it is configured: TLS, tokens, and taking up changes of both.

What cannot be used at the start ends it. What becomes unusable later is told, and what was
read before stays in force.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .config import Config, split_address
from .domain.credentials import Credentials, is_loopback
from .reloading import Followed
from .rpc.authentication import Authentication
from .rpc.tls import Certified, Tls
from .tokens import read_tokens

if TYPE_CHECKING:  # it brings what reads certificates, and a server without TLS has none
    from .certificates import TlsFiles

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may call, and how.

    Attributes:
        authentication: Says who calls.
        tls: What to serve TLS with; `None`: plaintext.
    """

    authentication: Authentication
    tls: Tls | None
    _tokens: Followed[Credentials] | None
    _files: Followed[Certified] | None

    async def follow(self) -> None:
        """Take up every change of the files, until cancelled."""
        async with asyncio.TaskGroup() as following:
            if self._tokens is not None:
                following.create_task(self._tokens.follow(self._take_tokens))
            if self._files is not None:
                following.create_task(self._files.follow(self._take_certificate))

    def _take_tokens(self, credentials: Credentials) -> None:
        self.authentication.replace(credentials)
        _log.info("the token file was read again: %s", _counted(credentials))

    def _take_certificate(self, certified: Certified) -> None:
        if self.tls is not None:
            self.tls.replace(certified)
            _log.info("the files of TLS were read again; new connections get what they hold")


def open_access(config: Config) -> Access:
    """Return who may call.

    Raises:
        UnusableFileError: A file cannot be used.
    """
    tls, files = None, _tls_files(config)
    followed_files = followed_tokens = None
    if files is not None:
        followed_files = Followed(files.paths, files.read)
        tls = Tls(followed_files.first)
    path = config.tokens
    if path is not None:
        certificates = config.tls_client_ca is not None
        followed_tokens = Followed([path], lambda: read_tokens(path, certificates=certificates))
        _log.info("the token file was read: %s", _counted(followed_tokens.first))
    _warn(config)
    authentication = Authentication(followed_tokens.first if followed_tokens else None)
    return Access(authentication, tls, followed_tokens, followed_files)


def _tls_files(config: Config) -> TlsFiles | None:
    if config.tls_cert is None or config.tls_key is None:
        return None
    from .certificates import TlsFiles

    return TlsFiles(config.tls_cert, config.tls_key, config.tls_client_ca)


def _counted(credentials: Credentials) -> str:
    return f"{len(credentials.tokens)} tokens, {len(credentials.subjects)} certificates"


def _warn(config: Config) -> None:
    """Say what is open to the network."""
    host, _ = split_address(config.listen)
    if is_loopback(host):
        return
    if config.tokens is None and config.tls_client_ca is None:
        _log.warning("%s is open: whoever reaches it may read and change everything", config.listen)
    elif config.tls_cert is None:
        _log.warning(
            "%s is served in plaintext: tokens and state can be read on the way", config.listen
        )
