"""Saving checkpoints in the journal.

It must not commit by itself (the writer does), read a blob, or decode the bytes of an agent's
value.
"""
