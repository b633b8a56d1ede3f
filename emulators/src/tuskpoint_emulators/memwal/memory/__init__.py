"""What is remembered, and when: jobs, blobs that stay, and an index of vectors made from words.

It must not ask a model, or decide who may call; `access` does.
"""
