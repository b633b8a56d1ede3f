# Written by `make sync` from _async/__init__.py; do not edit.
"""`Client`; `parts` has a module for each kind of thing that it works with.

It is written from the package `_async` by `tools/sync_source.py`.

It asks the server and makes records of the answers. What needs no server belongs to `_messages`,
and what every call has in common to `_transport`.
"""
