"""The ledger: blobs, and the objects that keep them, with their ends and prices.

It must not use HTTP, or decide who may store; `requests` does.
"""
