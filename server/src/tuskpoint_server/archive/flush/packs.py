"""Packs: spool, put, read back and certify; also the puts that precede a pack.

A pack is the final put of a flush. Its exact bytes are spooled before they are put, and recorded
with the plan of its certification, so that a restart can finish it. A pack is abandoned, and its
content is read again, if its file is damaged or on another server, if the store does not accept the
pack, or if members that it needs are gone.

A spool file has the format of the pack files in a blob directory (docs/storage.md).
"""

from __future__ import annotations

import asyncio
import glob
import logging
import os
import uuid
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from ...blobs.api import BlobMember, BlobStore, PutReceipt, StoreLimits
from ...blobs.packs import NotAPackError, pack_pieces, read_index, reader
from ...core.credentials import DEFAULT_TENANT
from ...core.errors import Reason, Refusal
from ...core.model import BlobLocation
from ...core.process import sync
from ...core.values import blob_digest
from ...journal.database.database import Database
from ...journal.failpoints import failpoint
from ...journal.lease import Lease
from ..read.standalone import GONE
from ..rows.lifetimes import Expiry, record_blobs
from ..rows.plan import Plan, StoredPack, drop_pack, record_spooled
from ..telemetry import tracer
from .certify import VoidPackError, certify

_LONG_PUT_S = 60.0  # duration of a put after which the store is checked again before certification

_log = logging.getLogger(__name__)


class SpoolDamagedError(Exception):
    """A spool file is missing or does not contain the bytes that were written."""


class Spool:
    """Directory of spool files, created if it is missing, also while the server runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, members: Sequence[BlobMember]) -> str:
        """Write members to a new fsynced file; return its name. On `OSError`, no file remains."""
        name = f"{uuid.uuid4().hex}.pack"
        path = self._path / name
        self._path.mkdir(mode=0o700, exist_ok=True)
        try:
            with path.open("xb") as file:
                file.writelines(pack_pieces(members))
                file.flush()
                os.fsync(file.fileno())
            sync(self._path)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return name

    def read(self, name: str) -> list[BlobMember]:
        """Return the members of a file, with hashes checked, or raise `SpoolDamagedError`."""
        members = []
        try:
            with (self._path / name).open("rb", buffering=0) as file:
                read = reader(file)
                for sha256, offset, size, kind in read_index(read, os.fstat(file.fileno()).st_size):
                    data = read(offset, size)
                    if blob_digest(data) != sha256:
                        raise NotAPackError(f"it does not hold member {sha256.hex()}")
                    members.append(BlobMember(sha256, data, kind))
        except (FileNotFoundError, NotAPackError) as error:
            raise SpoolDamagedError(f"spool file {name}: {error}") from error
        return members

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        (self._path / name).unlink(missing_ok=True)

    def keep_only(self, names: set[str]) -> None:
        """Remove every file that no pack refers to."""
        for path in self._files():
            if path.name not in names:
                path.unlink(missing_ok=True)

    def size_bytes(self) -> int:
        """Return the total size of all files."""
        total = 0
        for path in self._files():
            with suppress(FileNotFoundError):  # the pack was certified meanwhile
                total += path.stat().st_size
        return total

    def _files(self) -> list[Path]:
        try:
            return list(self._path.iterdir())
        except FileNotFoundError:  # the file was removed meanwhile
            return []


class Pointer:
    """Pointer files of all tenants.

    The tenant `default` has the file at `path`; files of other tenants have a suffix after that
    name. A file that named a given-up catalog stays beside the others, with `+old-1`, `+old-2`, …
    at the end of its name: a quoted tenant name has no plus.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def path(self, tenant: str) -> Path:
        """Return the path of a tenant's file."""
        if tenant == DEFAULT_TENANT:
            return self._path
        return self._path.with_name(f"{self._path.name}.{quote(tenant, safe='')}")

    def named(self) -> dict[str, str]:
        """Return the catalogs that the files name, by tenant.

        May raise `OSError` or `UnicodeDecodeError`. A file with the name of a tenant's file may
        also be a copy that a person made.
        """
        if not self._path.parent.is_dir():
            return {}
        prefix, catalogs = f"{self._path.name}.", {}
        for path in sorted(self._path.parent.iterdir()):
            tenant = unquote(path.name.removeprefix(prefix))
            if path == self._path:
                tenant = DEFAULT_TENANT
            elif not path.name.startswith(prefix) or path != self.path(tenant):
                continue
            if path.is_file() and (blob_id := path.read_text("utf-8").strip()):
                catalogs[tenant] = blob_id
        return catalogs

    def given_up(self, tenant: str) -> list[str]:
        """Return the catalogs that a tenant's files named before they were set aside.

        May raise `OSError` or `UnicodeDecodeError`.
        """
        path = self.path(tenant)
        old_paths = path.parent.glob(f"{glob.escape(path.name)}+old-*")
        return [
            blob_id
            for old_path in sorted(old_paths)
            if (blob_id := old_path.read_text("utf-8").strip())
        ]

    def set_aside(self, tenant: str) -> Path | None:
        """Rename a tenant's file, if it exists, so that nothing overwrites it.

        Returns the new path. May raise `OSError`.
        """
        path = self.path(tenant)
        if not path.exists():
            return None
        number = 1
        while (new_path := path.with_name(f"{path.name}+old-{number}")).exists():
            number += 1
        path.rename(new_path)
        sync(path.parent)
        return new_path

    def write(self, tenant: str, blob_id: str) -> None:
        """Replace a tenant's file atomically, also if the machine crashes; may raise `OSError`."""
        path = self.path(tenant)
        path.parent.mkdir(parents=True, exist_ok=True)
        # The temporary name starts with a dot, so that it is not a tenant's file.
        part = path.with_name(f".{path.name}.part")
        part.write_text(f"{blob_id}\n", encoding="utf-8")
        sync(part)
        part.replace(path)
        sync(path.parent)


