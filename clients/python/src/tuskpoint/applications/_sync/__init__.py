# Written by `make sync` from _async/__init__.py; do not edit.
"""The blocking session, generated from the package `_async`."""
