"""`status`, `accept-clock`, `flush`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from ..printing import shapes
from ..printing.progress import progress
from ..printing.words import ago, counted, moment, now, plain, size
from ..program import OPERATE, command
from ..session import Session

if TYPE_CHECKING:
    from rich.text import Text

    from ..._messages.reports import ArchiveStatus, SearchStatus, ServerInfo

_FROST_PER_WAL = 1_000_000_000
_SOON = timedelta(days=1)  # a blob that expires within this time was not renewed in time
HealthName = Literal["ok", "attention", "not_serving"]
_STYLES: dict[str, str] = {"ok": "green", "attention": "yellow", "not_serving": "red"}


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a server.

    Attributes:
        state: "ok", "attention" (the server serves and has a problem) or "not_serving".
        problems: Problems, a sentence each.
    """

    state: HealthName
    problems: tuple[str, ...]


@command("status", panel=OPERATE)
def status(cli: Session) -> None:
    """Show the state of the service: health, backlog, expiry, catalog, search."""
    client = cli.client
    info, archive = client.info(), client.status()
    health = judge(info, archive, is_serving=_is_serving(cli))
    if cli.out.is_json:
        cli.out.object(_shape(client.target, info, archive, health))
        return
    _print(cli, client.target, info, archive, health)


def _is_serving(cli: Session) -> bool:
    """Call the server's health service. A server without one counts as serving if it answers."""
    from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]

    from ..._transport.methods import Method
    from ...errors import Unimplemented

    check = Method(
        "/grpc.health.v1.Health/Check",
        health_pb2.HealthCheckRequest,
        health_pb2.HealthCheckResponse,
    )
    try:
        answer = cli.client._calls.unary(check, health_pb2.HealthCheckRequest())
    except Unimplemented:
        return True
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def judge(info: ServerInfo, archive: ArchiveStatus, *, is_serving: bool) -> Health:
    """Return the health of a server with its problems."""
    problems = []
    if not is_serving:
        problems.append("the server is shutting down, or is not ready")
    if info.clock_jump is not None:
        problems.append(
            f"nothing is deleted: the clock says {moment(info.clock_jump.clock)} and the journal "
            f"expects {moment(info.clock_jump.expected)}; if the clock is right, "
            "`tuskpoint accept-clock`"
        )
    if archive.last_error:
        when = ago(archive.last_error_time)
        problems.append(
            f"certification fails since the last success: {archive.last_error} ({when})"
        )
    if archive.gaps:
        problems.append(
            f"{counted(archive.gaps, 'gap')}: what cannot be stored, or was lost; the first, of "
            f"thread '{archive.first_gaps[0].thread_id}': {archive.first_gaps[0].reason}"
        )
    if archive.damaged_threads:
        count = counted(len(archive.damaged_threads), "thread")
        problems.append(
            f"{count} with damage in the journal; the first: '{archive.damaged_threads[0]}', which "
            "`tuskpoint verify` judges"
        )
    if archive.failing_renewals:
        problems.append(f"{counted(archive.failing_renewals, 'blob')} could not be renewed")
    if archive.earliest_expiry is not None and archive.earliest_expiry - now() < _SOON:
        problems.append(f"a blob that is needed expires {ago(archive.earliest_expiry)}")
    if archive.search is not None:
        problems += _search_problems(archive.search)
    if not is_serving:
        return Health("not_serving", tuple(problems))
    return Health("attention" if problems else "ok", tuple(problems))


def _search_problems(search: SearchStatus) -> list[str]:
    problems = []
    if search.last_error:
        problems.append(f"indexing fails: {search.last_error}")
    memwal = search.memwal
    if memwal is not None and not memwal.healthy:
        problems.append(f"MemWal fails: {memwal.last_error or 'its last call did not succeed'}")
    return problems


def _shape(target: str, info: ServerInfo, archive: ArchiveStatus, health: Health) -> shapes.Shape:
    catalog = archive.catalog
    return {
        "target": target,
        "version": info.version,
        "started": shapes.time(info.started),
        "journal_backend": info.journal_backend,
        "blob_backend": info.blob_backend,
        "signers": list(info.signers),
        "recipients": list(info.recipients),
        "health": {"state": health.state, "problems": list(health.problems)},
        "backlog": {
            "checkpoints": archive.backlog_checkpoints,
            "bytes": archive.backlog_bytes,
            "oldest": shapes.time(archive.oldest_uncertified),
        },
        "certified_checkpoints": archive.certified_checkpoints,
        "gaps": archive.gaps,
        "first_gaps": [shapes.record(gap) for gap in archive.first_gaps],
        "last_flush": shapes.time(archive.last_flush),
        "last_error": archive.last_error,
        "last_error_time": shapes.time(archive.last_error_time),
        "catalog_blob_id": "" if catalog is None else catalog.blob_id,
        "catalog": shapes.record(catalog),
        "expiry": {
            "earliest": shapes.time(archive.earliest_expiry),
            "failing_renewals": archive.failing_renewals,
        },
        "stored": {
            "blobs": archive.stored_blobs,
            "billed_bytes": archive.billed_bytes,
            "cost_frost": archive.cost,
        },
        "disk": {
            "journal_bytes": archive.journal_bytes,
            "spool_bytes": archive.spool_bytes,
            "cache_bytes": archive.cache_bytes,
            "evicted_bytes": archive.evicted_bytes,
        },
        "search": shapes.record(archive.search),
    }


