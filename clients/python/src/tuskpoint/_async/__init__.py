"""`AsyncClient`, and in `parts` a module for each kind of object that the client works with.

This package is the only source of both clients: `tools/sync_source.py` generates the package
`_sync` from it. Change this package, then run `make sync`.

The modules call the server and return records. Code that needs no server belongs to `_messages`,
and what all calls share belongs to `_transport`.
"""
