# Written by `make sync` from _async/__init__.py; do not edit.
"""The session that blocks its thread, generated from the package `_async`."""
