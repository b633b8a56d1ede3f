"""Identifiers in the form of Walrus's blob IDs."""

from __future__ import annotations

import base64
import hashlib


def blob_id_of(name: str) -> str:
    """Return the ID of a blob in Walrus's form: 43 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()).decode().rstrip("=")
