"""What the calls of the contract mean: a package for each capability, calls and SQL side by side.

A feature takes requests as types of the core, checks all that can be checked without the journal,
changes or reads the journal, and waits until what it changed is as durable as its caller asks.

It must not know of wire messages, gRPC or HTTP, or keep state of its own besides counters and
caches.
"""
