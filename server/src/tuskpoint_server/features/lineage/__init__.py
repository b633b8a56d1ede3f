"""Checkpoints made from others: forks, copies, rollbacks, adoptions, snapshots, hand-offs.

All of them are inserted by one path (`archive.rows.stored`). A thread that is made from another one
shares its family, so no value is copied; an adopted thread begins a family of its own.

It must not read the blob store: a call that needs evicted values raises `ValuesEvictedError`, and
is called again with them.
"""
