"""Lookup of a checkpoint, snapshot or offer by its ID, a prefix of its ID, or `latest`.

A whole ID is looked up exactly. A shorter name must be the prefix of exactly one ID. Without a
thread, exactly one thread must have the checkpoint: forks and copies keep the IDs.
"""

from __future__ import annotations

from itertools import islice, takewhile
from typing import TYPE_CHECKING
from uuid import UUID

from ..errors import NotFound
from .exits import CommandError, Exit
from .printing.words import plain

if TYPE_CHECKING:
    from .._messages.lineage.snapshots import SnapshotRecord
    from .._messages.records import CheckpointRecord, SourceName, ViewName
    from ..client import Client

LATEST = "latest"
_GREATEST = "\U0010ffff"  # IDs are ordered by code point, so no ID with this prefix is above this
_NAMED = 3  # most IDs that an error names for an ambiguous prefix
_NAMED_THREADS = 20
_LEAST = 8  # least characters of an ID in a lookup in all threads; fewer may be a misspelled thread


def load(
    client: Client,
    thread_id: str,
    name: str | None,
    checkpoint_ns: str = "",
    *,
    view: ViewName = "entry",
    source: SourceName = "any",
) -> CheckpointRecord:
    """Return the checkpoint with an ID or with an ID prefix.

    Args:
        client: The client.
        thread_id: The thread.
        name: An ID or its prefix; `None` for the latest checkpoint.
        checkpoint_ns: The namespace.
        view: View in which to load the checkpoint.
        source: Source from which to load the checkpoint.

    Raises:
        CommandError: No ID starts with the name, or several IDs do.
    """
    try:
        return client.load(thread_id, name, checkpoint_ns=checkpoint_ns, view=view, source=source)
    except NotFound as error:
        if error.reason != "CHECKPOINT_NOT_FOUND":
            raise
        if name is None:
            raise _nothing(thread_id, checkpoint_ns) from error
        if _is_uuid(name):
            raise _absent(thread_id, name, checkpoint_ns) from error
    whole = _completed(client, thread_id, name, checkpoint_ns)
    return client.load(thread_id, whole, checkpoint_ns=checkpoint_ns, view=view, source=source)


def anywhere(
    client: Client, name: str, checkpoint_ns: str | None = None
) -> CheckpointRecord | None:
    """Return the checkpoint, without state, with an ID or ID prefix in any thread.

    Args:
        client: The client.
        name: An ID, or its prefix of at least `_LEAST` characters.
        checkpoint_ns: The namespace. Default: any namespace.

    Returns:
        The checkpoint; `None` if no ID starts with the name.

    Raises:
        CommandError: Several IDs start with the name, or several threads have the checkpoint.
    """

    def having(whole: str) -> list[CheckpointRecord]:
        listing = client.list(checkpoint_ns=checkpoint_ns, checkpoint_id=whole)
        return list(islice(listing, _NAMED_THREADS + 1))

    checkpoints = having(name)
    if not checkpoints and len(name) >= _LEAST and not _is_uuid(name):
        listing = client.list(checkpoint_ns=checkpoint_ns, before=name + _GREATEST)
        ids: list[str] = []
        for checkpoint in takewhile(
            lambda checkpoint: checkpoint.checkpoint_id.startswith(name), listing
        ):
            if checkpoint.checkpoint_id not in ids:
                ids.append(checkpoint.checkpoint_id)
            if len(ids) > 1:
                raise _ambiguous(name, "several checkpoints", ids)
        checkpoints = having(ids[0]) if ids else []
    if len(checkpoints) > 1:
        names = ", ".join(
            f"'{plain(checkpoint.thread_id)}'" for checkpoint in checkpoints[:_NAMED_THREADS]
        )
        more = ", ..." if len(checkpoints) > _NAMED_THREADS else ""
        raise CommandError(
            Exit.USAGE,
            f"several threads have checkpoint {plain(checkpoints[0].checkpoint_id)}: {names}{more}",
            "name one of them before the ID",
        )
    return checkpoints[0] if checkpoints else None


def load_either(
    client: Client,
    name: str,
    checkpoint_ns: str = "",
    *,
    view: ViewName = "entry",
    source: SourceName = "any",
) -> CheckpointRecord:
    """Return the latest checkpoint of a thread, or the checkpoint with an ID in any thread.

    A thread with the name has priority.

    Args:
        client: The client.
        name: A thread, or a checkpoint as in `anywhere`.
        checkpoint_ns: The namespace. Empty is the root namespace for a thread, and any namespace
            for an ID.
        view: View in which to load the checkpoint.
        source: Source from which to load the checkpoint.

    Raises:
        CommandError: Neither a thread nor a checkpoint has the name, or several checkpoints have
            it.
    """
    try:
        return load(client, name, None, checkpoint_ns, view=view, source=source)
    except CommandError as error:
        if error.code is not Exit.NOT_FOUND:
            raise
        checkpoint = anywhere(client, name, checkpoint_ns or None)
        if checkpoint is None and _is_uuid(name):
            message = f"no thread and no checkpoint '{plain(name)}'"
            raise CommandError(Exit.NOT_FOUND, message, error.hint) from error
        if checkpoint is None:
            raise
    return load(
        client,
        checkpoint.thread_id,
        checkpoint.checkpoint_id,
        checkpoint.checkpoint_ns,
        view=view,
        source=source,
    )


