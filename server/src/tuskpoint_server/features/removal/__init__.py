"""Deleting, pruning, retention and erasure, and the sweep of rows that nobody needs any more.

It must not remove a value that a remaining checkpoint needs, or a row that the archive has still
to record as gone.
"""
