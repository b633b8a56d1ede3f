"""Catalogs: what one flush changed, and the runs that hold what changed before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .manifests import ManifestHead
from .stored import Fields, Location, Malformed

PAGE_HEADS = 1000
SNAPSHOTS = "$snapshot/"
"""What the names of threads begin with that keep a snapshot each."""


@dataclass(frozen=True, slots=True)
class ThreadHead:
    """A catalog's word on one thread.

    Attributes:
        thread_id: The thread.
        incarnation: Its newest incarnation.
        ended: That incarnation was deleted.
        deleted_through: Greatest checkpoint ID of any ended incarnation, or empty.
        agent_id: Agent that drives it, or empty.
        retention_s: Seconds without a change after which it is deleted; 0: never.
        unsearchable: Search does not find it.
        manifest: Where its manifest ends; `None` if nothing of it was stored.
    """

    thread_id: str
    incarnation: int
    ended: bool
    deleted_through: str
    agent_id: str
    retention_s: int
    unsearchable: bool
    manifest: ManifestHead | None

    @property
    def is_snapshot(self) -> bool:
        """Whether it keeps a snapshot."""
        return self.thread_id.startswith(SNAPSHOTS)


@dataclass(frozen=True, slots=True)
class Catalog:
    """A stored catalog. `runs` has a list for each level, the oldest run first."""

    generation: int
    seq: int
    previous: Location | None
    settings: dict[str, Any]
    runs: tuple[tuple[Location, ...], ...]
    changes: tuple[ThreadHead, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A stored page of a run."""

    heads: tuple[ThreadHead, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """A stored index of pages, and the index before it, if there is one."""

    previous: Location | None
    pages: tuple[Location, ...]


def read_piece(data: bytes, holder: str) -> Catalog | Page | Index:
    """Return the catalog, page or index in stored bytes.

    Args:
        data: The stored bytes.
        holder: Blob that they lie in.

    Raises:
        Malformed: It is none of these.
    """
    fields = Fields.parse(data)
    kind = fields.text("kind", "")
    if kind == "catalog":
        return Catalog(
            generation=fields.count("generation"),
            seq=fields.count("seq"),
            previous=fields.optional_location("previous", holder),
            settings=fields.object("settings"),
            runs=tuple(tuple(_run(run, holder) for run in level) for level in fields.rows("runs")),
            changes=_heads(fields.children("changes"), holder),
        )
    if kind == "page":
        heads = _heads(fields.children("heads"), holder)
        if len(heads) > PAGE_HEADS:
            raise Malformed(f"a page has at most {PAGE_HEADS} heads")
        return Page(heads)
    if kind == "index":
        return Index(
            fields.optional_location("previous", holder),
            tuple(page.location(holder) for page in fields.children("pages")),
        )
    raise Malformed(f"it is no piece of a catalog (kind '{kind}')")


def newest_first(catalog: Catalog) -> list[Location]:
    """Return where the runs lie, in the order in which they are believed."""
    return [run for level in catalog.runs for run in reversed(level)]


def _run(fields: Fields, holder: str) -> Location:
    fields.count("run")
    return fields.location(holder)


def _heads(listed: Iterable[Fields], holder: str) -> tuple[ThreadHead, ...]:
    heads = tuple(_head(fields, holder) for fields in listed)
    if len({head.thread_id for head in heads}) < len(heads):
        raise Malformed("it tells of a thread twice")
    return heads


def _head(fields: Fields, holder: str) -> ThreadHead:
    return ThreadHead(
        thread_id=fields.text("thread_id"),
        incarnation=fields.count("incarnation"),
        ended=fields.flag("ended"),
        deleted_through=fields.text("deleted_through"),
        agent_id=fields.text("agent_id", ""),
        retention_s=fields.count("retention_s", 0),
        unsearchable=fields.flag("unsearchable", False),
        manifest=_manifest(fields.child("manifest"), holder) if fields.has("manifest") else None,
    )


def _manifest(fields: Fields, holder: str) -> ManifestHead:
    return ManifestHead(
        fields.location(holder),
        fields.count("segment"),
        fields.count("generation"),
        fields.count("records"),
    )
