"""Saving, loading and listing checkpoints, and the threads that they belong to.

It must not commit by itself (the journal's writer does), or decode the bytes of an agent's value.
"""
