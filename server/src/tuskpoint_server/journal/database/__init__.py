"""The journal's one writer, its readers, and the changes that a unit of work makes to threads.

It must not know what a call means, read a blob, or acknowledge a change before its commit is
durable.
"""
