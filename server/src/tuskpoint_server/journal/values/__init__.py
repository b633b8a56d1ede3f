"""Reads stored checkpoints: their values, writes, delta history and segments.

Every value is compared with its digest, and every row with its MAC, before it is returned.

It must not commit by itself (the writer does), read a blob, or decode the bytes of an agent's
value.
"""
