"""Audits of a catalog, of a thread's manifest, of a hand-off's descriptor and of single blobs.

Must read blobs only through `reading`, which compares every byte with its hash.
"""
