"""The journal's one writer, its readers, and what a unit of work changes in threads.

It must not know what a call means, read a blob, or acknowledge a change before its commit is
durable.
"""
