# Written by `make sync` from _async/parts/__init__.py; do not edit.
"""The parts of the client: the methods about one kind of thing each."""
