"""The audits: of a catalog, of a thread's manifest, of a hand-off's descriptor, of single blobs.

An audit must not read a blob but through `reading`, which compares every byte with its hash.
"""
