"""MemWal: summaries are delivered to its relayer, and recalled from there."""
