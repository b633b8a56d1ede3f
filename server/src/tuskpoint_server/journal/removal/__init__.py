"""Removes checkpoints and threads, and values and rows that no checkpoint needs.

It must not remove anything that a remaining checkpoint needs, and it keeps a note of every removal
until the archive has certified the removal.
"""
