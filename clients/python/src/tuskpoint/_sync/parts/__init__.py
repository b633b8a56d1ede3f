# Written by `make sync` from _async/parts/__init__.py; do not edit.
"""Parts of the client: each has the methods about one kind of object."""
