"""Audits of stored data without a server: descriptors, manifests and catalogs.

An audit reads blobs from any Walrus aggregator or from a blob directory, and follows hashes from
its root down to every value. With the server's keys it opens sealed blobs. Its readers are written
from docs/storage.md alone, so that an audit does not repeat a mistake of the server. Must not
import the server or open a channel to a server.

`formats` parses stored bytes, `sources` and `aggregator` read them, and `checks` audits a
descriptor, a manifest, a catalog or blobs. Each audit ends in a `Report`.
"""

from __future__ import annotations

from .checks.blobs import audit_blobs
from .checks.catalog import audit_catalog
from .checks.descriptor import audit_descriptor
from .checks.manifest import audit_manifest
from .reading import Bounds, Progress
from .report import Report, compare
from .sources import BadSource, DirectorySource, Source
from .verdicts import Findings, Result, Verdict

__all__ = [
    "BadSource",
    "Bounds",
    "DirectorySource",
    "Findings",
    "Progress",
    "Report",
    "Result",
    "Source",
    "Verdict",
    "audit_blobs",
    "audit_catalog",
    "audit_descriptor",
    "audit_manifest",
    "compare",
]
