"""`manifest`."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from ...arguments import Limit, Thread, table_limit
from ...printing import shapes
from ...printing.fitting import Part
from ...printing.output import head
from ...printing.words import plain, short_id, size
from ...program import OPERATE, command
from ...session import Session


@command("manifest", panel=OPERATE)
def manifest(
    cli: Session,
    thread_id: Thread,
    store: Annotated[
        bool,
        typer.Option(
            "--store",
            help="Store the manifest as a blob of its own, which `tuskpoint audit manifest` and "
            "`tuskpoint-server recover` read. Nothing renews that blob.",
        ),
    ] = False,
    limit: Limit = None,
) -> None:
    """Show where the certified checkpoints of a thread are on the blob store."""
    if store:
        _store(cli, thread_id)
        return
    entries = cli.client.manifest(thread_id)
    most = table_limit(limit, is_json=cli.out.is_json)
    if cli.out.is_json:
        for entry in islice(entries, most):
            cli.out.line(shapes.manifest_entry(entry))
        return
    page, is_more = head(entries, most)
    if not page:
        cli.out.note("nothing is certified yet: `tuskpoint flush` certifies it")
        return
    cli.out.table(
        (
            Part("CHECKPOINT"),
            Part("BLOB"),
            Part("SIZE", rank=2),
            Part("NAMESPACE", rank=1),
            Part("SUMMARY", rank=3, is_text=True),
        ),
        (
            (
                cli.out.styled(short_id(entry.checkpoint_id), "cyan"),
                entry.segment.blob_id,
                size(entry.segment.size),
                plain(entry.checkpoint_ns),
                plain(entry.summary),
            )
            for entry in page
        ),
    )
    if is_more:
        cli.out.note(f"there are more than {most}: --limit N shows more")


def _store(cli: Session, thread_id: str) -> None:
    location = cli.client.store_manifest(thread_id)
    if cli.out.is_json:
        cli.out.object({"thread_id": thread_id, "location": shapes.record(location)})
    elif location is None:
        cli.out.note("nothing is certified yet: `tuskpoint flush` certifies it")
    else:
        cli.out.say(
            f"stored the manifest of thread {plain(thread_id)}: {size(location.size)} in blob "
            f"{location.blob_id}, SHA-256 {location.sha256}"
        )
