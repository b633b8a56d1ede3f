"""Rebuilds an empty journal from blobs alone.

Every member is checked against the hash in the member that names it, so one trusted catalog proves
everything that is read.

It must not write to the blob store.
"""
