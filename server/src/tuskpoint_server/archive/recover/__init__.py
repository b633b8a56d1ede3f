"""Rebuilding an empty journal from blobs alone.

Everything is trusted by the hash that what names it gives: one catalog vouches for all that
is read. It never writes to the blob store.
"""
