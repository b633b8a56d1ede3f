"""Before a request is handled: its route, its query and parts, its token, its turn in the queue.

It must not change the ledger.
"""
