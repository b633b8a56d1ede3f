"""The session to be awaited, from which `make sync` generates the package `_sync`."""
