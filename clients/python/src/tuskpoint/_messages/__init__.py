"""Arguments to contract messages, and contract messages to records. Pure.

It must not do I/O or import gRPC: audits, which open no channel, import it too.
"""
