"""The asyncio session, from which `make sync` generates the package `_sync`."""
