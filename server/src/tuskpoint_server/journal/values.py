"""Contents of channels: found, stored once per tenant, and referred to by checkpoints.

A content that was evicted keeps its row without the data. Nothing new may refer to it
until it is sent again: what refers to it has it in an envelope of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, and_, bindparam, delete, exists, select

from ..domain.digests import value_digest
from ..domain.errors import Reason, Refusal, values_missing
from ..domain.model import (
    Channel,
    ChannelDraft,
    CheckpointKey,
    Reference,
    Value,
    Version,
)
from ..domain.state import decode_channels
from .schema import contents, references
from .statements import (
    Insert,
    InsertInto,
    Statement,
    all_columns,
    of_checkpoint,
    parameters_of,
)

_OF_DIGEST = and_(
    contents.c.tenant == bindparam("of_tenant"), contents.c.digest == bindparam("of_digest")
)
_CONTENT_SIZE = Statement(select(contents.c.size).where(_OF_DIGEST))
_HERE = Statement(select(contents.c.size).where(_OF_DIGEST, contents.c.data.is_not(None)))


def _store_content(insert_into: InsertInto) -> Insert:
    insert = insert_into(contents).values(all_columns(contents))
    new = insert.excluded
    return insert.on_conflict_do_update(
        index_elements=["tenant", "digest"],
        set_={"data": new.data, "created_us": new.created_us},
        where=contents.c.data.is_(None),
    )


def _store_checked(insert_into: InsertInto) -> Insert:
    """Refer to a content if its data is here."""
    columns = [bindparam(column.name, type_=column.type) for column in references.columns]
    here = exists().where(
        contents.c.tenant == bindparam("tenant"),
        contents.c.digest == bindparam("digest"),
        contents.c.data.is_not(None),
    )
    insert = insert_into(references).from_select(
        [column.name for column in references.columns], select(*columns).where(here)
    )
    return insert.on_conflict_do_nothing()


_STORE_CONTENT = Statement(_store_content)
_STORE_REFERENCE = Statement(
    lambda insert_into: (
        insert_into(references).values(all_columns(references)).on_conflict_do_nothing()
    )
)
_STORE_CHECKED = Statement(_store_checked)
_DROP_REFERENCES = Statement(delete(references).where(of_checkpoint(references)))


def resolve(
    connection: Connection,
    tenant: str,
    drafts: Sequence[ChannelDraft],
    parent_state: bytes | None,
) -> tuple[Channel, ...]:
    """Return the channels by digest; whether their contents are here, `replace_references` asks.

    Raises:
        Refusal: `VALUES_MISSING`, `VERSION_TYPE_CHANGED`.
    """
    before_this = decode_channels(parent_state) if parent_state is not None else ()
    inherited = {channel.name: channel for channel in before_this}
    resolved: list[Channel] = []
    missing: list[str] = []
    for draft in drafts:
        before = inherited.get(draft.name)
        if before is not None:
            _check_version_type(draft, before.version)
        channel = _resolve_one(connection, tenant, draft, before)
        if channel is None:
            missing.append(draft.name)
        else:
            resolved.append(channel)
    if missing:
        raise values_missing(missing)
    return tuple(resolved)


def _resolve_one(
    connection: Connection, tenant: str, draft: ChannelDraft, before: Channel | None
) -> Channel | None:
    content = draft.content
    if isinstance(content, Value):
        digest = draft.digest or value_digest(content)
        return Channel(draft.name, draft.version, digest, len(content.data))
    if content is Reference.EMPTY:
        return Channel(draft.name, draft.version, None)
    if content is Reference.INHERIT:
        return before if before is not None and before.version == draft.version else None
    row = _CONTENT_SIZE.run(connection, of_tenant=tenant, of_digest=content).fetchone()
    return Channel(draft.name, draft.version, content, row[0]) if row else None


def store_contents(
    connection: Connection,
    tenant: str,
    drafts: Sequence[ChannelDraft],
    channels: Sequence[Channel],
    now_us: int,
) -> int:
    """Store the contents that are not here, evicted ones again; return their bytes."""
    return sum(
        _store(connection, tenant, channel.digest, draft.content, now_us)
        for draft, channel in zip(drafts, channels, strict=True)
        if isinstance(draft.content, Value)
    )


def store_values(
    connection: Connection, tenant: str, channels: Sequence[Channel], now_us: int
) -> int:
    """Store the values that channels carry, where they are not here; return their bytes."""
    return sum(
        _store(connection, tenant, channel.digest, channel.value, now_us)
        for channel in channels
        if channel.value is not None
    )


def _store(
    connection: Connection, tenant: str, digest: bytes | None, value: Value, now_us: int
) -> int:
    cursor = _STORE_CONTENT.run(
        connection,
        tenant=tenant,
        digest=digest,
        type=value.type,
        data=value.data,
        created_us=now_us,
        size=len(value.data),
    )
    return len(value.data) if cursor.rowcount > 0 else 0


def replace_references(
    connection: Connection,
    tenant: str,
    key: CheckpointKey,
    channels: Sequence[Channel],
    *,
    before: bool,
    all_here: bool = False,
) -> None:
    """Make a checkpoint refer to the contents of its channels and to no others.

    Args:
        connection: In a write transaction.
        tenant: Tenant.
        key: The checkpoint.
        channels: Its channels.
        before: It was stored before and may have references.
        all_here: None of the contents can have been evicted; else it is looked up.

    Raises:
        Refusal: `VALUES_MISSING` if contents were evicted.
    """
    if before:
        _DROP_REFERENCES.run(connection, **parameters_of(tenant, key))
    digests = {channel.digest for channel in channels if channel.digest is not None}
    statement = _STORE_REFERENCE if all_here else _STORE_CHECKED
    stored = statement.run_many(
        connection,
        [
            {
                "tenant": tenant,
                "digest": digest,
                "thread_id": key.thread_id,
                "checkpoint_ns": key.checkpoint_ns,
                "checkpoint_id": key.checkpoint_id,
            }
            for digest in digests
        ],
    )
    if not all_here and stored < len(digests):
        _refuse_evicted(connection, tenant, channels)


def _refuse_evicted(connection: Connection, tenant: str, channels: Sequence[Channel]) -> None:
    missing = [
        channel.name
        for channel in channels
        if channel.digest is not None
        and _HERE.run(connection, of_tenant=tenant, of_digest=channel.digest).fetchone() is None
    ]
    if missing:
        raise values_missing(missing)


def _check_version_type(draft: ChannelDraft, before: Version | None) -> None:
    if before is None or draft.version is None or type(before) is type(draft.version):
        return
    raise Refusal(
        Reason.VERSION_TYPE_CHANGED,
        channel=draft.name,
        parent=_version_kind(before),
        sent=_version_kind(draft.version),
    )


def _version_kind(version: Version) -> str:
    if isinstance(version, str):
        return "text"
    return "integer" if isinstance(version, int) else "number"
