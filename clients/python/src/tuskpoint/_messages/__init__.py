"""Contract messages from arguments, and records from contract messages. Pure.

Must not do I/O or import gRPC: audits, which open no channel, import this package too.
"""
