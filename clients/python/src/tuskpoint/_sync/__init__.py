# Written by `make sync` from _async/__init__.py; do not edit.
"""`Client`, and in `parts` a module for each kind of object that the client works with.

`tools/sync_source.py` generates this package from the package `_async`.

The modules call the server and return records. Code that needs no server belongs to `_messages`,
and what all calls share belongs to `_transport`.
"""
