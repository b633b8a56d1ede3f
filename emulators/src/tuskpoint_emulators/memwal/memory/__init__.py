"""The memory: jobs, permanent blobs, and an index of vectors that are computed from words.

It must not ask a model, or decide who may call; `access` does.
"""
