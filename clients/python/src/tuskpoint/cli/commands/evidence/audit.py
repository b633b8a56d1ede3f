"""`tuskpoint audit`: checks stored data without a server, and reports the result."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote, urlsplit

import typer

from ...exits import CommandError, Exit
from ...printing.progress import progress
from ...printing.words import plain
from ...program import OPERATE, PROGRAM, command
from ...session import Session

if TYPE_CHECKING:
    from ....audit.keys import Unwrap
    from ....audit.reading import Bounds, Reader
    from ....audit.report import Comparison, Report
    from ....audit.sources import Source
    from ....audit.verdicts import Findings

URL_VARIABLE = "WALRUS_AGGREGATOR_URL"
KEYS_VARIABLE = "TUSKPOINT_KEYS"
MEMORY_BYTES = 1024 * 1024 * 1024

AUDIT = typer.Typer(
    name="audit",
    help="Check stored data against its hashes without a server.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
PROGRAM.add_typer(AUDIT, name="audit", rich_help_panel=OPERATE)

AggregatorOption = Annotated[
    list[str] | None,
    typer.Option(
        "--aggregator",
        metavar="URL",
        help=f"A Walrus aggregator; may be repeated. [{URL_VARIABLE}]",
    ),
]
BlobDirOption = Annotated[
    Path | None,
    typer.Option(
        "--blob-dir", metavar="DIR", help="Read blobs from this directory instead of aggregators."
    ),
]
BlobsOption = Annotated[
    str,
    typer.Option(
        "--blobs",
        metavar="URL",
        help="Read blobs from this bucket: the value of the server's --blobs.",
    ),
]
RecentOption = Annotated[
    bool,
    typer.Option(
        "--recent",
        help="Wait up to 31 s for a blob before it counts as missing, because the blobs are new.",
    ),
]
MemoryOption = Annotated[
    int,
    typer.Option(
        "--memory-bytes",
        metavar="N",
        min=1,
        help="Bytes of memory that one segment may take while it is unpacked.",
    ),
]
ReportOption = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE.json", help="Write the report as JSON to this file."),
]
TextOption = Annotated[
    Path | None,
    typer.Option("--text", metavar="FILE.txt", help="Write the report as text to this file."),
]
ShaOption = Annotated[
    str,
    typer.Option(
        "--sha256", metavar="HEX", help="Expected SHA-256 of the blob. Required for a PASS."
    ),
]
IdentifierOption = Annotated[
    str, typer.Option("--identifier", metavar="NAME", help="The patch of a quilt to read.")
]
KeysOption = Annotated[
    Path | None,
    typer.Option(
        "--sealing-keys",
        metavar="FILE",
        help=f"Open sealed blobs with the server's key file. [{KEYS_VARIABLE} has the keys]",
    ),
]
KeyCommandOption = Annotated[
    str,
    typer.Option(
        "--sealing-command",
        metavar="COMMAND",
        help="Open sealed blobs with the server's key command.",
    ),
]
TenantOption = Annotated[
    str, typer.Option("--tenant", metavar="NAME", help="The tenant whose keys are needed.")
]
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="BLOB_ID",
        help="BLOB_ID, BLOB_ID/IDENTIFIER or BLOB_ID:SHA256HEX. One that begins with a dash goes "
        "behind `--`.",
    ),
]
HistoryOption = Annotated[
    int,
    typer.Option("--history", metavar="N", min=0, help="Also read up to N earlier catalogs."),
]
ThreadOption = Annotated[
    list[str] | None,
    typer.Option("--thread", metavar="THREAD", help="Only this thread; may be repeated."),
]


@dataclass(frozen=True, slots=True)
class _Keys:
    """Options that name the keys of sealed blobs."""

    file: Path | None = None
    command: str = ""
    tenant: str = "default"


@dataclass(frozen=True, slots=True)
class _Order:
    """Source, keys and files of an audit."""

    aggregators: list[str]
    blob_dir: Path | None
    blobs: str
    recent: bool
    report: Path | None
    text: Path | None
    keys: _Keys = _Keys()
    memory_bytes: int = MEMORY_BYTES


Audit = Callable[["Reader"], Awaitable["Findings"]]


@command("descriptor", within=AUDIT)
def audit_descriptor(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The descriptor; - reads stdin.")],
    aggregator: AggregatorOption = None,
    blob_dir: BlobDirOption = None,
    blobs: BlobsOption = "",
    sealing_keys: KeysOption = None,
    sealing_command: KeyCommandOption = "",
    tenant: TenantOption = "default",
    recent: RecentOption = False,
    memory_bytes: MemoryOption = MEMORY_BYTES,
    report: ReportOption = None,
    text: TextOption = None,
) -> None:
    """Check the blob of a hand-off, and that it has the checkpoint that the descriptor names."""
    _needs_libraries()
    from ...._messages.lineage.handoffs import read_descriptor
    from ....audit.checks import descriptor as audits

    keys = _Keys(sealing_keys, sealing_command, tenant)
    descriptor = read_descriptor(session.read(file, "the descriptor"))
    order = _Order(aggregator or [], blob_dir, blobs, recent, report, text, keys, memory_bytes)
    _run(session, order, lambda reader: audits.audit_descriptor(reader, descriptor))


@command("manifest", within=AUDIT)
def audit_manifest(
    session: Session,
    blob_id: NameArgument,
    sha256: ShaOption = "",
    identifier: IdentifierOption = "",
    aggregator: AggregatorOption = None,
    blob_dir: BlobDirOption = None,
    blobs: BlobsOption = "",
    sealing_keys: KeysOption = None,
    sealing_command: KeyCommandOption = "",
    tenant: TenantOption = "default",
    recent: RecentOption = False,
    memory_bytes: MemoryOption = MEMORY_BYTES,
    report: ReportOption = None,
    text: TextOption = None,
) -> None:
    """Check the stored manifest of a thread, and every checkpoint that it names."""
    _needs_libraries()
    from ....audit import roots
    from ....audit.checks import manifest

    async def audit(reader: Reader) -> Findings:
        location = roots.named(blob_id, identifier, sha256)
        root = await roots.find(reader.source, location, "manifest")
        return await manifest.audit_manifest(reader, root)

    keys = _Keys(sealing_keys, sealing_command, tenant)
    _run(
        session,
        _Order(aggregator or [], blob_dir, blobs, recent, report, text, keys, memory_bytes),
        audit,
    )


@command("catalog", within=AUDIT)
def audit_catalog(
    session: Session,
    blob_id: NameArgument,
    sha256: ShaOption = "",
    identifier: IdentifierOption = "",
    thread: ThreadOption = None,
    history: HistoryOption = 0,
    aggregator: AggregatorOption = None,
    blob_dir: BlobDirOption = None,
    blobs: BlobsOption = "",
    sealing_keys: KeysOption = None,
    sealing_command: KeyCommandOption = "",
    tenant: TenantOption = "default",
    recent: RecentOption = False,
    memory_bytes: MemoryOption = MEMORY_BYTES,
    report: ReportOption = None,
    text: TextOption = None,
) -> None:
    """Check a catalog, and every thread, snapshot and checkpoint that it leads to."""
    _needs_libraries()
    from ....audit import roots
    from ....audit.checks import catalog

    async def audit(reader: Reader) -> Findings:
        location = roots.named(blob_id, identifier, sha256)
        root = await roots.find(reader.source, location, "catalog")
        return await catalog.audit_catalog(reader, root, thread or (), history)

    keys = _Keys(sealing_keys, sealing_command, tenant)
    order = _Order(aggregator or [], blob_dir, blobs, recent, report, text, keys, memory_bytes)
    try:
        _run(session, order, audit)
    except catalog.UnknownThread as error:
        hint = "without --thread every thread of the catalog is audited and listed"
        raise CommandError(Exit.NOT_FOUND, str(error), hint) from error


@command("blobs", within=AUDIT)
def audit_blobs(
    session: Session,
    file: Annotated[
        str,
        typer.Argument(metavar="REPORT.json", help="A report, or its blobs; - reads stdin."),
    ],
    aggregator: AggregatorOption = None,
    blob_dir: BlobDirOption = None,
    blobs: BlobsOption = "",
    recent: RecentOption = False,
    report: ReportOption = None,
    text: TextOption = None,
) -> None:
    """Check that the blobs of a report are stored with their hashes; needs no key."""
    _needs_libraries()
    from ....audit.checks import blobs as audits
    from ....audit.report import BadReport

    try:
        locations = audits.read_listed(session.read(file, "the report"), file)
    except BadReport as error:
        raise CommandError(Exit.USAGE, str(error), "give a file that --report wrote") from error
    order = _Order(aggregator or [], blob_dir, blobs, recent, report, text)
    _run(session, order, lambda reader: audits.audit_blobs(reader, locations))


@command("compare", within=AUDIT)
def compare_reports(
    session: Session,
    first: Annotated[
        str, typer.Argument(metavar="FIRST.json", help="The JSON report of one audit.")
    ],
    second: Annotated[
        str, typer.Argument(metavar="SECOND.json", help="The JSON report of another audit.")
    ],
) -> None:
    """Compare the reports of two audits."""
    from ....audit.report import BadReport, compare, read_report

    try:
        reports = [read_report(session.read(name, "the report"), name) for name in (first, second)]
    except BadReport as error:
        raise CommandError(Exit.USAGE, str(error), "give files that --report wrote") from error
    comparison = compare(*reports)
    _show_comparison(session, comparison)
    if not comparison.same:
        raise typer.Exit(Exit.INTEGRITY)


# --- running ---------------------------------------------------------------------------


def _needs_libraries() -> None:
    try:
        import cryptography  # noqa: F401 - reported before anything is done
        import httpx  # noqa: F401

        from ....audit.formats import frames  # noqa: F401 - it needs zstd
    except ModuleNotFoundError as error:
        raise CommandError(
            Exit.USAGE,
            f"an audit needs {error.name}, which is not installed",
            "pip install 'tuskpoint[cli]'",
        ) from error


def _run(session: Session, order: _Order, audit: Audit) -> None:
    """Audit, write the reports, and exit with the code of the result."""
    import asyncio

    from ....audit.reading import Bounds
    from ....audit.roots import UnclearName
    from ....audit.sources import BadSource

    try:
        unwrap = _unwrap(order.keys)
        source = _source(session, order)
        bounds = Bounds(memory=order.memory_bytes)
        report = asyncio.run(_audited(session, source, bounds, unwrap, audit))
    except (BadSource, UnclearName) as error:
        hint = "the help of the command describes the sources and the names of blobs"
        raise CommandError(Exit.USAGE, str(error), hint) from error
    _write(order.report, report.to_json)
    _write(order.text, report.to_text)
    _show(session, report)
    code = _code(report)
    if code is not Exit.OK:
        raise typer.Exit(code)


def _unwrap(keys: _Keys) -> Unwrap | None:
    """Return the function that opens sealed roots, or `None` if no key was given."""
    from ....audit.keys import check_private, of_command, of_text

    text, name = os.environ.get(KEYS_VARIABLE, ""), KEYS_VARIABLE
    if keys.file is not None and keys.command:
        raise CommandError(
            Exit.USAGE, "--sealing-keys and --sealing-command exclude one another", "give one"
        )
    if keys.command:
        return of_command(keys.command, keys.tenant)
    try:
        if keys.file is not None:
            text, name = keys.file.read_text(encoding="ascii"), str(keys.file)
            check_private(keys.file)
        return of_text(text, keys.tenant) if text else None
    except OSError as error:
        raise CommandError(
            Exit.USAGE,
            f"{name} cannot be read: {error.strerror}",
            "name the file of keys that `tuskpoint-server keys` made",
        ) from error
    except ValueError as error:
        raise CommandError(
            Exit.USAGE,
            f"{name} cannot be used: {error}",
            "give the keys as `tuskpoint-server keys` made them, readable to you alone",
        ) from error


def _source(session: Session, order: _Order) -> Source:
    from ....audit.aggregator import TIMEOUT_S, AggregatorSource
    from ....audit.sources import DirectorySource

    if sum(map(bool, (order.blob_dir, order.blobs, order.aggregators))) > 1:
        raise CommandError(
            Exit.USAGE, "--blob-dir, --blobs and --aggregator exclude one another", "give one"
        )
    if order.blobs:
        return _bucket(order.blobs)
    if order.blob_dir is not None:
        return DirectorySource(order.blob_dir)
    if any(urlsplit(url).password is not None for url in order.aggregators):
        raise CommandError(
            Exit.USAGE,
            "--aggregator has a password, which every user of this machine could read",
            f"set {URL_VARIABLE}",
        )
    urls = order.aggregators or os.environ.get(URL_VARIABLE, "").replace(",", " ").split()
    if not urls:
        hint = f"give --aggregator URL, --blob-dir DIR or --blobs URL, or set {URL_VARIABLE}"
        raise CommandError(Exit.USAGE, "no source was given", hint)
    return AggregatorSource(
        urls, timeout_s=session.settings.timeout or TIMEOUT_S, recent=order.recent
    )


def _bucket(url: str) -> Source:
    from ....audit.sources import DirectorySource

    if url.startswith("file:///"):
        return DirectorySource(Path(unquote(url.removeprefix("file://"))))
    try:
        from ....audit.objects import ObjectSource
    except ModuleNotFoundError as error:
        raise CommandError(
            Exit.USAGE,
            f"a bucket needs {error.name}, which is not installed",
            "pip install 'tuskpoint[objects]'",
        ) from error
    return ObjectSource(url)


async def _audited(
    session: Session, source: Source, bounds: Bounds, unwrap: Unwrap | None, audit: Audit
) -> Report:
    from ....audit.reading import Progress, Reader
    from ....audit.report import Report

    started = datetime.now(UTC)
    try:
        with progress(session.out, "auditing", total=0, noun="step") as bar:

            def show(state: Progress) -> None:
                bar.reach(state.done, state.doing, total=state.total)

            findings = await audit(Reader(source, bounds, show, unwrap))
        return Report.of(findings, source, started, datetime.now(UTC))
    finally:
        await source.close()


def _write(path: Path | None, text: Callable[[], str]) -> None:
    if path is None:
        return
    try:
        path.write_text(text(), encoding="utf-8")
    except OSError as error:
        raise CommandError(
            Exit.USAGE,
            f"the report cannot be written to {path}: {error.strerror or error}",
            "name a file in a directory that you may write to",
        ) from error


def _code(report: Report) -> Exit:
    """Return the exit code of a result: without a checked hash, an audit does not pass."""
    from ....audit.verdicts import Result

    return {
        Result.PASS: Exit.OK,
        Result.UNPINNED: Exit.REFUSED,
        Result.INCOMPLETE: Exit.UNREACHABLE,
        Result.FAIL: Exit.INTEGRITY,
    }[Result(report.findings["result"])]


# --- printing --------------------------------------------------------------------------


def _show(session: Session, report: Report) -> None:
    out = session.out
    if out.is_json:
        out.object(report.as_json())
        return
    first, *lines = report.to_text(brief=True).splitlines()
    style = "bold green" if report.findings["result"] == "PASS" else "bold red"
    out.put(out.styled(first, style))
    for line in lines:
        out.put(line)


def _show_comparison(session: Session, comparison: Comparison) -> None:
    if session.out.is_json:
        session.out.object(
            {
                "same": comparison.same,
                "findings_sha256": list(comparison.digests),
                "differences": list(comparison.differences),
            }
        )
        return
    session.out.put("the same" if comparison.same else "not the same")
    for digest in dict.fromkeys(comparison.digests):
        session.out.put(f"findings SHA-256 {digest}")
    for difference in comparison.differences:
        session.out.put(f"  {plain(difference)}")
