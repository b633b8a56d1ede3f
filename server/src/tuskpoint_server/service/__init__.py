"""What the calls mean.

Takes requests in the domain's words, checks what can be checked without the
journal, and composes journal and archive: save and wait for a durability, load
with fallback, list, prune, describe.

It must never: speak SQL or HTTP, know of wire messages, gRPC or contexts, or keep
state of its own besides counters.
"""