def snapshot_or_checkpoint(client: Client, name: str) -> SnapshotRecord | CheckpointRecord:
    """Return the snapshot, or the checkpoint of a root namespace, with an ID in any thread.

    Args:
        client: The client.
        name: An ID or its prefix; "latest" for the newest snapshot.

    Raises:
        CommandError: Neither a snapshot nor a checkpoint has the name, or several have it.
    """
    checkpoint = None if name == LATEST else anywhere(client, name, "")
    try:
        record = snapshot(client, name)
    except CommandError as error:
        if error.code is not Exit.NOT_FOUND:
            raise
        if checkpoint is not None:
            return checkpoint
        raise CommandError(
            Exit.NOT_FOUND,
            error.message + ("" if name == LATEST else ", and no checkpoint of this ID"),
            "to restore a thread, give a checkpoint or --label",
        ) from error
    if checkpoint is not None:
        what = "a snapshot and a checkpoint"
        raise _ambiguous(name, what, [record.snapshot_id, checkpoint.checkpoint_id])
    return record


def checkpoint_id(client: Client, thread_id: str, name: str | None, checkpoint_ns: str = "") -> str:
    """Return the ID of a named checkpoint; see `load`.

    The function does not look up a whole ID: the caller's next call does so.
    """
    if name is not None and _is_uuid(name):
        return name
    return load(client, thread_id, name, checkpoint_ns).checkpoint_id


def snapshot(client: Client, name: str) -> SnapshotRecord:
    """Return the snapshot with an ID or with an ID prefix.

    Args:
        client: The client.
        name: An ID or its prefix; "latest" for the newest snapshot.

    Raises:
        CommandError: No ID starts with the name, or several IDs do.
    """
    try:
        return client.latest_snapshot() if name == LATEST else client.get_snapshot(name)
    except NotFound:
        records = [
            record for record in client.list_snapshots() if record.snapshot_id.startswith(name)
        ]
    if not records:
        raise CommandError(
            Exit.NOT_FOUND,
            f"no snapshot '{plain(name)}'",
            "`tuskpoint snapshot list` lists the snapshots",
        )
    if len(records) > 1:
        raise _ambiguous(
            name, f"{len(records)} snapshots", [record.snapshot_id for record in records]
        )
    return records[0]


def offer_id(client: Client, name: str) -> str:
    """Return the ID of the offer with an ID prefix.

    The function does not look up a whole ID: the caller's next call does so.

    Raises:
        CommandError: No ID starts with the name, or several IDs do.
    """
    if _is_uuid(name):
        return name
    ids = [
        offer.handoff_id
        for offer in client.list_handoffs()
        if name and offer.handoff_id.startswith(name)
    ]
    if not ids:
        raise CommandError(
            Exit.NOT_FOUND,
            f"no hand-off '{plain(name)}'",
            "`tuskpoint inbox list` lists the hand-offs",
        )
    if len(ids) > 1:
        raise _ambiguous(name, f"{len(ids)} hand-offs", ids)
    return ids[0]


def _completed(client: Client, thread_id: str, name: str, checkpoint_ns: str) -> str:
    """Return the only ID that starts with a prefix."""
    listing = client.list(thread_id, checkpoint_ns=checkpoint_ns, before=name + _GREATEST)
    ids = [
        checkpoint.checkpoint_id
        for checkpoint in islice(listing, _NAMED + 1)
        if checkpoint.checkpoint_id.startswith(name)
    ]
    if not ids:
        raise _absent(thread_id, name, checkpoint_ns)
    if len(ids) > 1:
        count = f"more than {_NAMED}" if len(ids) > _NAMED else str(len(ids))
        raise _ambiguous(name, f"{count} checkpoints of thread '{plain(thread_id)}'", ids)
    return ids[0]


def _absent(thread_id: str, name: str, checkpoint_ns: str) -> CommandError:
    place = f" in namespace '{plain(checkpoint_ns)}'" if checkpoint_ns else ""
    return CommandError(
        Exit.NOT_FOUND,
        f"thread '{plain(thread_id)}' has no checkpoint '{plain(name)}'{place}",
        "`tuskpoint list THREAD` lists its checkpoints",
    )


def _nothing(thread_id: str, checkpoint_ns: str) -> CommandError:
    if checkpoint_ns:
        return CommandError(
            Exit.NOT_FOUND,
            f"thread '{plain(thread_id)}' has no checkpoint in namespace '{plain(checkpoint_ns)}'",
            "`tuskpoint list THREAD` lists its checkpoints",
        )
    return CommandError(
        Exit.NOT_FOUND,
        f"thread '{plain(thread_id)}' not found, or it has no checkpoint",
        "`tuskpoint threads` lists the threads",
    )


def _ambiguous(name: str, what: str, ids: list[str]) -> CommandError:
    listing = ", ".join(ids[:_NAMED])
    more = ", ..." if len(ids) > _NAMED else ""
    return CommandError(
        Exit.USAGE,
        f"{what} begin with '{plain(name)}' ({plain(listing)}{more})",
        "give more characters of it",
    )


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
