"""MemWal's relayer, on a loopback address, for its unmodified SDK.

The inner modules hold the rules and know no HTTP: `auth` (who may call, in which order that
is found out), `limits` (points), `jobs` and `ledger` (what is remembered, and when),
`embedding` (vectors out of words). `endpoints` answers the signed calls, `metadata` the
unsigned ones, `faults` says what goes wrong; `server` and `program` are the ways in.

Nothing is encrypted, sent to a network, or kept beyond the end of the process, and no model
is asked: vectors are hashes of words, facts are sentences.

It must never: be taken for MemWal, or listen where others can reach it.
"""
