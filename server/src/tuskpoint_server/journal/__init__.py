"""What was acknowledged: one schema, one writer, many readers.

The journal makes changes durable before they are acknowledged, answers reads of
what it holds, and keeps the archive's records of what was packed, stored and
certified. One schema serves every database; nothing in it is particular to
SQLite.

It must never: talk to a blob store or build segments (that is the archive's),
know of wire messages or gRPC, decide what a call means (that is the service's),
decode the bytes of an agent's value, or acknowledge before the commit is
fsynced.
"""
