"""The capabilities of the contract: a package for each, with calls and SQL side by side.

A feature accepts requests as types of the core, checks everything that needs no journal, changes or
reads the journal, and waits until its changes have the requested durability.

It must not know of wire messages, gRPC or HTTP, or keep state of its own besides counters and
caches.
"""
