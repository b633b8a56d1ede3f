"""The journal, the log of threads: one schema, one writer, many readers.

The journal makes changes durable before they are acknowledged, and answers reads. Features, archive
and search keep their rows in it and decide their changes in its writer.

It must not use a blob store or build segments (the archive does), know of wire messages or gRPC,
decide what a call means (features do), decode the bytes of an agent's value, or acknowledge a
change before its commit is fsynced.
"""
