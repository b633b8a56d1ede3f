"""What the archive keeps in the journal: segments, members, catalogs, gaps and lifetimes.

It must not read or write blobs, or build segments.
"""
