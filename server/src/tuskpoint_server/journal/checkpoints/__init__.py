"""Checkpoints in the journal: saving and loading them, their values and pending writes.

It must never: commit by itself (the writer does), read a blob, or decode the bytes of an
agent's value.
"""
