"""A cache of the last read quilt indexes: reading 600 patches parses one index."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from ..encoding import quilt
from ..ledger.state import StoredContent

_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class _Index:
    data: bytes
    entries: tuple[quilt.PatchEntry, ...]
    by_identifier: dict[str, quilt.PatchEntry]


class PatchReader:
    """Reads patches of stored quilts."""

    def __init__(self) -> None:
        self._indexes: OrderedDict[bytes, _Index] = OrderedDict()

    def entries(self, content: StoredContent) -> tuple[quilt.PatchEntry, ...]:
        """Return the index of a quilt.

        Raises:
            NotAQuilt: The blob is not a quilt.
        """
        return self._index(content).entries

    def by_identifier(self, content: StoredContent, identifier: str) -> quilt.Patch:
        """Return the patch with an identifier.

        Raises:
            NotAQuilt: The blob is not a quilt.
            PatchNotFound: The quilt has no such patch.
        """
        entry = self._index(content).by_identifier.get(identifier)
        if entry is None:
            raise quilt.PatchNotFound(identifier)
        return quilt.read_by_range(content.data, entry.start, entry.end)

    def _index(self, content: StoredContent) -> _Index:
        cached_index = self._indexes.get(content.blob_id)
        # Tampering replaces the bytes under an ID.
        if cached_index is not None and cached_index.data is content.data:
            self._indexes.move_to_end(content.blob_id)
            return cached_index
        entries = quilt.entries(content.data)
        index = _Index(content.data, entries, {entry.identifier: entry for entry in entries})
        self._indexes[content.blob_id] = index
        if len(self._indexes) > _REMEMBERED:
            self._indexes.popitem(last=False)
        return index
