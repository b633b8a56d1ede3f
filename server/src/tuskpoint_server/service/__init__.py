"""The calls of the contract, independent of the wire.

Takes requests as types of the core, checks all that can be checked without the journal, and
combines journal, archive and search: save and wait for a durability, load from journal or blobs,
list, prune, describe.

It must not use SQL or HTTP, know of wire messages or gRPC, or keep state of its own besides
counters and caches.
"""
