"""A Walrus publisher and aggregator in one process.

The inner packages know no HTTP: `encoding` (blob IDs, quilts, sizes and prices) and `ledger` (what
is stored, by whom, until when). The outer ones do: `requests` (what is checked before a request is
handled) and `endpoints` (what answers it). `faults` says what goes wrong; `server` and `program`
are the ways in.

It must never: be taken for Walrus. Nothing here is encoded into slivers or sent to a
network, and what is kept beyond the end of the process lies in one directory.
"""
