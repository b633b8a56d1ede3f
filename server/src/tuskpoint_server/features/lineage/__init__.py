"""Checkpoints made from other checkpoints: forks, copies, rollbacks, adoptions, snapshots.

One path inserts all of them (`archive.rows.stored`). A thread that is made from another thread
shares its family, so no value is copied; an adopted thread starts a family of its own.

It must not read the blob store: a call that needs evicted values raises `ValuesEvictedError`, and
the caller repeats the call with the values.
"""
