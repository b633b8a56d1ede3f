"""Checking what is stored without a server: descriptors, manifests and catalogs.

An audit reads blobs from any Walrus aggregator or from a blob directory and follows hashes
from what it was given down to every value. It has readers of its own, written from
docs/storage.md, so that a mistake of the server is not repeated here: nothing in this
room may import the server, or anything that opens a channel to one.

`formats` say what bytes mean, sources where they come from (`sources`, `aggregator`), and
`descriptor`, `manifest` and `catalog` what is checked. All of these end in a `Report`.
"""

from __future__ import annotations

from .catalog import audit_catalog
from .descriptor import audit_descriptor
from .manifest import audit_manifest
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
    "audit_catalog",
    "audit_descriptor",
    "audit_manifest",
    "compare",
]
