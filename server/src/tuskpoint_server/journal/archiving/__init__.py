"""What the archive reads from the journal and records in it.

Dirty ranges, certification, locations of stored bytes, eviction, holes, lifetimes of blobs.

It must not read or write blobs, or build segments.
"""