def _print(
    cli: Session, target: str, info: ServerInfo, archive: ArchiveStatus, health: Health
) -> None:
    state = cli.out.styled(health.state.replace("_", " "), f"bold {_STYLES[health.state]}")
    catalog = "none yet" if archive.catalog is None else archive.catalog.blob_id
    cli.out.fields(
        [
            ("server", f"{target}, version {plain(info.version)}, up since {moment(info.started)}"),
            ("health", state),
            *(("", cli.out.styled(plain(problem), "yellow")) for problem in health.problems),
            ("backlog", _backlog(archive)),
            ("certified", counted(archive.certified_checkpoints, "checkpoint")),
            ("last flush", moment(archive.last_flush)),
            ("expiry", _expiry(archive)),
            ("catalog", catalog),
            ("blobs", _blobs(info, archive)),
            ("journal", _journal(info, archive)),
            ("search", _search(cli, archive.search)),
            *(("recipient", plain(key)) for key in info.recipients[:1]),
        ]
    )


def _backlog(archive: ArchiveStatus) -> str:
    if not archive.backlog_checkpoints:
        return "nothing waits"
    waits = counted(archive.backlog_checkpoints, "checkpoint")
    oldest = f", the oldest since {ago(archive.oldest_uncertified)}"
    return f"{waits}, {size(archive.backlog_bytes)}{oldest if archive.oldest_uncertified else ''}"


def _expiry(archive: ArchiveStatus) -> str:
    if archive.earliest_expiry is None:
        return "nothing expires"
    return f"the earliest {moment(archive.earliest_expiry)}, if it is not renewed"


def _blobs(info: ServerInfo, archive: ArchiveStatus) -> str:
    parts = [plain(info.blob_backend)]
    if archive.stored_blobs:  # counted by the tenant that pays for them
        parts += [f"{archive.stored_blobs:,} stored", f"{size(archive.billed_bytes)} billed"]
        parts.append(f"{archive.cost / _FROST_PER_WAL:.6f} WAL")
    if archive.spool_bytes:
        parts.append(f"spool {size(archive.spool_bytes)}")
    if archive.cache_bytes:
        parts.append(f"cache {size(archive.cache_bytes)}")
    return ", ".join(parts)


def _journal(info: ServerInfo, archive: ArchiveStatus) -> str:
    parts = [plain(info.journal_backend)]
    if archive.journal_bytes:  # only administrators receive this field
        parts.append(size(archive.journal_bytes))
    if archive.evicted_bytes:
        parts.append(f"{size(archive.evicted_bytes)} on the blob store only")
    return ", ".join(parts)


def _search(cli: Session, search: SearchStatus | None) -> str | Text:
    if search is None:
        return cli.out.dim("off")
    text = f"{counted(search.indexed_checkpoints, 'checkpoint')} indexed"
    if search.unindexed_checkpoints:
        since = ago(search.oldest_unindexed)
        text += f", {search.unindexed_checkpoints:,} waiting, the oldest since {since}"
    if search.truncated_checkpoints:
        text += f", {search.truncated_checkpoints:,} by the latest part of their state"
    if search.vectors:
        text += f", {counted(search.vectors, 'vector')}"
    if search.memwal is not None:
        text += f"; MemWal has {search.memwal.delivered:,}, {search.memwal.waiting:,} wait"
    return text


@command("accept-clock", panel=OPERATE)
def accept_clock(cli: Session) -> None:
    """Let deletions continue after the server's clock has moved, because it is right now."""
    jump = cli.client.accept_clock()
    if jump is None:
        cli.out.say("the clock has not moved; nothing to accept")
    else:
        cli.out.say(
            f"accepted {moment(jump.clock)} where {moment(jump.expected)} was expected; deletions "
            "continue"
        )
    if cli.out.is_json:
        times = jump and {"expected": shapes.time(jump.expected), "clock": shapes.time(jump.clock)}
        cli.out.object({"accepted": times})


@command("flush", panel=OPERATE)
def flush(cli: Session) -> None:
    """Certify everything saved so far, and wait for it."""
    with progress(cli.out, "certifying"):
        certified = cli.client.flush()
    cli.out.say(f"certified {counted(certified, 'checkpoint')}")
    if cli.out.is_json:
        cli.out.object({"certified_checkpoints": certified})
