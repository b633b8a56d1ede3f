"""MemWal's relayer, on a loopback address, for its unmodified SDK.

`access` decides who may call and how much, `memory` what is remembered and when, and `calls` turns
requests into answers. `faults` plans failures; `server` and `program` are the entry points.

Nothing is encrypted, sent to a network, or kept beyond the end of the process, and no model
is asked: vectors are hashes of words, facts are sentences.

It must never: be taken for MemWal, or listen where others can reach it.
"""
