"""Renewal of stored blobs before they expire.

A blob is renewed as a whole if most of it is needed; else its needed members are moved to another
blob.

The package must not remove a member that a live thread needs, or certify a catalog that leads to
members known to be lost.
"""
