"""Files that name the newest catalog of each tenant: all that recovery has to be recorded."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from ...domain.credentials import DEFAULT_TENANT


class Pointer:
    """The pointer files.

    Args:
        path: File of the tenant `default`; others carry their name as a suffix.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def path(self, tenant: str) -> Path:
        """Return the file of a tenant."""
        if tenant == DEFAULT_TENANT:
            return self._path
        return self._path.with_name(f"{self._path.name}.{quote(tenant, safe='')}")

    def write(self, tenant: str, blob_id: str) -> None:
        """Replace the file of a tenant by one that holds this blob ID and a newline.

        A reader sees the old or the new content, also after a crash.

        Raises:
            OSError: The file cannot be written; the old one stays.
        """
        path = self.path(tenant)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Begins with a dot, so that it is no tenant's file.
        part = path.with_name(f".{path.name}.part")
        with part.open("w", encoding="utf-8") as file:
            file.write(f"{blob_id}\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