@dataclass(slots=True)
class Pack:
    """In-flight pack; `spool` names its file, `resumed` marks a pack of an earlier process."""

    number: int
    tenant: str
    spool: str
    plan: Plan
    members: Sequence[BlobMember]
    resumed: bool = False


class PackRunner:
    """Stores packs and other members, within the limit of concurrent puts and without a cache."""

    def __init__(
        self, database: Database, lease: Lease, blobs: BlobStore, spool: Spool, expiry: Expiry
    ) -> None:
        self._database = database
        self._lease = lease
        self._blobs = blobs
        self._spool = spool
        self._expiry = expiry
        self._gate = asyncio.Semaphore(blobs.limits.puts_at_once)

    async def begin(self, tenant: str, members: Sequence[BlobMember], plan: Plan) -> Pack:
        """Make the bytes of a new pack durable and record the pack."""
        try:
            name = await asyncio.to_thread(self._spool.write, members)
        except OSError as error:
            problem = error.strerror or str(error)
            raise Refusal(Reason.BLOB_UNAVAILABLE, backend="spool", problem=problem) from error
        failpoint("archive.after_spool_file")
        try:
            number = await self._lease.transact(
                lambda batch: record_spooled(batch.connection, tenant, name, plan, batch.now_us)
            )
        except Exception:  # if the record was committed after all, a restart abandons the pack
            await asyncio.to_thread(self._spool.remove, name)
            raise
        failpoint("archive.after_spooled")
        return Pack(number, tenant, name, plan, members)

    async def resume(self, stored: StoredPack) -> Pack | None:
        """Return a pack that an earlier process left; `None` if its content is read again."""
        pack = Pack(*stored, (), resumed=True)
        try:
            pack.members = await asyncio.to_thread(self._spool.read, stored.spool)
        except SpoolDamagedError as damage:
            # Packs of another server are in that server's spool.
            level = logging.WARNING if self._database.is_shared else logging.ERROR
            _log.log(level, "pack %d is built again: %s", stored.number, damage)
        else:
            if self._blobs.limits.hold([len(member.data) for member in pack.members]):
                return pack
            _log.warning(
                "pack %d is built again: it exceeds the limits of the store", stored.number
            )
        await self.abandon(pack)
        return None

    async def store(
        self, tenant: str, members: Sequence[BlobMember], *, standalone: bool = False
    ) -> dict[bytes, BlobLocation]:
        """Put members and read them back; return their locations, by hash."""
        async with self._gate:
            size = sum(len(member.data) for member in members)
            attributes: dict[str, str | int] = {
                "tenant": tenant,
                "members": len(members),
                "bytes": size,
            }
            with tracer.start_as_current_span("archive.put", attributes=attributes):
                receipt = await self._blobs.put(members, standalone=standalone)
            failpoint("archive.after_put")
            if receipt.blobs:
                await self.record(tenant, receipt)
            failpoint("archive.after_stored")
            contents = await self._blobs.get_many(receipt.locations)
        for member, location, data in zip(members, receipt.locations, contents, strict=True):
            if data != member.data:
                raise Refusal(
                    Reason.BLOB_HASH_MISMATCH,
                    blob_id=location.blob_id,
                    expected=member.sha256.hex(),
                    actual=blob_digest(data).hex(),
                )
        failpoint("archive.after_read_back")
        return {location.sha256: location for location in receipt.locations}

    async def record(self, tenant: str, receipt: PutReceipt) -> None:
        """Record which blobs a put made, and how long they last."""
        await self._database.transact(
            lambda batch: record_blobs(batch, tenant, receipt.blobs, self._expiry)
        )

    async def finish(
        self, pack: Pack, require_store: Callable[[], Awaitable[None]]
    ) -> BlobLocation | None:
        """Store and certify a pack; return its catalog's location, `None` if the pack is void.

        `require_store` raises if nothing may be certified in the store in its present state. It is
        called before the put, and again after a long put: the store may have lost its blobs
        meanwhile.
        """
        await require_store()
        if pack.resumed and not await self._has_others(pack):
            await self.abandon(pack)
            return None
        loop = asyncio.get_running_loop()
        began = loop.time()
        locations = await self.store(pack.tenant, pack.members)
        if loop.time() - began > _LONG_PUT_S:
            await require_store()
        return await self._certify(pack, locations)

    async def discard_spooled(self, pack: Pack) -> None:
        """Remove the spool file of a certified pack."""
        await asyncio.to_thread(self._spool.remove, pack.spool)

    async def abandon(self, pack: Pack) -> None:
        """Forget a pack; nothing in the pack is certified."""
        await self._database.transact(lambda batch: drop_pack(batch.connection, pack.number))
        await self.discard_spooled(pack)

    async def _certify(
        self, pack: Pack, locations: Mapping[bytes, BlobLocation]
    ) -> BlobLocation | None:
        [catalog] = [member.data for member in pack.members if member.sha256 == pack.plan.catalog]
        arguments = (pack.tenant, pack.number, pack.plan, catalog, locations)
        try:
            await self._lease.transact(lambda batch: certify(batch, *arguments))
        except VoidPackError as void:
            _log.warning("pack %d is abandoned: %s", pack.number, void)
            await self.abandon(pack)
            return None
        failpoint("archive.after_certified")
        return locations[pack.plan.catalog]

    async def _has_others(self, pack: Pack) -> bool:
        """Return whether the members that were stored before a pack can still be read."""
        hashes = {member.sha256 for member in pack.members}
        locations = [
            member.location for member in pack.plan.members if member.location.sha256 not in hashes
        ]
        try:
            await self._blobs.get_many(locations)
        except Refusal as refusal:
            if refusal.reason not in GONE:
                raise
            _log.warning("pack %d is built again: %s", pack.number, refusal.message)
            return False
        return True


def group_members(members: Iterable[BlobMember], limits: StoreLimits) -> list[list[BlobMember]]:
    """Distribute members over puts, like sizes together: the largest member sets the price."""
    ordered = sorted(members, key=lambda member: (len(member.data), member.sha256))
    groups: list[list[BlobMember]] = []
    while ordered:
        sizes = [len(member.data) for member in ordered]
        longest = min(len(sizes), max(1, limits.max_members or len(sizes)))

        def is_over(count: int, sizes: Sequence[int] = sizes) -> bool:
            return not limits.hold(sizes[:count])

        count = max(1, bisect_right(range(1, longest + 1), False, key=is_over))
        groups.append(ordered[:count])
        ordered = ordered[count:]
    return groups
