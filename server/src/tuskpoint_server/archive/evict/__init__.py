"""Eviction: removes certified values from the journal, which then reads them from segments.

The package must not evict a value that no certified segment contains.
"""
