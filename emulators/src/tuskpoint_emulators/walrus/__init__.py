"""A Walrus publisher and aggregator in one process.

The inner modules hold the rules and know no HTTP: `geometry` (sizes and prices),
`reed_solomon` and `blob_id` (the identity of a blob), `quilt` (many patches in one
blob), `results` (what a store answers) and `state` (the ledger: what is stored, by
whom, until when). The outer ones speak HTTP: `publisher` and `aggregator` answer,
`faults` says what goes wrong, `server` and `program` are the ways in.

It must never: be taken for Walrus. Nothing here is encoded into slivers or sent to a
network, and what is kept beyond the end of the process lies in one directory.
"""
