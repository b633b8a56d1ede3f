"""Rows of the archive in the journal: segments, members, catalogs, gaps and lifetimes.

The package must not read or write blobs, or build segments.
"""
