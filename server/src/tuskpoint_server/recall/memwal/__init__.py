"""MemWal: summaries are delivered to its relayer, and recalled from there.

`relayer` guards the SDK; nothing else calls it. `delivery` brings memories there, `memwal`
recalls them, each in one task that owns an SDK client of its own, and spends from one `budget`.
"""
