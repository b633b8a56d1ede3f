"""MemWal: delivery of summaries to its relayer, and recall from there."""
