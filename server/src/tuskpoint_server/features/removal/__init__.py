"""Deletion, pruning, retention and erasure, and garbage collection of rows.

It must not remove a value that a remaining checkpoint needs, or a row whose removal the archive has
not recorded yet.
"""
