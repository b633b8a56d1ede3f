"""Tenants: whose data something is.

A tenant comes from the credential of a call, never from a request. Its name ends up in the
file name of its catalog pointer and in its namespace in MemWal.
"""

from __future__ import annotations

import re

DEFAULT_TENANT = "default"
"""The tenant of whoever needs no credential."""

TENANT_RULE = "1 to 64 of the characters a-z, 0-9, - and _, beginning with a letter or a digit"
"""What a tenant's name may be: file names that differ in case are one on some systems."""

_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def is_tenant(name: str) -> bool:
    """Tell whether a tenant may have this name."""
    return _TENANT.fullmatch(name) is not None
