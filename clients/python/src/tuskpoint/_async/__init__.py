"""`AsyncClient`; `parts` has a module for each kind of thing that it works with.

This is the one source of both clients: `tools/sync_source.py` writes the package `_sync` from it.
A change is made here and followed by `make sync`.

It asks the server and makes records of the answers. What needs no server belongs to `_messages`,
and what every call has in common to `_transport`.
"""
