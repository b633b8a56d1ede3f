"""Rebuilding an empty journal from blobs alone.

Every member is checked against the hash in the one that names it, so one trusted catalog vouches
for all that is read.

It must not write to the blob store.
"""
