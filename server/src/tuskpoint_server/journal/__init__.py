"""The server's database: one schema, one writer, many readers.

The journal makes changes durable before they are acknowledged, answers reads, and records for the
archive which packs are stored and which changes are certified.

It must not use a blob store or build segments (the archive does), know of wire messages or gRPC,
decide what a call means (the service does), decode the bytes of an agent's value, or acknowledge
a change before its commit is fsynced.
"""
