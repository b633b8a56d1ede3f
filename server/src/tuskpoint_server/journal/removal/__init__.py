"""Removing checkpoints and threads, and values and rows that nothing needs any more.

It must not remove anything that a remaining checkpoint needs, and it keeps a note of every removal
until the archive has certified it.
"""
