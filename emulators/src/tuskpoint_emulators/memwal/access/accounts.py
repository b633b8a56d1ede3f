"""Accounts, and the delegate keys that sign requests for them."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any, Self

import nacl.signing


@dataclass(frozen=True, slots=True)
class Account:
    """An account on the chain.

    Attributes:
        owner: Sui address that owns the memories.
        delegates: Public keys that may sign, 64 lower-case hexadecimal digits each.
        active: Whether the account accepts calls at all.
    """

    owner: str
    delegates: frozenset[str]
    active: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the account as one JSON object."""
        return {"owner": self.owner, "delegates": sorted(self.delegates), "active": self.active}


def account_from_json(raw: Any) -> Account:
    """Return the account that a JSON object describes: the attributes of `Account` by name.

    Raises:
        ValueError: An unknown name, or a value that does not fit.
    """
    if not isinstance(raw, dict):
        raise ValueError("an account is not an object")
    unknown = set(raw) - {"owner", "delegates", "active"}
    if unknown:
        raise ValueError(f"an account has no {', '.join(sorted(unknown))}")
    owner, delegates, active = raw.get("owner"), raw.get("delegates"), raw.get("active", True)
    if not isinstance(owner, str) or not owner:
        raise ValueError("owner is not text")
    if not isinstance(delegates, list):
        raise ValueError("delegates is not a list")
    if type(active) is not bool:
        raise ValueError("active is neither true nor false")
    return Account(owner, frozenset(public_key(delegate) for delegate in delegates), active)


def public_key(raw: Any) -> str:
    """Return a public key in lower case.

    Raises:
        ValueError: It is not 64 hexadecimal digits.
    """
    if not isinstance(raw, str) or len(raw) != 64 or set(raw.lower()) - set("0123456789abcdef"):
        raise ValueError("a delegate is a public key of 64 hexadecimal digits")
    return raw.lower()


@dataclass(frozen=True, slots=True)
class Credentials:
    """A delegate key, and the account that the key signs for."""

    private_key: str
    account_id: str
    account: Account

    @classmethod
    def make(cls) -> Self:
        """Make a new key and a new account."""
        key = nacl.signing.SigningKey.generate()
        delegate = bytes(key.verify_key).hex()
        account = Account(owner_of(delegate), frozenset({delegate}))
        return cls(bytes(key).hex(), f"0x{secrets.token_hex(32)}", account)


def owner_of(delegate: str) -> str:
    """Return the Sui address of a public key, which is the default owner of its account."""
    digest = hashlib.blake2b(b"\x00" + bytes.fromhex(delegate), digest_size=32)
    return f"0x{digest.hexdigest()}"
