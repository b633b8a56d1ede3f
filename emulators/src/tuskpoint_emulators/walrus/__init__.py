"""A Walrus publisher and aggregator in one process.

The inner packages know no HTTP: `encoding` (blob IDs, quilts, sizes and prices) and `ledger`
(stored blobs, their objects and ends). The outer packages use HTTP: `requests` (checks before a
handler runs) and `endpoints` (the handlers). `faults` plans failures; `server` and `program` are
the entry points.

It must never: be taken for Walrus. Nothing here is encoded into slivers or sent to a
network, and only the files in one directory outlive the process.
"""
